//! Faults for tests, by name. They exist only in builds with debug assertions.
//!
//! `VM_FAULT=link-cut` makes SIGUSR1 destroy all connections to other daemons, with the bytes in
//! them.
//!
//! `VM_FAULT=POINT:ACTION` makes this daemon, or the first of its transfer processes that reaches
//! the point, carry out one harmful action at a named point, once. With `VM_FAULT_FROM=FILE` the
//! process passes the point unharmed until that file exists.
//!
//! | point | is |
//! |---|---|
//! | `send.ORDER`, `receive.ORDER` | an order to, or from, another daemon ([`vm_wire::peer::Order`]) |
//! | `order.copy`, `order.freeze` | before the order is sent to a task |
//! | `report.copied`, `report.writes`, `report.saved`, `report.back` | a task has sent that report |
//! | `begin`, `discard` | before an arrived task resumes; before the process of a task that left is ended |
//! | `coordinator.PHASE` | before a coordinator gets the report that a move is in that phase ([`vm_wire::peer::MovePhase`]) |
//! | `coordinator.ORDER` | before a coordinator gets any other order |
//! | `says.ORDER` | a coordinator has sent that order, and its daemon has not read it yet |
//! | `commit` | before the manifest of a checkpoint is written |
//! | `sender`, `receiver` | the process that sends or receives an image, when some bytes have passed |
//! | `writer`, `taker` | the process that writes an image, or a copy of one, into the store, at its start |
//! | `pusher` | the process that copies checkpoints to a bucket, at its start |
//! | `restorer` | the process that becomes the task, at its start |
//! | `token` | a thread that reads the token of a process, before the read |
//!
//! | action | does |
//! |---|---|
//! | `note` | nothing, except a line in the log |
//! | `kill` | ends this process by SIGKILL |
//! | `stop` | stops this process by SIGSTOP |
//! | `delay-MS` | an order that is sent, and all that follows it over that link, waits that many milliseconds; a transfer process, or a thread that reads a token, waits likewise |
//! | `cut` | destroys all connections to other daemons, with the bytes in them |
//! | `task` | ends the task's process by SIGKILL |
//! | `end`, `hold` | ends the coordinator's process by SIGKILL; stops it by SIGSTOP |
//! | `break` | changes a byte of the image |
//! | `reset` | destroys the connection that carries the image, without notice to the process |

use rustix::process::Signal;
use std::{
    path::Path,
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};
use vm_wire::{
    Frame, Message, Op,
    coordinator::Mail,
    peer::{MoveState, Order},
};

/// Environment variable that names the fault.
const ENV_FAULT: &str = "VM_FAULT";
/// Environment variable with the file that has to be there.
const ENV_FROM: &str = "VM_FAULT_FROM";

/// Whether the fault of that name is requested.
pub fn is_on(name: &str) -> bool {
    let is = |fault: String| fault == name || fault.ends_with(":cut") && name == "link-cut";
    cfg!(debug_assertions) && std::env::var(ENV_FAULT).is_ok_and(is)
}

/// Passes the fault on to the first process that is started for this point; no other process of
/// this daemon gets it.
pub fn pass_on(command: &mut Command, point: &str) {
    static PASSED: AtomicBool = AtomicBool::new(false);
    command.env_remove(ENV_FAULT);
    if let Some((wanted, action)) = wanted()
        && wanted == point
        && is_time()
        && !PASSED.swap(true, SeqCst)
    {
        command.env(ENV_FAULT, format!("{wanted}:{action}"));
    }
}

/// The part of an action that the caller has to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// The caller has nothing to do.
    None,
    /// End the task's process by SIGKILL.
    Task,
    /// Send this signal to the coordinator's process.
    Coordinator(Signal),
    /// Change a byte of the image.
    Break,
    /// Destroy the connection that carries the image.
    Reset,
    /// Delay by this time.
    Delay(Duration),
}

/// The point and the action of the environment variable.
fn wanted() -> Option<&'static (String, String)> {
    static WANTED: OnceLock<Option<(String, String)>> = OnceLock::new();
    if !cfg!(debug_assertions) {
        return None;
    }
    let read = || {
        let text = std::env::var(ENV_FAULT).ok()?;
        let (point, action) = text.split_once(':')?;
        Some((point.to_owned(), action.to_owned()))
    };
    WANTED.get_or_init(read).as_ref()
}

/// Whether the file of [`ENV_FROM`] exists, or none is named.
fn is_time() -> bool {
    std::env::var_os(ENV_FROM).is_none_or(|file| Path::new(&file).exists())
}

/// The point of a frame that is about to be sent to another daemon (`send`), or was received from
/// it (`receive`).
pub fn at_frame(way: &str, frame: &Frame) -> Strike {
    if wanted().is_some()
        && frame.header.op == Op::Data
        && let Ok(order) = Order::from_payload(&frame.body)
    {
        return at_order(way, &order);
    }
    Strike::None
}

fn at_order(way: &str, order: &Order) -> Strike {
    let order = format!("{order:?}");
    let name = order.split('(').next().unwrap_or_default();
    at(&format!("{way}.{name}"))
}

/// A point in a transfer process, or in a thread that may block. A delay is carried out here.
pub fn at_carrier(point: &str) -> Strike {
    let strike = at(point);
    if let Strike::Delay(time) = strike {
        thread::sleep(time);
    }
    strike
}

/// The point of a frame that is about to be sent to a coordinator (`coordinator`), or came from it
/// (`says`).
pub fn at_mail(way: &str, frame: &Frame) -> Strike {
    if wanted().is_some()
        && frame.header.op == Op::Mail
        && let Ok(mail) = Mail::read(frame)
        && let Ok(order) = Order::from_payload(&mail.order)
    {
        return match order {
            Order::MoveReported(reported) => match reported.state {
                MoveState::In(phase) => at(&format!("{way}.{phase}")),
                _ => Strike::None,
            },
            order => at_order(way, &order),
        };
    }
    Strike::None
}

/// Carries out the action if `point` is the requested point and it is the first time; returns what
/// is left for the caller.
pub fn at(point: &str) -> Strike {
    static STRUCK: AtomicBool = AtomicBool::new(false);
    let action = match wanted() {
        Some((wanted, action)) if wanted == point && is_time() => action.as_str(),
        _ => return Strike::None,
    };
    if STRUCK.swap(true, SeqCst) {
        return Strike::None;
    }
    log::warn!("fault at {point}: {action}");
    let signal = |signal| {
        let result = rustix::process::kill_process(rustix::process::getpid(), signal);
        result.expect("a signal to oneself");
    };
    if let Some(time) = action.strip_prefix("delay-").and_then(|ms| ms.parse().ok()) {
        return Strike::Delay(Duration::from_millis(time));
    }
    match action {
        "note" => {}
        "kill" => signal(Signal::KILL),
        "stop" => signal(Signal::STOP),
        "cut" => signal(Signal::USR1),
        "end" => return Strike::Coordinator(Signal::KILL),
        "hold" => return Strike::Coordinator(Signal::STOP),
        "task" => return Strike::Task,
        "break" => return Strike::Break,
        "reset" => return Strike::Reset,
        other => log::warn!("no fault is called '{other}'"),
    }
    Strike::None
}
