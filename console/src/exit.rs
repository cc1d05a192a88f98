//! Exit codes: one for each way in which a command, or a run, ends.

use crate::failure::{Begun, ClientError, UsageError, is_broken_pipe};
use vm_wire::{agreed::ExitStatus, task::FailKind};

/// The command succeeded.
pub const DONE: u8 = 0;
/// The machine refused, or the task of `check` cannot be moved.
pub const FAILED: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// No daemon could be reached, or the connection to it was lost.
pub const UNREACHABLE: u8 = 3;
/// `image run`: the process cannot be restored here, and nothing was started.
pub const NOT_RESTORED: u8 = vm_image::CANNOT_RESTORE as u8;
/// A program that signal N ended: this plus N, as in shells.
pub const SIGNALLED: u8 = 128;
/// Interrupted by the user.
pub const INTERRUPTED: u8 = SIGNALLED + libc::SIGINT as u8;

/// The ways in which a `run`, or an attached `restart`, ends without an exit code or a signal of
/// its program. Each way has an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunFailure {
    /// The command line is wrong.
    Usage,
    /// The application has ended with a checkpoint and can be restarted. The code is `EX_TEMPFAIL`.
    Saved,
    /// The console's host leaves the machine, and the application does not end with it.
    RunsOn,
    /// The machine refused to start the program: a limit, a draining host.
    Refused,
    /// The application has a checkpoint, and cannot be restarted from it.
    NotRestarted,
    /// There is no daemon, or the daemon failed, or the master was lost with its host.
    Machine,
    /// The program exists, and this host cannot execute it.
    NotExecutable,
    /// The program, or its working directory, does not exist.
    NoSuchProgram,
    /// Interrupted by the user before the program was started.
    Interrupted,
    /// The reader of the application's output has gone.
    ReaderGone,
}

/// The exit code of each failure, and its meaning as in the user guide and in `vm help run`.
const RUN_FAILURES: [(RunFailure, u8, &str); 10] = [
    (RunFailure::Usage, USAGE, "the command line is wrong"),
    (
        RunFailure::Saved,
        75,
        "the application ended with a checkpoint, and can be restarted",
    ),
    (
        RunFailure::RunsOn,
        122,
        "the application runs on, but this host leaves the machine",
    ),
    (
        RunFailure::Refused,
        123,
        "the machine refused to start the program",
    ),
    (
        RunFailure::NotRestarted,
        NOT_RESTORED,
        "the application cannot be restarted from its checkpoint",
    ),
    (
        RunFailure::Machine,
        125,
        "the machine failed: no daemon, or a lost daemon",
    ),
    (
        RunFailure::NotExecutable,
        126,
        "the program exists and cannot be executed",
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

/// The exit code of a run whose master ended with `status`; without one, the application runs on.
pub fn of_run(status: Option<ExitStatus>) -> u8 {
    let failure = match status {
        // As the kernel does with the status of a process, only the low eight bits are kept.
        Some(ExitStatus::Left(code) | ExitStatus::Code(code)) => return code as u8,
        Some(ExitStatus::Signal(signal)) => return SIGNALLED.wrapping_add(signal as u8),
        // The program was found, and then not executed.
        Some(ExitStatus::NotStarted) => RunFailure::NotExecutable,
        Some(ExitStatus::Suspended) => RunFailure::Saved,
        Some(ExitStatus::HostLost | ExitStatus::Unknown) => RunFailure::Machine,
        Some(ExitStatus::RolledBack) => RunFailure::NotRestarted,
        None => RunFailure::RunsOn,
    };
    failure.code()
}

/// The exit code of a `run` that failed before its program ran, or because of the machine.
/// `is_restart`: the application was to be restarted from a checkpoint.
pub fn of_failed_run(error: &anyhow::Error, is_restart: bool) -> u8 {
    let has_begun = error.downcast_ref::<Begun>().is_some();
    let failure = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(_)) if has_begun => RunFailure::Machine,
        Some(ClientError::Refused(failed)) => match failed.kind {
            _ if is_restart => RunFailure::NotRestarted,
            FailKind::NoSuchProgram => RunFailure::NoSuchProgram,
            FailKind::NotExecutable => RunFailure::NotExecutable,
            FailKind::HostLost | FailKind::System => RunFailure::Machine,
            _ => RunFailure::Refused,
        },
        Some(ClientError::Interrupted) => RunFailure::Interrupted,
        // The exit code of a local program whose reader has gone.
        _ if is_broken_pipe(error) => RunFailure::ReaderGone,
        None if error.is::<UsageError>() => RunFailure::Usage,
        // The reason may be damage in the store.
        None if is_restart && !has_begun => RunFailure::NotRestarted,
        _ => RunFailure::Machine,
    };
    failure.code()
}

/// The exit code for an error of the connection to the daemon.
pub fn of_client_error(error: &ClientError) -> u8 {
    match error {
        ClientError::Refused(_) | ClientError::Unexpected | ClientError::Late(_) => FAILED,
        ClientError::Interrupted => INTERRUPTED,
        _ => UNREACHABLE,
    }
}

/// The exit code for an error of any command.
pub fn of_error(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<ClientError>() {
        Some(error) => of_client_error(error),
        None if error.is::<UsageError>() => USAGE,
        None => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::UsageError;
    use std::io;
    use vm_wire::task::Failed;

    #[test]
    fn each_failure_of_a_run_has_its_own_code_in_guide_and_help() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/run.md");
        let guide = std::fs::read_to_string(guide).expect("the guide");
        let help = crate::command::help(&["run"]).expect("a page");
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
        let code = |error: ClientError| of_error(&anyhow::Error::new(error).context("while"));
        assert_eq!(code(ClientError::Refused(no)), 1);
        assert_eq!(
            code(ClientError::NoDaemon {
                socket: "/x".into()
            }),
            3
        );
        assert_eq!(code(ClientError::Lost(None)), 3);
        assert_eq!(code(ClientError::Interrupted), 130);
        assert_eq!(of_error(&anyhow::anyhow!("other")), 1);
        assert_eq!(of_error(&UsageError("what?".to_owned()).into()), 2);
        let unknown = crate::command::help(&["frobnicate"]).expect_err("no page");
        assert_eq!(of_error(&unknown.into()), 2);
    }

    #[test]
    fn each_failure_of_a_run_has_its_exit_code() {
        let refused = |kind| anyhow::Error::new(ClientError::from(Failed::new(kind, "no")));
        let pipe = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe));
        let failures = [
            (refused(FailKind::Limit), false, 123),
            (refused(FailKind::System), false, 125),
            (refused(FailKind::HostLost), false, 125),
            (refused(FailKind::System), true, 124),
            (refused(FailKind::Limit), true, 124),
            (anyhow::anyhow!("a damaged checkpoint"), true, 124),
            (refused(FailKind::Refused).context(Begun), true, 125),
            (refused(FailKind::NoSuchProgram).context(Begun), false, 125),
            (anyhow::anyhow!("no terminal").context(Begun), true, 125),
            (ClientError::Lost(None).into(), true, 125),
            (refused(FailKind::NotExecutable), false, 126),
            (refused(FailKind::NoSuchProgram), false, 127),
            (ClientError::Interrupted.into(), false, 130),
            (pipe.context(Begun), false, 141),
        ];
        for (error, is_restart, code) in failures {
            assert_eq!(of_failed_run(&error, is_restart), code, "{error:#}");
        }
    }
}
