//! Sets of signals, and the mask of this thread.
//!
//! `unsafe` is here for calls of the C library.

use std::{mem, ptr};

/// The set of these signals.
pub fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: zeros are a value, and `sigemptyset` writes all of it.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

/// Sets this thread's signal mask; returns the previous mask.
pub fn set_mask(set: &libc::sigset_t) -> libc::sigset_t {
    let mut old = set_of(&[]);
    // SAFETY: both are sets.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set, &mut old) };
    old
}

/// Blocks all signals; returns the previous mask.
pub fn block_all() -> libc::sigset_t {
    let all: Vec<i32> = (1..32).chain(34..=64).collect();
    set_mask(&set_of(&all))
}

/// The signals that this thread blocks.
pub fn blocked() -> Vec<i32> {
    let mut now = set_of(&[]);
    // SAFETY: the call only reads.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut now) };
    // SAFETY: a set.
    let has = |signal: &i32| unsafe { libc::sigismember(&now, *signal) == 1 };
    (1..=64).filter(has).collect()
}
