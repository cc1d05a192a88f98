//! Makes the heads of sections, with their checksums, ahead of the writer.
//!
//! To write memory takes about as long as to copy it; a checksum on the way would cost a tenth of
//! that. So a helper on another processor makes the heads of the sections that come next, and
//! leaves their memory in the cache for the writer. Neither depends on the other: a head that is
//! not there yet the writer makes itself, and a section that is written already the helper passes
//! over. So a helper that gets no processor, or is killed, costs nothing.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    frozen::{memory_faults, scratch},
    raw::{
        clone::{self, CloneArguments},
        records::{PAGES, Section, blocks},
        sys::{self, futex_wait, futex_wake},
    },
};
use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

/// Heads that are made ahead at most: what their sections hold should still be in the cache.
const HEADS: u32 = 8;
/// Of [`HeadHelper::written`]: the helper is to end.
const END: u32 = u32::MAX;

/// Between helper and writer.
pub struct HeadHelper {
    /// Sections of the image before the first of these.
    first: u32,
    ranges: (usize, usize),
    heads: [PreparedHead; HEADS as usize],
    /// How many of these sections are written.
    written: AtomicU32,
    /// The helper sleeps until so many are.
    wake_at: AtomicU32,
}

/// The head of each section whose number leaves the same rest, one after the other.
struct PreparedHead {
    /// One more than the number of the section that it is for.
    number: AtomicU32,
    head: UnsafeCell<Section>,
}

impl HeadHelper {
    /// For the sections that these ranges are cut into.
    pub fn new(first: u32, ranges: &[[u64; 2]]) -> Self {
        HeadHelper {
            first,
            ranges: (ranges.as_ptr() as usize, ranges.len()),
            heads: std::array::from_fn(|_| PreparedHead::none()),
            written: AtomicU32::new(0),
            wake_at: AtomicU32::new(END),
        }
    }

    /// Runs `write` beside a helper, if there can be one.
    ///
    /// # Safety
    /// The ranges are readable, and not changed meanwhile.
    pub unsafe fn during<T>(&self, write: impl FnOnce() -> T) -> T {
        let flags = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND;
        let given = CloneArguments {
            flags: flags as usize,
            ..CloneArguments::default()
        };
        let top = scratch::helper_stack();
        // SAFETY: the stack is its own; it touches only what it is given, which outlives it.
        let helper =
            sys::check(unsafe { clone::spawn(given, top, help, &raw const *self as usize) });
        let result = write();
        self.written.store(END, SeqCst);
        futex_wake(&self.written);
        if let Ok(pid) = helper {
            clone::wait(pid as i32);
        }
        result
    }

    /// The head of a section, made here or there.
    pub fn head(&self, number: u32, address: u64, content: &[u8]) -> Section {
        let made = &self.heads[(number % HEADS) as usize];
        match made.number.load(SeqCst) == number + 1 {
            // SAFETY: the helper is done with it, and changes it only after `written`.
            true => unsafe { *made.head.get() },
            false => Section::new(PAGES, self.first + number, address, content),
        }
    }

    /// A section is written.
    pub fn written(&self, number: u32) {
        self.written.store(number + 1, SeqCst);
        if number + 1 == self.wake_at.load(SeqCst) {
            futex_wake(&self.written);
        }
    }

    fn help(&self) {
        // SAFETY: the writer, which gave the ranges, waits for the end of this helper.
        let ranges =
            unsafe { std::slice::from_raw_parts(self.ranges.0 as *const [u64; 2], self.ranges.1) };
        for (number, (address, len)) in (0..).zip(blocks(ranges)) {
            let Some(written) = self.await_room(number) else {
                return;
            };
            if number < written {
                continue;
            }
            // SAFETY: as promised to `during`.
            let content = unsafe { std::slice::from_raw_parts(address as *const u8, len) };
            let index = self.first + number;
            // SAFETY: it reads bytes.
            let head =
                unsafe { memory_faults::caught(|| Section::new(PAGES, index, address, content)) };
            // The writer meets the same fault.
            let Ok(head) = head else { return };
            let made = &self.heads[(number % HEADS) as usize];
            // SAFETY: the writer has done with what was here and looks at it only by the number.
            unsafe { *made.head.get() = head };
            made.number.store(number + 1, SeqCst);
        }
    }

    /// Waits until the head of this section has a place. How many are written; `None` at the end.
    fn await_room(&self, number: u32) -> Option<u32> {
        loop {
            let written = self.written.load(SeqCst);
            if written == END || number < written + HEADS {
                return (written != END).then_some(written);
            }
            // Not before half of the places are free, so that the writer seldom has to wake it.
            self.wake_at.store(number - HEADS / 2, SeqCst);
            if self.written.load(SeqCst) == written {
                futex_wait(&self.written, written);
            }
        }
    }
}

impl PreparedHead {
    fn none() -> Self {
        PreparedHead {
            number: AtomicU32::new(0),
            head: UnsafeCell::new(Section::new(PAGES, 0, 0, &[])),
        }
    }
}

extern "C" fn help(helper: usize) {
    // SAFETY: it outlives this helper.
    unsafe { &*(helper as *const HeadHelper) }.help();
}
