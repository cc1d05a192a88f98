//! The errors of the console. Their exit codes are in [`exit`](crate::exit).

use std::{io, path::PathBuf, time::Duration};
use vm_wire::{CodecError, FrameError, task::Failed};

/// The context of an error of a `run` whose program had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun;

impl std::fmt::Display for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "while the program ran")
    }
}

/// Why a request to the daemon failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens at the socket, or there is no socket.
    #[error(
        "no daemon at {}: start one with 'vmd', or give its folder with --dir",
        socket.display()
    )]
    NoDaemon {
        /// The socket of the daemon.
        socket: PathBuf,
    },
    /// The socket exists but cannot be used.
    #[error("cannot use {}: {cause}", socket.display())]
    Socket {
        /// The socket of the daemon.
        socket: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
    /// Another user could have put a socket there.
    #[error("the folder {} is not safe: {why}; make it private (chmod 700), or give another --dir", dir.display())]
    Folder {
        /// The daemon's folder.
        dir: PathBuf,
        /// Why the folder is not private.
        why: vm_local::NotPrivate,
    },
    /// The daemon of another user, which would run this user's programs as that user.
    #[error("the daemon at {} belongs to user {uid}, not to you: give another --dir", socket.display())]
    Foreign {
        /// The socket of the daemon.
        socket: PathBuf,
        /// The user of that daemon.
        uid: u32,
    },
    /// The daemon closed the connection, or the connection failed.
    #[error("the daemon has ended or closed the connection: see its log{}", .0.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default())]
    Lost(Option<io::Error>),
    /// The process behind the socket does not speak the protocol of daemons.
    #[error("the process listening on {} is not a vmd daemon", socket.display())]
    NotDaemon {
        /// The socket of the process.
        socket: PathBuf,
    },
    /// The daemon's first reply cannot be read.
    #[error("the process listening on {} is not a vmd daemon of this release", socket.display())]
    OtherRelease {
        /// The socket of the daemon.
        socket: PathBuf,
    },
    /// The daemon sent bytes that are no frame.
    #[error("the daemon sent an invalid frame: {0}")]
    Frame(#[from] FrameError),
    /// The daemon sent a frame whose body is not valid.
    #[error("the daemon sent an invalid message: {0}")]
    Codec(#[from] CodecError),
    /// A reply that does not belong to the request.
    #[error("the daemon's reply does not belong to the request: is the daemon of another release?")]
    Unexpected,
    /// No reply within the caller's time.
    #[error("no reply within {} s", .0.as_secs())]
    Late(Duration),
    /// The user interrupted the wait.
    #[error("interrupted")]
    Interrupted,
    /// The machine refused the request.
    #[error(transparent)]
    Refused(#[from] Failed),
    /// A wait for the daemon failed.
    #[error("cannot wait for the daemon: {0}")]
    Wait(io::Error),
}

/// A command line that cannot be carried out as it is.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl UsageError {
    /// The kind of this error, for programs.
    pub const KIND: &str = "Usage";

    /// The parser's error as one sentence.
    pub fn of_parser(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let what = text.split("\n\n").next().unwrap_or_default();
        let what = what.strip_prefix("error: ").unwrap_or(what);
        UsageError(what.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl ClientError {
    /// Whether the daemon is lost. After a request to end it, that is success.
    pub fn is_lost(&self) -> bool {
        matches!(self, ClientError::Lost(_))
    }

    /// The kind of this error, for programs: the daemon's, or this console's.
    pub fn kind(&self) -> String {
        match self {
            ClientError::NoDaemon { .. } => "NoDaemon".to_owned(),
            ClientError::Socket { .. } => "Socket".to_owned(),
            ClientError::Folder { .. } => "Folder".to_owned(),
            ClientError::Foreign { .. } => "Foreign".to_owned(),
            ClientError::Lost(_) => "Lost".to_owned(),
            ClientError::NotDaemon { .. }
            | ClientError::OtherRelease { .. }
            | ClientError::Frame(_)
            | ClientError::Codec(_)
            | ClientError::Unexpected => "Protocol".to_owned(),
            ClientError::Late(_) => "Late".to_owned(),
            ClientError::Interrupted => "Interrupted".to_owned(),
            ClientError::Refused(failed) => format!("{:?}", failed.kind),
            ClientError::Wait(_) => "System".to_owned(),
        }
    }
}

/// The kind of an error of any command, for programs.
pub fn kind(error: &anyhow::Error) -> String {
    match error.downcast_ref::<ClientError>() {
        Some(error) => error.kind(),
        None if error.is::<UsageError>() => UsageError::KIND.to_owned(),
        None => "Failed".to_owned(),
    }
}

/// Whether the reader of the output has gone: then nothing is shown, and the command has not
/// failed.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
