//! The lease, enforced by the kernel: a timer that kills this daemon at the lease's end.
//!
//! A daemon that hangs or was stopped cannot end itself, yet its tasks must be dead before the
//! other daemons declare the host lost. So a POSIX timer on CLOCK_BOOTTIME is set to the end of the
//! lease and sends SIGKILL to the daemon; each renewal of the lease sets it anew. The tasks die
//! with their daemon by their parent-death signal. The `unsafe` here is three calls of the C
//! library.
//!
//! The fencing of a host rests on that timer, so a daemon does not start where the timer does not
//! work: not as process 1 of a namespace, which its own SIGKILL cannot end
//! ([`crate::start::init`]), and not before such a timer has ended another, stopped process of this
//! program ([`Probe`]).

use crate::{
    clock,
    process::{helper, helper_job::HelperJob},
};
use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::{
    io, mem,
    os::unix::process::ExitStatusExt as _,
    process::{Child, Stdio},
    ptr, thread,
    time::{Duration, Instant},
};
use vm_machine::Time;

/// Length of the lease of the probe.
const PROBE_LEASE: Duration = Duration::from_millis(1);
/// How long the end of the probe is awaited: far longer than a process takes to start on a busy
/// host.
const PROBE_TIME: Duration = Duration::from_secs(10);

/// The timer of the lease. It is disarmed until the first lease.
#[derive(Debug)]
pub struct LeaseTimer(libc::timer_t);

impl LeaseTimer {
    /// A disarmed timer.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new() -> io::Result<LeaseTimer> {
        // SAFETY: a sigevent is plain data, for which zeroes are valid.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: both pointers are to live values of the types that the call takes.
        let result = unsafe { libc::timer_create(libc::CLOCK_BOOTTIME, &mut event, &mut timer) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(LeaseTimer(timer))
    }

    /// Sets the time at which the daemon is killed; none: never. A time that was set before does
    /// not count any more.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn set(&self, end: Option<Time>) -> io::Result<()> {
        // A time of zero disarms the timer.
        let end = end.unwrap_or(Time(0));
        let setting = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: (end.0 / 1_000_000) as libc::time_t,
                tv_nsec: (end.0 % 1_000_000 * 1_000) as libc::c_long,
            },
        };
        // SAFETY: the timer is this value's own until it is dropped, the setting is a live value,
        // no old setting is requested.
        let result =
            unsafe { libc::timer_settime(self.0, libc::TIMER_ABSTIME, &setting, ptr::null_mut()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// A process that has stopped itself and that its timer is to kill.
#[derive(Debug)]
pub struct Probe(Child);

/// The work of a probe: stops itself and waits for its death.
///
/// # Errors
/// When the timer did not kill it.
pub fn probe() -> anyhow::Result<()> {
    let timer = LeaseTimer::new()?;
    timer.set(Some(clock::now() + PROBE_LEASE))?;
    kill_process(getpid(), Signal::STOP)?;
    bail!("the process was stopped, and goes on")
}

impl Probe {
    /// Starts a probe.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn start() -> anyhow::Result<Probe> {
        ensure!(
            getpid() != Pid::INIT,
            "process 1 of a namespace cannot be ended by the timer of its lease"
        );
        let mut command = helper::tied_command(&HelperJob::LeaseProbe);
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        Ok(Probe(child.context("cannot try the lease's timer")?))
    }

    /// Waits until the timer has killed the probe.
    ///
    /// # Errors
    /// When the timer has not killed it: the lease of a daemon could not be enforced here.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        let ended = loop {
            match self.0.try_wait()? {
                Some(status) => break status.signal() == Some(Signal::KILL.as_raw()),
                None if start.elapsed() > PROBE_TIME => break false,
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        ensure!(
            ended,
            "this system does not end a stopped process by a timer (timer_create(2) on \
             CLOCK_BOOTTIME with SIGKILL), so a daemon that hangs would outlive its lease and its \
             tasks would run twice; run vmd outside of the sandbox or emulator that it is in"
        );
        Ok(())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // The probe has ended, unless the timer does not work.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Drop for LeaseTimer {
    fn drop(&mut self) {
        // SAFETY: the timer is this value's own, and not used after this.
        unsafe { libc::timer_delete(self.0) };
    }
}
