//! The daemon's clock: CLOCK_BOOTTIME, which goes on while the computer sleeps.
//!
//! Leases are compared with it and the kernel enforces them on it (see `lease`), so there is no
//! second clock in the daemon.

use rustix::time::{ClockId, clock_gettime};
use vm_machine::Time;

/// The present moment.
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Boottime);
    Time(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}
