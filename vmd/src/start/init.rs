//! A daemon that would be process 1 of its namespace of processes, as the entry point of a
//! container is.
//!
//! The kernel ignores every signal that process 1 sends to itself, SIGKILL too, so the timer of the
//! lease ([`crate::process::lease`]) could not end it, and tasks whose parent it is would outlive their host.
//! So process 1 stays a small process that starts the daemon as its child: it passes signals on,
//! waits for orphans, and ends as the daemon did. The kernel ends all other processes with process 1:
//! so it waits first, for a limited time, until the daemon's guardian ([`crate::process::guardian`]) has done
//! its work.

use crate::process::signals::{Ignored, catchable};
use anyhow::{Context as _, ensure};
use rustix::process::{Pid, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::{consts::SIGCHLD, iterator::Signals};
use std::{
    env, iter,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

/// Added to the number of the signal that ended the daemon: the exit code, as of shells and
/// container runtimes. Process 1 cannot end itself by a signal.
const SIGNALLED: i32 = 128;
/// How long what the daemon left is awaited: longer than its guardian tries to end processes.
const LEFT_TIME: Duration = Duration::from_millis(2_500);
/// How often it is looked meanwhile.
const LEFT_LOOK: Duration = Duration::from_millis(2);

/// If this is process 1: starts the daemon, and returns once that has ended, with its exit code.
pub fn run_if_process_1(detach: bool) -> Option<anyhow::Result<ExitCode>> {
    let own = rustix::process::getpid();
    (own == Pid::INIT)
        .then(|| stand_by(detach).context("starting the daemon as a child of process 1"))
}

fn stand_by(detach: bool) -> anyhow::Result<ExitCode> {
    ensure!(
        !detach,
        "a daemon in the background would end at once, as all processes of a namespace do with \
         process 1; leave --detach out"
    );
    let ignored = Ignored::now();
    let passed = catchable().filter(|signal| !ignored.has(*signal));
    // Before the start, so that no signal is missed meanwhile.
    let mut signals = Signals::new(iter::once(SIGCHLD))?;
    for signal in passed {
        // What cannot be caught does not reach process 1.
        let _ = signals.add_signal(signal);
    }
    let mut words = env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(words.next().unwrap_or_else(|| "vmd".into()));
    let daemon = Pid::from_child(&command.args(words).spawn()?);
    loop {
        for signal in signals.wait() {
            if signal != SIGCHLD {
                pass_on(daemon, signal);
            } else if let Some(code) = reap(daemon) {
                await_left();
                return Ok(code);
            }
        }
    }
}

fn pass_on(daemon: Pid, number: i32) {
    if let Some(signal) = crate::process::spawn::signal(number) {
        // It was not waited for, so the number is its own; it may have ended.
        let _ = kill_process(daemon, signal);
    }
}

/// Waits for all that has ended; the daemon's exit code if it is among them.
fn reap(daemon: Pid) -> Option<ExitCode> {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == daemon {
            return Some(ExitCode::from(code(status) as u8));
        }
    }
    None
}

/// Waits until no child is left: what a daemon left is process 1's.
fn await_left() {
    let end = Instant::now() + LEFT_TIME;
    while let Ok(ended) = wait(WaitOptions::NOHANG) {
        if Instant::now() > end {
            return;
        }
        if ended.is_none() {
            thread::sleep(LEFT_LOOK);
        }
    }
}

fn code(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => SIGNALLED + signal,
        (None, None) => 1,
    }
}
