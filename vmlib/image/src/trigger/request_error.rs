//! Why another process did not give its image.

use crate::frozen::signal::TRIGGER;
use rustix::io::Errno;
use std::{io, time::Duration};

/// The name of the shared library's file, without its extension.
pub const LIBRARY: &str = "libvm_image";

/// The time limit for a process to connect after the signal, and to reply; also the time for which
/// the process waits for the requester.
pub const ANSWER: Duration = Duration::from_secs(5);

/// Why another process did not give its image.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No process has this id.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// The kernel does not let this process read the state of the other process, or signal it.
    #[error("cannot request an image of process {pid}: {cause}")]
    NotAllowed {
        /// The process id.
        pid: i32,
        /// The error that the system reported.
        cause: io::Error,
    },
    /// The process has no handler for the signal, which would end it.
    #[error(
        "process {pid} ({name}) cannot be saved: {LIBRARY} is not in it, so that signal {TRIGGER} \
         would end it; it was not sent. {hint}"
    )]
    NoHandler {
        /// The process id.
        pid: i32,
        /// The name of the process.
        name: String,
        /// The remedy, as a sentence.
        hint: &'static str,
    },
    /// The process has a handler of its own for the signal.
    #[error(
        "process {pid} ({name}) cannot be saved from outside: it has a handler of its own for \
         signal {TRIGGER}"
    )]
    OwnHandler {
        /// The process id.
        pid: i32,
        /// The name of the process.
        name: String,
    },
    /// All threads of the process block the signal, so it would stay pending.
    #[error(
        "process {pid} ({name}) cannot be saved from outside: all its threads block signal {TRIGGER}"
    )]
    Blocked {
        /// The process id.
        pid: i32,
        /// The name of the process.
        name: String,
    },
    /// The process has ended, is stopped, or has not started to run.
    #[error("process {pid} ({name}) {what}")]
    DoesNotRun {
        /// The process id.
        pid: i32,
        /// The name of the process.
        name: String,
        /// The state of the process, as the rest of the sentence.
        what: &'static str,
    },
    /// The process took the signal and did not connect.
    #[error(
        "process {pid} ({name}) has not handled signal {TRIGGER} within {} seconds: it has put a \
         handler of its own in the place of {LIBRARY}'s, or is in another network namespace",
        ANSWER.as_secs()
    )]
    Silent {
        /// The process id.
        pid: i32,
        /// The name of the process.
        name: String,
    },
    /// The process ended before its image was whole.
    #[error("process {0} ended before its image was whole")]
    Ended(i32),
    /// The process refused the save, and runs on.
    #[error("process {pid} was not saved, and runs on: {why}")]
    Refused {
        /// The process id.
        pid: i32,
        /// The reason of the refusal.
        why: String,
    },
    /// The requester was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// A system call of a step failed.
    #[error("{step}: {cause}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The error that the system reported.
        cause: io::Error,
    },
}

pub fn system(step: &'static str, error: Errno) -> RequestError {
    RequestError::System {
        step,
        cause: error.into(),
    }
}

pub fn not_allowed(pid: i32, cause: io::Error) -> RequestError {
    match cause.kind() {
        io::ErrorKind::NotFound => RequestError::NoProcess(pid),
        _ => RequestError::NotAllowed { pid, cause },
    }
}
