//! The clock of the library. It does not jump when a task is restored on another host.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicI64, Ordering};
use vm_endpoint::Time;

/// Added to the time of the system's clock. Microseconds; 0 in a process that was not restored.
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// The time. In a restored process the clock continues from the time of the save.
pub(crate) fn now() -> Time {
    time_of(ClockId::Monotonic)
}

/// The time of the kernel's last tick, up to 10 ms ago: a tenth of the cost of [`now`], for calls
/// that wait for nothing.
pub(crate) fn recent() -> Time {
    time_of(ClockId::MonotonicCoarse)
}

fn time_of(clock: ClockId) -> Time {
    let now = clock_gettime(clock);
    let system = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    Time((system + offset()) as u64)
}

/// The difference between this clock and the system's. Microseconds.
pub(crate) fn offset() -> i64 {
    OFFSET.load(Ordering::Relaxed)
}

/// Sets the difference between this clock and the system's. Microseconds. Allocates nothing, locks
/// nothing and makes no system call: it is called while threads are stopped.
#[cfg(target_arch = "x86_64")]
pub(crate) fn set_offset(micros: i64) {
    OFFSET.store(micros, Ordering::SeqCst);
}
