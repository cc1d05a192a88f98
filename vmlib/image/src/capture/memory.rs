//! Shared parts of all code that handles memory: the size of a page, kinds of mappings, advice to
//! the kernel, and the right to read during a save.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::raw::{
    records::{DENSE, FULL, Mapping, PRIVATE, SHARED},
    sys::{self, nr},
};
use std::ops::Range;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The value of [`Mapping::object_len`] for a private mapping of a file, until the mapping is
/// written: such a mapping has content also in pages that were not touched.
pub const FROM_FILE: u64 = u64::MAX;

/// A bit of [`Mapping::flags`], until the mapping is written: the mapping is shared memory with the
/// content of a file, and has content also in pages that are not in memory.
pub const OF_FILE: u32 = 1 << 31;

/// Whether guard pages of the mapping may hide content.
pub fn hides(mapping: &Mapping) -> bool {
    let is_of_file = mapping.object_len == FROM_FILE || mapping.flags & OF_FILE != 0;
    mapping.kind == SHARED || is_of_file
}

/// Whether the mapping is private memory of no file.
pub fn is_anonymous(mapping: &Mapping) -> bool {
    mapping.kind == PRIVATE && mapping.object_len != FROM_FILE
}

/// Gives the kernel advice for a range, as `madvise` does.
///
/// # Safety
/// No code needs content that the advice discards.
pub unsafe fn advise(range: Range<u64>, advice: i32) -> sys::Result<()> {
    let (start, len) = (range.start as usize, (range.end - range.start) as usize);
    // SAFETY: promised by the caller.
    let value = unsafe { sys::call3(nr::MADVISE, start, len, advice as usize) };
    sys::check(value).map(|_| ())
}

/// The size from which a mapping may use large pages. Bytes.
const LARGE: u64 = 4 << 20;

/// The flags that say how much of a mapping is in the image, if `bytes` of it are.
pub fn filling(mapping: &Mapping, bytes: u64) -> u32 {
    let len = mapping.end - mapping.start;
    match len >= LARGE {
        true if bytes >= len / 16 * 15 => DENSE | FULL,
        true if bytes >= len / 4 * 3 => DENSE,
        _ => 0,
    }
}

/// Makes a mapping readable while the value lives.
pub struct Opened {
    range: Range<usize>,
    prot: u32,
}

impl Opened {
    /// `None` if the mapping is readable anyway, or the kernel refuses the change.
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
    // SAFETY: all other threads are stopped; the right to read changes no content.
    unsafe { sys::call3(nr::MPROTECT, range.start, range.len(), prot as usize) >= 0 }
}
