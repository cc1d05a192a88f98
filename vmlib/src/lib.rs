//! The task library of the virtual parallel machine.
//!
//! A program that calls [`init()`] is a *task* of a machine that may have many hosts. It starts other
//! tasks anywhere in it, sends them messages, joins groups with them, and is told when one ends.
//! Messages from one task to another arrive exactly once and in order, over whatever breaks and is
//! made again between the hosts.
//!
//! ```no_run
//! use vmlib::{ANY, Spawn};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let vm = vmlib::init()?;
//! match vm.parent() {
//!     // Started with `vm run`: start four more of this program, and greet them.
//!     None => {
//!         let me = std::env::current_exe()?.display().to_string();
//!         let workers = vm.spawn(&Spawn::new(me).count(4))?;
//!         vm.multicast(&workers, 1, "hello")?;
//!         for _ in &workers {
//!             let answer = vm.recv(ANY, 2)?;
//!             println!("{} answers {}", answer.from(), answer.value::<String>()?);
//!         }
//!     }
//!     Some(parent) => {
//!         let greeting: String = vm.recv(parent, 1)?.value()?;
//!         vm.send(parent, 2, &format!("{greeting} from number {}", vm.index()))?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The interface on one page
//!
//! All of it is methods of [`Task`] and [`Request`]; each waits until it is done, except those that start
//! something.
//!
//! | to | call |
//! |---|---|
//! | begin, end | [`init()`], [`Task::exit`], [`Task::clone_handle`] for another thread |
//! | know who one is | [`Task::tid`], [`Task::parent`], [`Task::app`], [`Task::index`], [`Task::siblings`] |
//! | know where one is | [`Task::host`], [`Task::hosts`], [`Task::machine`] |
//! | start, end, signal tasks | [`Task::spawn`], [`Task::kill`], [`Task::signal`] |
//! | move tasks, or this one, elsewhere | [`Task::move_task`], [`Task::can_move`], [`Task::drain`] |
//! | save all tasks of this application | [`Task::checkpoint`] |
//! | give one's state, to go on on unlike hosts | [`Task::portable`], [`Task::safe_point`], [`Task::recv_at`], [`Task::next_at`], [`Task::checkpoint_at`] |
//! | close and open again what cannot be saved, around each save | [`Task::around_saves`] |
//! | suspend an application, and resume it | [`Task::suspend`], [`Task::resume`] |
//! | send a value, bytes, numbers | [`Task::send`], [`Task::send_bytes`], [`Task::send_slice`] |
//! | ... to several | [`Task::multicast`], [`Task::multicast_bytes`], [`Task::multicast_slice`] |
//! | receive | [`Task::recv`], [`Task::try_recv`], [`Task::recv_timeout`], [`Task::probe`] |
//! | receive by a condition of one's own | [`Task::recv_if`] |
//! | have a function called with messages, within any call | [`Task::add_handler`], [`Task::remove_handler`] |
//! | keep the messages of a library apart | [`Task::context`], [`Task::in_context`], [`Task::context_id`], [`Spawn::in_context`] |
//! | start to send and receive, and compute meanwhile | [`Task::start_send`], [`Task::start_send_bytes`], [`Task::start_send_slice`], [`Task::start_recv`] |
//! | ... and complete that | [`Request::test`], [`Request::wait`], [`Request::cancel`], [`Task::wait_any`], [`Task::wait_all`] |
//! | ... into memory of the program, with the fewest copies | [`Task::recv_into`], [`Task::recv_slice_into`], [`Task::recv_into_timeout`], [`Task::recv_slice_into_timeout`] |
//! | read what was received | [`Message::value`], [`Message::bytes`], [`Message::slice`], [`Message::read_into`] |
//! | leave a call that waits | [`interruptible`] |
//! | be told | [`Task::watch_task`], [`Task::watch_hosts`], [`Task::recv_event`], [`Task::next`] |
//! | work as a group | [`Task::join`], [`Task::leave`], [`Task::group`], [`Task::await_members`], [`Task::refresh`], [`Task::barrier`] |
//! | compute as a group | [`Task::broadcast`], [`Task::reduce`], [`Task::allreduce`], [`Task::scan`], [`Task::gather`], [`Task::scatter`], [`Task::allgather`], [`Task::alltoall`]; all of them in [`collectives`] |
//!
//! # Receiving by source and tag
//!
//! Each side of a selection may be [`ANY`], or for the calls that return a message a list. What is not
//! selected stays in the inbox, in order:
//!
//! ```no_run
//! # use vmlib::{ANY, Task};
//! # use std::time::Duration;
//! # fn example(vm: &Task, left: vmlib::Tid) -> Result<(), Box<dyn std::error::Error>> {
//! const ROW: i32 = 1;
//! const STOP: i32 = 2;
//! let mut row = vec![0.0f64; 1000];
//! while vm.probe(ANY, STOP)?.is_none() {
//!     // Into the program's own memory; the row may be shorter than that.
//!     let count = vm.recv_slice_into(left, ROW, &mut row)?.len / size_of::<f64>();
//!     println!("{:?}", &row[..count]);
//! }
//! let late = vm.recv_timeout(left, ROW, Duration::from_secs(1))?;
//! let first = vm.recv(&[left, vm.tid()], &[ROW, STOP])?;
//! let long = vm.recv_if(ANY, ROW, None, |envelope| envelope.len > 1_000_000)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Which way a message takes
//!
//! The program does not choose, and all promises hold on every way.
//!
//! | way | used |
//! |---|---|
//! | by the daemons | always there: for the first 8 messages between two tasks, or the first long one, and whenever no other way is open. Any length; the receiver may be computing, frozen or on its way to another host |
//! | ring | between two tasks of one application on one host: memory that both map. Short messages take about a microsecond |
//! | the sender's memory | the same pair, from 32 KiB on: the receiver copies a message out of the memory of the sender, which waits up to a millisecond for that. Then, and where the system refuses it, the message goes another way |
//! | direct connection | between two tasks of one application on two hosts: a TCP connection to the daemon's port, with keys of its own |
//!
//! [`Task::recv`] returns the message in fresh memory. [`Task::recv_into`] has the library copy it into a
//! buffer of the program: from the sender's memory in one copy, from a ring or a connection without a
//! detour. A message that came before the call is copied once more, out of the inbox. A long message costs
//! least that way, because the system has to clear fresh memory page by page.
//!
//! A ring or connection is closed when one of its tasks moves or ends, or when the pair has not used it for
//! 4 to 8 s. Portable tasks have none. The page `docs/protocol.md` has the rules, `docs/performance.md` the
//! figures.
//!
//! # Computing while messages travel
//!
//! ```no_run
//! # fn example(vm: &vmlib::Task, next: vmlib::Tid, inner: &mut [f64], border: &[f64])
//! # -> Result<(), Box<dyn std::error::Error>> {
//! const BORDER: i32 = 1;
//! let mut requests = [
//!     vm.start_recv(next, BORDER)?,
//!     vm.start_send_slice(next, BORDER, border)?,
//! ];
//! inner.iter_mut().for_each(|value| *value *= 0.5);
//! for completed in vm.wait_all(&mut requests)? {
//!     if let Some(message) = completed.message() {
//!         println!("{} numbers of the neighbour", message.slice::<f64>()?.len());
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A receive that was started has its place in the order of matching: no later receive overtakes it.
//! Requests go on in every call, and in no other place. To drop a request cancels a receive, whose
//! message stays in the inbox; the message of a send is delivered all the same. A move, a checkpoint and
//! a restart leave the requests of a task as they are. A portable task goes on without its requests, and
//! loses no message: see [`Request`].
//!
//! # A master that outlives its workers
//!
//! ```no_run
//! # use vmlib::{ANY, Event, Incoming, Task};
//! # fn example(vm: &Task, workers: &[vmlib::Tid]) -> Result<(), Box<dyn std::error::Error>> {
//! for worker in workers {
//!     vm.watch_task(*worker)?;
//! }
//! let mut alive = workers.len();
//! while alive > 0 {
//!     match vm.next(ANY, ANY, None)? {
//!         Some(Incoming::Message(result)) => println!("{} bytes", result.len()),
//!         Some(Incoming::Event(Event::TaskEnded { tid, status })) => {
//!             println!("{tid} {status}");
//!             alive -= 1;
//!         }
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Groups
//!
//! ```no_run
//! # fn example(vm: &vmlib::Task) -> Result<(), Box<dyn std::error::Error>> {
//! let mut group = vm.join("grid")?;
//! vm.await_members(&mut group, 4)?;
//! let mut size = if group.instance() == 0 { 512u32 } else { 0 };
//! vm.broadcast(&group, 0, &mut size)?;
//! let greatest = vm.allreduce(&group, vmlib::Op::Max, &[f64::from(size)])?;
//! vm.barrier(&mut group)?;
//! vm.leave(group)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Moving
//!
//! A task is moved without its knowledge, by `vm move` or `vm drain`. A program that knows better
//! where its tasks should be may say so:
//!
//! ```no_run
//! # fn example(vm: &vmlib::Task, worker: vmlib::Tid) -> Result<(), Box<dyn std::error::Error>> {
//! for reason in vm.can_move(worker)? {
//!     println!("{worker} stays: {reason}");
//! }
//! // To where there is most room; this task goes to a host of its choice.
//! let report = vm.move_task(worker, None)?;
//! println!("{worker} is on {} after {} ms", report.to, report.total_us / 1000);
//! vm.move_task(vm.tid(), Some("node7"))?;
//! // node7 is to be switched off: everybody leaves, this task too.
//! let report = vm.drain("node7")?;
//! for (tid, why) in &report.refused {
//!     println!("{tid} is still there: {why}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Checkpoints
//!
//! `vm run --checkpoint-every 5m` has the machine save an application again and again, at any
//! moment. A program that knows when little is worth saving, or that has just finished what must not
//! be lost, asks for a checkpoint itself. When the application is brought back from it, that
//! call returns once more:
//!
//! ```no_run
//! # use vmlib::{Checkpointed, Task};
//! # fn example(vm: &Task) -> Result<(), Box<dyn std::error::Error>> {
//! # let (mut step, last) = (0, 100);
//! while step < last {
//!     step += 1;
//!     match vm.checkpoint()? {
//!         Checkpointed::Saved(report) => println!("{} ms", report.freeze_us / 1000),
//!         Checkpointed::Restored => println!("goes on after step {step} on {}", vm.host()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Portable state
//!
//! An image goes back to a host of the same architecture. A program whose tasks are to go on on any
//! host gives its state itself:
//!
//! ```no_run
//! # use serde::{Deserialize, Serialize};
//! # use vmlib::{ANY, Task};
//! #[derive(Serialize, Deserialize, Default)]
//! struct Sum {
//!     terms: u64,
//!     sum: f64,
//! }
//!
//! # fn example(vm: &Task) -> Result<(), Box<dyn std::error::Error>> {
//! let mut state = vm.portable(Sum::default)?.state;
//! while state.terms < 1_000_000 {
//!     // Here the value is whole; when it is saved, another process goes on from here.
//!     vm.safe_point(&state)?;
//!     state.sum += 1.0 / (state.terms as f64 + 1.0);
//!     state.terms += 1;
//! }
//! // So it does from here, as long as nothing was received.
//! let ask = vm.recv_at(&state, ANY, 1)?;
//! vm.send(ask.from(), 2, &state.sum)?;
//! # Ok(())
//! # }
//! ```
//!
//! # What to know
//!
//! - A send that finds its receiver 1 MiB behind waits for it, and takes in what comes meanwhile.
//! - Nothing works in the background: no thread, no timer. Acknowledgements are sent from within
//!   calls, so a task that computes for long delays, but never loses, what it sent before.
//! - When the daemon of the host ends, so does the task, at its next call or at once, with
//!   [`STATUS_DAEMON_LOST`].
//! - A child that the program forks is no task; one that it executes may become one only by a
//!   daemon.
//! - glibc is needed (see the module `leave`).
//!
//! # How it is built
//!
//! A call is an attempt, repeated until it is done (`primitive`). What crosses the sockets is in
//! `link`, what concerns the process in `interrupt`, the start and end in `init` and `leave`.
//! Order, acknowledgement and credit are in [`vm_endpoint::Endpoint`], the same code that the
//! simulator runs.

