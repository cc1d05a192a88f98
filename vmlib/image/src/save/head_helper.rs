//! Makes the heads of sections, with their checksums, ahead of the writer.
//!
//! Writing memory takes about as long as copying it, and a checksum made by the writer would add a
//! tenth of that time. So a helper on another processor makes the heads of the next sections, and
//! leaves their memory in the cache for the writer. Neither depends on the other: the writer makes a
//! head itself if it is not there yet, and the helper skips sections that are already written. A
//! helper that gets no processor, or is killed, costs nothing.
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

/// The limit of heads that are made ahead, so that the memory of their sections is still in the
/// cache when it is written.
const HEADS: u32 = 8;
/// Value of [`HeadHelper::written`] that ends the helper.
const END: u32 = u32::MAX;

/// The state that helper and writer share.
pub struct HeadHelper {
    /// The index of the first section that is written with the helper.
    first: u32,
    ranges: (usize, usize),
    heads: [PreparedHead; HEADS as usize],
    /// The number of these sections that are written.
    written: AtomicU32,
    /// The helper sleeps until this many sections are written.
    wake_at: AtomicU32,
}

/// A place for heads: one after the other, those of all sections whose numbers are the same modulo
/// [`HEADS`].
struct PreparedHead {
    /// 1 more than the number of the section that the head is for; 0: none.
    number: AtomicU32,
    head: UnsafeCell<Section>,
}

impl HeadHelper {
    /// For the sections that these ranges are divided into; `first` is the index of the first one.
    pub fn new(first: u32, ranges: &[[u64; 2]]) -> Self {
        HeadHelper {
            first,
            ranges: (ranges.as_ptr() as usize, ranges.len()),
            heads: std::array::from_fn(|_| PreparedHead::none()),
            written: AtomicU32::new(0),
            wake_at: AtomicU32::new(END),
        }
    }

    /// Runs `write` beside a helper, if one can be started.
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
        // SAFETY: the stack is the helper's own. The helper uses only the given value, which
        // outlives it.
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

    /// The head of a section: the helper's if it is ready, else made here.
    pub fn head(&self, number: u32, address: u64, content: &[u8]) -> Section {
        let made = &self.heads[(number % HEADS) as usize];
        match made.number.load(SeqCst) == number + 1 {
            // SAFETY: the helper has finished this head, and changes it only after `written`.
            true => unsafe { *made.head.get() },
            false => Section::new(PAGES, self.first + number, address, content),
        }
    }

    /// Notes that a section is written.
    pub fn written(&self, number: u32) {
        self.written.store(number + 1, SeqCst);
        if number + 1 == self.wake_at.load(SeqCst) {
            futex_wake(&self.written);
        }
    }

    fn help(&self) {
        // SAFETY: the writer owns the ranges and waits for the end of this helper.
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
            // SAFETY: the closure only reads bytes.
            let head =
                unsafe { memory_faults::caught(|| Section::new(PAGES, index, address, content)) };
            // The writer meets the same fault and reports it.
            let Ok(head) = head else { return };
            let made = &self.heads[(number % HEADS) as usize];
            // SAFETY: the writer has used the old head of this place, and reads the new one only
            // after `number` is set.
            unsafe { *made.head.get() = head };
            made.number.store(number + 1, SeqCst);
        }
    }

    /// Waits until there is a place for the head of this section. Returns the number of written
    /// sections, or `None` when the helper is to end.
    fn await_room(&self, number: u32) -> Option<u32> {
        loop {
            let written = self.written.load(SeqCst);
            if written == END || number < written + HEADS {
                return (written != END).then_some(written);
            }
            // The helper waits until half of the places are free, so that the writer seldom has to
            // wake it.
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
    // SAFETY: the value outlives this helper.
    unsafe { &*(helper as *const HeadHelper) }.help();
}
