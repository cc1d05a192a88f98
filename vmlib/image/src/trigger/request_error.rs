//! Why a process did not give its image.

use crate::frozen::signal::TRIGGER;
use rustix::io::Errno;
use std::{io, time::Duration};

/// What the shared library's file is called.
pub const LIBRARY: &str = "libvm_image";

/// How long a process may take to answer the signal, and to reply; and how long the process waits
/// for the requester.
pub const ANSWER: Duration = Duration::from_secs(5);

/// Why a process did not give its image.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// What the kernel tells of it may not be read, or it may not be sent signals.
    #[error("process {pid} cannot be asked: {cause}")]
    NotAllowed {
        /// Which.
        pid: i32,
        /// What the system says.
        cause: io::Error,
    },
    /// The signal would end it.
    #[error(
        "process {pid} ({name}) cannot be saved: {LIBRARY} is not in it, so that signal {TRIGGER} \
         would end it; it was not sent. {hint}"
    )]
    NoHandler {
        /// Which.
        pid: i32,
        /// Its name.
        name: String,
        /// What to do.
        hint: &'static str,
    },
    /// It uses the signal itself.
    #[error(
        "process {pid} ({name}) cannot be saved from outside: it has a handler of its own for \
         signal {TRIGGER}"
    )]
    OwnHandler {
        /// Which.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// The signal would wait for ever.
    #[error(
        "process {pid} ({name}) cannot be saved from outside: all its threads block signal {TRIGGER}"
    )]
    Blocked {
        /// Which.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// It does not run.
    #[error("process {pid} ({name}) {what}")]
    DoesNotRun {
        /// Which.
        pid: i32,
        /// Its name.
        name: String,
        /// What it does in place of that.
        what: &'static str,
    },
    /// It got the signal and did nothing.
    #[error(
        "process {pid} ({name}) has not answered signal {TRIGGER} within {} seconds: it has put a \
         handler of its own in the place of {LIBRARY}'s, or is in another network namespace",
        ANSWER.as_secs()
    )]
    Silent {
        /// Which.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// It ended before its image was whole.
    #[error("process {0} ended before its image was whole")]
    Ended(i32),
    /// The process has refused, and runs on.
    #[error("process {pid} was not saved, and runs on: {why}")]
    Refused {
        /// Which.
        pid: i32,
        /// Its reason.
        why: String,
    },
    /// The requester has given up the request.
    #[error("interrupted")]
    Interrupted,
    /// Something that should work did not.
    #[error("{step}: {cause}")]
    System {
        /// What was being done.
        step: &'static str,
        /// What the system says.
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