mod task;

mod init;
mod leave;
mod send;
mod started;

mod recv;
mod recv_into;

mod nonblocking;

mod message;
mod number;

mod awaited;
mod barrier;
mod barrier_message;
mod callbacks;
mod checkpoints;
pub mod collectives;
mod context;
mod functions;
mod group;
mod handlers;
mod moves;
mod notify;
mod portable;
mod save_in_call;
mod spawn;

mod checkpointer;
mod clock;
mod coordinator;
mod daemon_lost;
mod freeze;
#[cfg(target_arch = "x86_64")]
mod image;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_image.rs"]
mod image;
mod interrupt;
mod interrupt_socket;
mod interruption;
mod link;
mod orders;
mod portable_checkpointer;
mod portable_state;
mod primitive;
mod receive;
mod request;
mod requests;
mod resend;
mod ring;
mod two_phase;

mod error;

pub use bytes::Bytes;
pub use callbacks::Callbacks;
pub use checkpoints::Checkpointed;
pub use collectives::{Op, Operands};
pub use context::ContextId;
pub use daemon_lost::STATUS_DAEMON_LOST;
pub use error::{
    ExitError, GroupError, InitError, LinkError, PortableError, RecvError, RecvIntoError,
    RequestError, SendError, SpawnError, StartError, TaskError, ValueError, WaitError,
};
pub use group::{Group, Members};
pub use handlers::Handler;
pub use init::init;
pub use interruption::interruptible;
pub use message::{ANY, Any, Envelope, Message, Number, Source, Sources, Tag, Tags};
pub use nonblocking::{Completed, Request};
pub use notify::Event;
pub use portable::Begun;
pub use recv::Incoming;
pub use spawn::{Host, Spawn};
pub use task::Task;
pub use vm_wire::{
    HostId, MachineId, Tid,
    agreed::{ExitStatus, HostFacts},
    checkpoint::{CheckpointReport, RestartReport},
    peer::{DrainReport, MoveReport, MoveWay},
    task::{FailKind, Failed},
};

#[cfg(test)]
mod tests;
