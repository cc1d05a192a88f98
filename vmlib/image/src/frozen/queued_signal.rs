//! Signals with a value, as `sigqueue` sends them.
//!
//! **Used in signal handlers**: nothing here allocates or locks.

use crate::raw::sys;

/// `SI_QUEUE`.
const QUEUED: i32 = -1;

/// `siginfo_t` of a signal with a value.
#[repr(C)]
pub struct QueuedInfo {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    pid: i32,
    uid: u32,
    value: usize,
    rest: [u64; 12],
}

/// The information of a signal with a value that this process sends.
pub fn queued(signal: i32, value: usize) -> QueuedInfo {
    QueuedInfo {
        signal,
        errno: 0,
        code: QUEUED,
        pad: 0,
        pid: sys::getpid(),
        uid: 0,
        value,
        rest: [0; 12],
    }
}

/// The value of a signal; 0 if the signal has none.
pub fn value_of(from: *const libc::siginfo_t) -> usize {
    // SAFETY: the kernel's information; all its fields are numbers.
    let info = unsafe { &*from.cast::<QueuedInfo>() };
    match info.code {
        QUEUED => info.value,
        _ => 0,
    }
}

impl QueuedInfo {
    /// Reads the information of a signal.
    ///
    /// # Safety
    /// `info` is the kernel's information for a handler.
    pub unsafe fn of<'a>(info: *const libc::siginfo_t) -> &'a Self {
        // SAFETY: promised by the caller; all fields are numbers.
        unsafe { &*info.cast::<QueuedInfo>() }
    }

    /// Whether this process sent the signal to itself, with this value.
    pub fn is_own(&self, value: usize) -> bool {
        (self.code, self.pid, self.value) == (QUEUED, sys::getpid(), value)
    }

    /// The process that sent the signal.
    pub fn sender(&self) -> i32 {
        self.pid
    }
}
