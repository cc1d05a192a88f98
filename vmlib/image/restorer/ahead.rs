//! A helper that has the kernel allocate memory ahead of the process that fills it from a pipe or
//! socket.
//!
//! Allocating and clearing a page takes about as long as filling it, and much longer on a virtual
//! machine whose host must allocate the page first. Without the helper, the reader of a pipe would
//! do that while it locks the pipe, and the writer of the image would wait.

use crate::{
    helper,
    raw::{
        records::{FULL, Mapping},
        sys::{self, nr},
    },
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The memory that one call allocates. Bytes.
const STEP: u64 = 4 << 20;
/// For less memory a helper costs more than it saves. Bytes.
const MIN: u64 = 16 << 20;

/// The state that the helper and the filling process share.
pub struct Ahead<'a> {
    mappings: &'a [Mapping],
    /// The address up to which memory has been filled.
    filled: AtomicU64,
    done: AtomicBool,
}

impl<'a> Ahead<'a> {
    /// A helper for the memory of these mappings that is nearly all in the image.
    pub fn new(mappings: &'a [Mapping]) -> Self {
        Ahead {
            mappings,
            filled: AtomicU64::new(0),
            done: AtomicBool::new(false),
        }
    }

    /// Runs `fill` beside the helper, if one can be started. `fill` reports its progress by
    /// [`filled`](Self::filled).
    pub fn during(&self, fill: impl FnOnce()) {
        let full = self.full().map(|mapping| mapping.end - mapping.start);
        if full.sum::<u64>() < MIN || sys::processors() < 2 {
            return fill();
        }
        let argument = core::ptr::from_ref(self) as usize;
        let fill = || {
            fill();
            self.done.store(true, Relaxed);
        };
        // SAFETY: one helper at a time, and this value outlives it. Its status does not matter.
        unsafe { helper::beside(help, argument, fill) };
    }

    /// Notes that memory before this address is filled, or will not be.
    pub fn filled(&self, address: u64) {
        self.filled.store(address, Relaxed);
    }

    fn full(&self) -> impl Iterator<Item = &Mapping> {
        self.mappings
            .iter()
            .filter(|mapping| mapping.flags & FULL != 0)
    }
}

extern "C" fn help(ahead: usize) {
    const POPULATE_WRITE: usize = 23;
    // SAFETY: the value outlives this helper, or its memory does.
    let ahead = unsafe { &*(ahead as *const Ahead<'_>) };
    for mapping in ahead.full() {
        let mut at = mapping.start;
        while at < mapping.end {
            at = at.max(ahead.filled.load(Relaxed));
            let end = mapping.end.min((at + STEP) / STEP * STEP);
            if at < end {
                let (start, len) = (at as usize, (end - at) as usize);
                // SAFETY: memory of the image, mapped for writing; its content stays.
                let found = unsafe { sys::call3(nr::MADVISE, start, len, POPULATE_WRITE) };
                if found < 0 || ahead.done.load(Relaxed) {
                    return;
                }
            }
            at = end.max(at);
        }
    }
}
