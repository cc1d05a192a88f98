//! Measures the memory that a thread allocates. `unsafe` is needed to define an allocator, which
//! passes every call on to the system's.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use vm_image::format::{Codec, ImageReader, PAGES, SECTION_MAX};

use crate::made::{Made, STACK};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: the system's allocator does the work; counting accesses only two thread-local cells.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The most bytes that this thread allocated during `work`, beyond those that it had before.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let outcome = work();
    (outcome, (PEAK.get() - before) as usize)
}

#[test]
fn a_section_uses_no_more_memory_than_its_limit_or_its_bytes() {
    const SMALL: usize = 64 << 10;
    let mut made = Made::small();
    made.mappings[1].end = STACK + 4 * SECTION_MAX as u64;
    let page = |at: usize| {
        (
            PAGES,
            STACK + (at * SECTION_MAX) as u64,
            vec![at as u8; SECTION_MAX],
        )
    };
    made.body = vec![page(0), page(1), page(2)];
    for (codec, max) in [(Codec::Plain, SECTION_MAX), (Codec::Lz4, 2 * SECTION_MAX)] {
        let bytes = made.write(codec);
        for cut in [bytes.len(), bytes.len() / 2, 2000] {
            let ((), peak) = peak_of(|| {
                let mut image = ImageReader::new(&bytes[..cut]).unwrap();
                while matches!(image.next_section(), Ok(Some(_))) {}
            });
            assert!(peak <= max + SMALL, "{codec:?}, {cut}: {peak}");
        }
    }
}
