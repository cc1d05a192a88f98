//! The daemon's clock: CLOCK_BOOTTIME, which goes on while the computer sleeps.
//!
//! Leases are compared with it and the kernel enforces them on it (see `lease`), so there is no
//! second clock in the daemon.

use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};
use vm_machine::Time;

/// The present moment.
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Boottime);
    Time(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// The time of day at the origin of [`now`], as it is known at this moment: milliseconds since 1970. For
/// what people are told, and for times that hosts compare: nothing here depends on seconds.
pub fn origin_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let today = since.map_or(0, |since| since.as_millis() as u64);
    today.saturating_sub(now().0 / 1_000)
}
