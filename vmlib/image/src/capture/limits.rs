//! The resource limits of this process (getrlimit(2)).
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::raw::sys::{self, nr};

/// The number of limits (RLIM_NLIMITS).
const LIMITS: usize = 16;

/// The hard limit of a resource, which this process cannot raise.
pub fn hard_limit(which: u32) -> u64 {
    let mut here = [0u64; 2];
    // SAFETY: the kernel writes two numbers.
    unsafe {
        sys::call4(
            nr::PRLIMIT64,
            0,
            which as usize,
            0,
            here.as_mut_ptr() as usize,
        )
    };
    here[1]
}

/// Raises a soft limit to its hard limit.
pub fn lift_limit(which: u32) {
    let limit = [hard_limit(which); 2];
    // SAFETY: the kernel reads two numbers.
    unsafe { sys::call4(nr::PRLIMIT64, 0, which as usize, limit.as_ptr() as usize, 0) };
}

/// Sets all soft limits, each at most to its hard limit. The hard limits stay.
fn set_limits(soft: impl Fn(usize) -> u64) {
    for which in 0..LIMITS {
        let mut here = [0u64; 2];
        // SAFETY: the kernel writes two numbers, and reads them.
        unsafe {
            sys::call4(nr::PRLIMIT64, 0, which, 0, here.as_mut_ptr() as usize);
            here[0] = soft(which).min(here[1]);
            sys::call4(nr::PRLIMIT64, 0, which, here.as_ptr() as usize, 0);
        }
    }
}

/// Raises all soft limits, until [`restore`] sets them.
pub fn lift_limits() {
    set_limits(|_| u64::MAX);
}

/// The soft and hard limits of a process.
pub type Limits = [[u64; 2]; LIMITS];

/// The limits of this process.
pub fn capture() -> Limits {
    let mut limits = [[0u64; 2]; LIMITS];
    for (which, limit) in limits.iter_mut().enumerate() {
        // SAFETY: the kernel writes two numbers.
        unsafe { sys::call4(nr::PRLIMIT64, 0, which, 0, limit.as_mut_ptr() as usize) };
    }
    limits
}

/// Sets the soft limits of a process that is restored. To be called when the process has all its
/// files and threads: it may have more of them than it could get under its own limits.
pub fn restore(limits: &Limits) {
    set_limits(|which| limits[which][0]);
}
