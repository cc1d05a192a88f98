//! Helper processes: this daemon's own program, started with one job.
//!
//! `unsafe` here: the code between fork and exec that ties a helper to its daemon.

use crate::process::{
    helper_job::HelperJob,
    spare::{self, Digits},
    starter::Answer,
};
use rustix::{
    fd::OwnedFd,
    process::{Pid, Signal},
};
use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

/// A helper that may outlive this daemon, or that is tied to it in another way. The program is the
/// running one, even if its file was replaced.
pub fn command(job: &HelperJob) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("vmd").args(job.words());
    command
}

/// A helper that dies with this daemon, and that the kernel kills first if memory runs out, because
/// its work can be repeated.
pub fn tied_command(job: &HelperJob) -> Command {
    let mut command = command(job);
    let daemon = rustix::process::getpid();
    let score = Digits::from(spare::SCORE_MAX);
    // SAFETY: the closure runs between fork and exec and makes system calls only.
    unsafe {
        command.pre_exec(move || {
            spare::begin_with(score);
            tie_to(daemon)
        });
    }
    command
}

/// Runs in the child: ties its death to the death of the daemon.
fn tie_to(daemon: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    match rustix::process::getppid() == Some(daemon) {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Starts a helper that writes its error message to standard error. Returns the other end of that
/// pipe.
///
/// # Errors
/// The error of the system call that failed.
pub fn spawn(mut command: Command) -> Answer<Option<OwnedFd>, io::Error> {
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let words = child.stderr.take().map(OwnedFd::from);
    Ok((Pid::from_child(&child), words))
}
