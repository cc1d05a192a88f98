//! The coordinator of an application: its decisions, and the process that runs them.
//!
//! [`Coordinator`] is a pure state machine: it drives the moves of an application's tasks and makes
//! the application's checkpoints. It does no I/O and reads no clock, so the simulator runs the same
//! code. [`run`] is the shell around it.
//!
//! The process has one socket, to its daemon, and nothing else: no file, no thread, no signal handler.
//! So the same code serves in a copy of a master, forked by the task library before user code runs,
//! and in a process that a daemon has started from its own program. The process ends when the socket
//! is closed: with its application, when another coordinator is appointed, or with its daemon.
//!
//! A process that was forked by a master gets the daemon as its parent when the master ends, because
//! the daemon adopts the orphans of its tasks. Once the daemon is the parent, the coordinator asks the
//! kernel to end it together with the daemon, also while it is stopped. The processes of a master from
//! a shell are not adopted by the daemon: there only the end of the socket ends the coordinator.

mod decisions;
mod process;

pub use decisions::Coordinator;
pub use process::{NAME, run};
