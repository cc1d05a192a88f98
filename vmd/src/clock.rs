//! The daemon's clock: CLOCK_BOOTTIME, which also runs while the computer sleeps.
//!
//! Leases are compared with this clock, and the kernel enforces them on the same clock (see
//! `lease`). The daemon has no second clock.

use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};
use vm_machine::Time;

/// The present moment.
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Boottime);
    Time(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// The time of day at the origin of [`now`], as known at this moment: milliseconds since 1970. For
/// output to people, and for times that hosts compare. No decision depends on it to the second.
pub fn origin_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let today = since.map_or(0, |since| since.as_millis() as u64);
    today.saturating_sub(now().0 / 1_000)
}
