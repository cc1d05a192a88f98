//! Faults for tests, by name, in builds with debug assertions; elsewhere nothing of them is there.
//!
//! `VM_FAULT=link-cut` makes SIGUSR1 destroy all connections to other daemons, with what is in them.
//!
//! `VM_FAULT=POINT:ACTION` has this daemon, or a process of its own
//! that carries an image, do something bad at a named point, once.
//!
//! | point | is |
//! |---|---|
//! | `send.ORDER`, `receive.ORDER` | an order to, or from, another daemon ([`vm_wire::peer::Order`]) |
//! | `order.copy`, `order.freeze` | before a task is told so |
//! | `report.copied`, `report.saved`, `report.back` | a task has said so |
//! | `begin`, `discard` | before a task that came goes on; before one that went is ended |
//! | `coordinator.PHASE` | before a coordinator is told that a move is in that phase ([`vm_wire::peer::MovePhase`]) |
//! | `sender`, `receiver` | the process that carries an image, when some of it has passed |
//! | `restorer` | the process that becomes the task, at its start |
//!
//! | action | does |
//! |---|---|
//! | `kill` | ends this process by SIGKILL |
//! | `stop` | stops it by SIGSTOP |
//! | `cut` | destroys all connections to other daemons, with what is in them |
//! | `task` | ends the task's process by SIGKILL |
//! | `end`, `hold` | ends that coordinator's process by SIGKILL, stops it by SIGSTOP |
//! | `break` | a byte of the image is changed |

use rustix::process::Signal;
use std::{
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use vm_wire::{
    Frame, Message, Op,
    coordinator::Mail,
    peer::{MoveState, Order},
};

/// Environment variable that names the fault.
const ENV_FAULT: &str = "VM_FAULT";

/// Whether the fault of that name is asked for.
pub fn is_on(name: &str) -> bool {
    let is = |fault: String| fault == name || fault.ends_with(":cut") && name == "link-cut";
    cfg!(debug_assertions) && std::env::var(ENV_FAULT).is_ok_and(is)
}

/// A process of this daemon's is to strike, too.
pub fn pass_on(command: &mut Command) {
    if cfg!(debug_assertions)
        && let Ok(fault) = std::env::var(ENV_FAULT)
    {
        command.env(ENV_FAULT, fault);
    }
}

/// What is left to be done by whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// Nothing.
    None,
    /// See the table.
    Task,
    /// See the table: the coordinator's process gets that signal.
    Coordinator(Signal),
    /// See the table.
    Break,
}

/// The point and the action that are asked for.
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

/// This frame is about to be sent to another daemon, or was received from one.
pub fn at_frame(way: &str, frame: &Frame) {
    if wanted().is_some()
        && frame.header.op == Op::Data
        && let Ok(order) = Order::from_payload(&frame.body)
    {
        let order = format!("{order:?}");
        let name = order.split('(').next().unwrap_or_default();
        at(&format!("{way}.{name}"));
    }
}

/// This frame is about to be sent to a coordinator.
pub fn at_coordinator(frame: &Frame) -> Strike {
    if wanted().is_some()
        && frame.header.op == Op::Mail
        && let Ok(mail) = Mail::read(frame)
        && let Ok(Order::MoveReported(reported)) = Order::from_payload(&mail.order)
        && let MoveState::In(phase) = reported.state
    {
        return at(&format!("coordinator.{phase}"));
    }
    Strike::None
}

/// This is that point.
pub fn at(point: &str) -> Strike {
    static STRUCK: AtomicBool = AtomicBool::new(false);
    let action = match wanted() {
        Some((wanted, action)) if wanted == point => action.as_str(),
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
    match action {
        "kill" => signal(Signal::KILL),
        "stop" => signal(Signal::STOP),
        "cut" => signal(Signal::USR1),
        "end" => return Strike::Coordinator(Signal::KILL),
        "hold" => return Strike::Coordinator(Signal::STOP),
        "task" => return Strike::Task,
        "break" => return Strike::Break,
        other => log::warn!("no fault is called '{other}'"),
    }
    Strike::None
}
