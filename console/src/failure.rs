//! What can go wrong in the console. The exit code that says so is in [`exit`](crate::exit).

use std::{io, path::PathBuf, time::Duration};
use vm_wire::{CodecError, FrameError, task::Failed};

/// The words before the cause where a `run` failed after its program had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun;

impl std::fmt::Display for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "while the program ran")
    }
}

/// A talk with the daemon that came to no good end.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens, or nothing is there.
    #[error(
        "no daemon at {}: start one with 'vmd', or give its folder with --dir",
        socket.display()
    )]
    NoDaemon {
        /// Where it should be.
        socket: PathBuf,
    },
    /// The socket is there but cannot be used.
    #[error("cannot use {}: {cause}", socket.display())]
    Socket {
        /// Where it is.
        socket: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Others could have put a socket of their own there.
    #[error("the folder {} is not safe: {why}; make it yours alone (chmod 700), or give another --dir", dir.display())]
    Folder {
        /// The daemon's folder.
        dir: PathBuf,
        /// What is wrong with it.
        why: vm_local::NotPrivate,
    },
    /// Another user's daemon. It would see the secret and run this user's commands as its own.
    #[error("the daemon at {} belongs to user {uid}, not to you: give another --dir", socket.display())]
    Foreign {
        /// Where it is.
        socket: PathBuf,
        /// Who runs it.
        uid: u32,
    },
    /// The daemon closed the connection, or it broke.
    #[error("the daemon has ended or closed the connection; its log tells why{}", .0.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default())]
    Lost(Option<io::Error>),
    /// It does not speak our protocol.
    #[error("what answers is no vmd")]
    Frame(#[from] FrameError),
    /// It does not speak our protocol.
    #[error("what answers is no vmd of this release")]
    Codec(#[from] CodecError),
    /// An answer that does not belong to the question.
    #[error("the daemon answered something else than was asked: is it of another release?")]
    Unexpected,
    /// No answer in the time that the caller gave.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The user does not want to wait any longer.
    #[error("interrupted")]
    Interrupted,
    /// The machine said no.
    #[error(transparent)]
    Refused(#[from] Failed),
    /// The system said no while the console waited.
    #[error("cannot wait for the daemon: {0}")]
    Wait(io::Error),
}

/// A command line that says nothing that can be done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl UsageError {
    /// A word for programs.
    pub const KIND: &str = "Usage";

    /// What the parser has against a line, as one sentence.
    pub fn of_parser(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let what = text.split("\n\n").next().unwrap_or_default();
        let what = what.strip_prefix("error: ").unwrap_or(what);
        UsageError(what.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl ClientError {
    /// Whether the daemon is there no more. After an order to end, that is success.
    pub fn is_lost(&self) -> bool {
        matches!(self, ClientError::Lost(_))
    }

    /// A word for programs: the daemon's kind of failure, or ours.
    pub fn kind(&self) -> String {
        match self {
            ClientError::NoDaemon { .. } => "NoDaemon".to_owned(),
            ClientError::Socket { .. } => "Socket".to_owned(),
            ClientError::Folder { .. } => "Folder".to_owned(),
            ClientError::Foreign { .. } => "Foreign".to_owned(),
            ClientError::Lost(_) => "Lost".to_owned(),
            ClientError::Frame(_) | ClientError::Codec(_) | ClientError::Unexpected => {
                "Protocol".to_owned()
            }
            ClientError::Late(_) => "Late".to_owned(),
            ClientError::Interrupted => "Interrupted".to_owned(),
            ClientError::Refused(failed) => format!("{:?}", failed.kind),
            ClientError::Wait(_) => "System".to_owned(),
        }
    }
}

/// A word for programs, for an error of any command.
pub fn kind(error: &anyhow::Error) -> String {
    match error.downcast_ref::<ClientError>() {
        Some(error) => error.kind(),
        None if error.is::<UsageError>() => UsageError::KIND.to_owned(),
        None => "Failed".to_owned(),
    }
}

/// Whether the error is that whoever read our output has stopped reading: then there is nobody
/// to tell, and nothing went wrong.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
