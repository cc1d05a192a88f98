//! The lease, enforced by the kernel: a timer that kills this daemon at the lease's end.
//!
//! A daemon that hangs or was stopped cannot end itself, yet its tasks must be dead before the
//! others declare the host dead. So a POSIX timer on CLOCK_BOOTTIME is set to the end of the lease
//! and sends SIGKILL to the process; each renewal pushes it on. The tasks go with their daemon by
//! their parent-death signal. The `unsafe` here is three calls of the C library.

use std::{io, mem, ptr};
use vm_machine::Time;

/// The timer. Disarmed until the first lease.
#[derive(Debug)]
pub struct LeaseTimer(libc::timer_t);

impl LeaseTimer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<LeaseTimer> {
        // SAFETY: a sigevent is plain data, for which zeroes are valid.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: both pointers are to live values of the types that the call wants.
        let result = unsafe { libc::timer_create(libc::CLOCK_BOOTTIME, &mut event, &mut timer) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(LeaseTimer(timer))
    }

    /// From now on the daemon is killed at `end`, or never, not at any time that was set before.
    ///
    /// # Errors
    /// What the system says.
    pub fn set(&self, end: Option<Time>) -> io::Result<()> {
        // Zeroes disarm it.
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
        // SAFETY: the timer is ours until drop, the setting is a live value, no old setting is
        // asked for.
        let result =
            unsafe { libc::timer_settime(self.0, libc::TIMER_ABSTIME, &setting, ptr::null_mut()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for LeaseTimer {
    fn drop(&mut self) {
        // SAFETY: the timer is ours and not used after this.
        unsafe { libc::timer_delete(self.0) };
    }
}
