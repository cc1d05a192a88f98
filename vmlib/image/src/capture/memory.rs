//! What everything that handles memory uses: the size of a page, kinds of mappings, advice to the
//! kernel, and the right to read for the time of a save.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::raw::{
    records::{DENSE, FULL, Mapping, PRIVATE, SHARED},
    sys::{self, nr},
};
use std::ops::Range;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// What [`Mapping::object_len`] of a private mapping of a file is: pages that were not touched have
/// content too.
pub const FROM_FILE: u64 = u64::MAX;

/// Among [`Mapping::flags`], until it is written: shared memory is what a file holds, in memory or
/// not.
pub const OF_FILE: u32 = 1 << 31;

/// Whether guard pages would hide content of it.
pub fn hides(mapping: &Mapping) -> bool {
    let is_of_file = mapping.object_len == FROM_FILE || mapping.flags & OF_FILE != 0;
    mapping.kind == SHARED || is_of_file
}

/// Whether it is private memory of no file.
pub fn is_anonymous(mapping: &Mapping) -> bool {
    mapping.kind == PRIVATE && mapping.object_len != FROM_FILE
}

/// Tells the kernel of memory, as `madvise` does.
///
/// # Safety
/// Nobody needs what the advice throws away, if it does.
pub unsafe fn advise(range: Range<u64>, advice: i32) -> sys::Result<()> {
    let (start, len) = (range.start as usize, (range.end - range.start) as usize);
    // SAFETY: promised by the caller.
    let value = unsafe { sys::call3(nr::MADVISE, start, len, advice as usize) };
    sys::check(value).map(|_| ())
}

/// A mapping from this size on may do with large pages. Bytes.
const LARGE: u64 = 4 << 20;

/// How much of a mapping's memory is in the image, as flags of it.
pub fn filling(mapping: &Mapping, bytes: u64) -> u32 {
    let len = mapping.end - mapping.start;
    match len >= LARGE {
        true if bytes >= len / 16 * 15 => DENSE | FULL,
        true if bytes >= len / 4 * 3 => DENSE,
        _ => 0,
    }
}

/// Makes mappings without the right to read readable while it exists.
pub struct Opened {
    range: Range<usize>,
    prot: u32,
}

impl Opened {
    /// `None` if it can be read anyway, or has to stay as it is.
    pub fn new(mapping: &Mapping) -> Option<Self> {
        if mapping.prot & libc::PROT_READ as u32 != 0 {
            return None;
        }
        let range = mapping.start as usize..mapping.end as usize;
        let prot = mapping.prot | libc::PROT_READ as u32;
        protect(&range, prot).then_some(Opened {
            range,
            prot: mapping.prot,
        })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        protect(&self.range, self.prot);
    }
}

fn protect(range: &Range<usize>, prot: u32) -> bool {
    // SAFETY: all other threads are stopped; the right to read harms nobody.
    unsafe { sys::call3(nr::MPROTECT, range.start, range.len(), prot as usize) >= 0 }
}
