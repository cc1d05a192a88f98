//! A helper that has the kernel find the memory which is to be filled, ahead of the process that
//! fills it from a pipe or socket.
//!
//! To find and clear a page takes about as long as to fill it, and much longer on a virtual machine
//! whose host has to find it first. The reader of a pipe would do that while it holds the pipe,
//! and the writer would wait for it.

use crate::{
    helper,
    raw::{
        records::{FULL, Mapping},
        sys::{self, nr},
    },
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Memory that is asked for at once. Bytes.
const STEP: u64 = 4 << 20;
/// Less is not worth a helper. Bytes.
const MIN: u64 = 16 << 20;

/// What the helper shares with the process that fills the memory.
pub struct Ahead<'a> {
    mappings: &'a [Mapping],
    /// What is before has been filled.
    filled: AtomicU64,
    done: AtomicBool,
}

impl<'a> Ahead<'a> {
    /// For the memory of these mappings.
    pub fn new(mappings: &'a [Mapping]) -> Self {
        Ahead {
            mappings,
            filled: AtomicU64::new(0),
            done: AtomicBool::new(false),
        }
    }

    /// Runs `fill` beside the helper, if there is one. `fill` says where it is.
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
        // SAFETY: one at a time, and this outlives it. How it ends is nobody's matter.
        unsafe { helper::beside(help, argument, fill) };
    }

    /// Memory before this is filled, or never will be.
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
    // SAFETY: it outlives this helper, or its memory does.
    let ahead = unsafe { &*(ahead as *const Ahead<'_>) };
    for mapping in ahead.full() {
        let mut at = mapping.start;
        while at < mapping.end {
            at = at.max(ahead.filled.load(Relaxed));
            let end = mapping.end.min((at + STEP) / STEP * STEP);
            if at < end {
                let (start, len) = (at as usize, (end - at) as usize);
                // SAFETY: memory of the image, mapped to be written; what it holds stays.
                let found = unsafe { sys::call3(nr::MADVISE, start, len, POPULATE_WRITE) };
                if found < 0 || ahead.done.load(Relaxed) {
                    return;
                }
            }
            at = end.max(at);
        }
    }
}
