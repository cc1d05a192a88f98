//! What can go wrong in the console, and the exit code that says so.

use std::{io, path::PathBuf, time::Duration};
use vm_wire::{CodecError, FrameError, task::Failed};

/// All went well.
pub const DONE: u8 = 0;
/// The machine refused, or the task of `check` cannot be moved.
pub const FAILED: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// No daemon could be reached, or the connection to it was lost.
pub const UNREACHABLE: u8 = 3;
/// `image run`: the process cannot be brought back here, and nothing was started.
pub const NOT_RESTORED: u8 = vm_image::CANNOT_RESTORE as u8;
/// A program that signal N ended: this plus N, as shells have it.
pub const SIGNALLED: u8 = 128;
/// Interrupted by the user.
pub const INTERRUPTED: u8 = SIGNALLED + libc::SIGINT as u8;

/// How a `run`, or a `restart` that shows what its application writes, ends otherwise than by the exit
/// code or a signal of its program. Each way has an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunFailure {
    /// The command line is wrong.
    Usage,
    /// The application has ended with a checkpoint and can go on later. The code is `EX_TEMPFAIL`.
    Saved,
    /// The console's host leaves the machine, and the application does not end with it.
    RunsOn,
    /// The machine did not take the program: a limit, a host that drains.
    Refused,
    /// There is a checkpoint to go on from, and it cannot be brought back.
    NotBroughtBack,
    /// There is no daemon, or it failed, or the master was lost with its host.
    Machine,
    /// The program is there, and this host cannot execute it.
    NotExecutable,
    /// The program, or its working directory, is not there.
    NoSuchProgram,
    /// Interrupted by the user before the program was started.
    Interrupted,
    /// Nobody reads what the application writes any more.
    ReaderGone,
}

/// The words before the cause where a `run` failed after its program had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun;

impl std::fmt::Display for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "while the program ran")
    }
}

/// The exit code of each, and what it means: as the user guide and `vm help run` have it.
const RUN_FAILURES: [(RunFailure, u8, &str); 10] = [
    (RunFailure::Usage, USAGE, "the command line is wrong"),
    (
        RunFailure::Saved,
        75,
        "it ended with a checkpoint, and can go on later",
    ),
    (
        RunFailure::RunsOn,
        122,
        "it runs on, but this host leaves the machine",
    ),
    (RunFailure::Refused, 123, "the machine refused to start it"),
    (
        RunFailure::NotBroughtBack,
        NOT_RESTORED,
        "its checkpoint cannot be brought back",
    ),
    (
        RunFailure::Machine,
        125,
        "the machine failed: no daemon, or a lost one",
    ),
    (
        RunFailure::NotExecutable,
        126,
        "the program is there and cannot be executed",
    ),
    (RunFailure::NoSuchProgram, 127, "there is no such program"),
    (
        RunFailure::Interrupted,
        INTERRUPTED,
        "interrupted before the program was started",
    ),
    (
        RunFailure::ReaderGone,
        SIGNALLED + libc::SIGPIPE as u8,
        "nobody reads the output any more",
    ),
];

impl RunFailure {
    /// The console's exit code.
    pub fn code(self) -> u8 {
        let row = RUN_FAILURES.iter().find(|(way, ..)| *way == self);
        row.map_or(FAILED, |(_, code, _)| *code)
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

    /// The console's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            ClientError::Refused(_) | ClientError::Unexpected | ClientError::Late(_) => FAILED,
            ClientError::Interrupted => INTERRUPTED,
            _ => UNREACHABLE,
        }
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

/// The exit code for an error of any command.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<ClientError>() {
        Some(error) => error.exit_code(),
        None if error.is::<UsageError>() => USAGE,
        None => FAILED,
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

#[cfg(test)]
mod tests {
    use super::*;
    use vm_wire::task::FailKind;

    #[test]
    fn each_end_of_a_run_has_a_code_of_its_own_which_guide_and_help_have_in_one_table() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/user-guide.md");
        let guide = std::fs::read_to_string(guide).expect("the guide");
        let help = crate::execute::help(&["run"]).expect("a page");
        for (way, code, meaning) in RUN_FAILURES {
            assert_eq!(way.code(), code);
            assert!(guide.contains(&format!("| {code} | {meaning}")), "{code}");
            assert!(help.contains(&format!("  {code:<4} {meaning}\n")), "{code}");
        }
        let codes = RUN_FAILURES.map(|(_, code, _)| code);
        assert!(codes.is_sorted_by(|one, next| one < next), "{codes:?}");
    }

    #[test]
    fn each_failure_has_its_documented_exit_code() {
        let no = Failed::new(FailKind::NoSuchTask, "no task t1.9");
        let code = |error: ClientError| exit_code(&anyhow::Error::new(error).context("while"));
        assert_eq!(code(ClientError::Refused(no)), 1);
        assert_eq!(
            code(ClientError::NoDaemon {
                socket: "/x".into()
            }),
            3
        );
        assert_eq!(code(ClientError::Lost(None)), 3);
        assert_eq!(code(ClientError::Interrupted), 130);
        assert_eq!(exit_code(&anyhow::anyhow!("other")), 1);
        assert_eq!(exit_code(&UsageError("what?".to_owned()).into()), 2);
    }
}
