//! The case in which the daemon would be process 1 of its namespace of processes, as the entry
//! point of a container is.
//!
//! The kernel ignores every signal that process 1 sends to itself, SIGKILL too. So the timer of the
//! lease ([`crate::process::lease`]) could not end process 1, and tasks whose parent it is would
//! outlive their host. Therefore process 1 stays a small process that starts the daemon as its
//! child: it passes signals on, waits for orphans, and ends with the exit code of the daemon. The
//! kernel ends all other processes together with process 1. So process 1 first waits, for a limited
//! time, until the daemon's guardian ([`crate::process::guardian`]) has done its work.

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

/// Offset of the exit code after an end by a signal, as in shells and container runtimes. Process 1
/// cannot end itself by a signal.
const SIGNALLED: i32 = 128;
/// How long process 1 waits for the processes that the daemon left: longer than the guardian tries
/// to end processes.
const LEFT_TIME: Duration = Duration::from_millis(2_500);
/// Interval between looks at the remaining processes.
const LEFT_LOOK: Duration = Duration::from_millis(2);

/// If this process is process 1: starts the daemon, waits for its end, and returns its exit code.
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
    // Signals are caught before the start, so that none is missed.
    let mut signals = Signals::new(iter::once(SIGCHLD))?;
    for signal in passed {
        // A signal that cannot be caught does not reach process 1.
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
        // The daemon may have ended, but it was not waited for, so its number still refers to it.
        let _ = kill_process(daemon, signal);
    }
}

/// Waits for all children that have ended. Returns the daemon's exit code if the daemon is among
/// them.
fn reap(daemon: Pid) -> Option<ExitCode> {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == daemon {
            return Some(ExitCode::from(code(status) as u8));
        }
    }
    None
}

/// Waits until no child is left: the processes that a daemon leaves become children of process 1.
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
