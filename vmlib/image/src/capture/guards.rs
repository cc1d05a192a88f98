//! Guard pages: memory that is mapped, and faults at every access (MADV_GUARD_INSTALL, Linux 6.13).
//!
//! C libraries and allocators put guard pages at the ends of stacks (glibc 2.42) and of
//! allocations. Guard pages have no content, so they are in no image; they are made again in the
//! restored process. The kernel reports them since 6.15. Before that, reading a guard page ends a
//! save with an error.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    capture::memory::{self, PAGE},
    frozen::{
        arena::List,
        fault::{Outcome, Step as _, refuse},
    },
    raw::{
        records::Mapping,
        sys::{self, Errno, nr},
    },
};
use std::ops::Range;

const MADV_GUARD_INSTALL: i32 = 102;
/// The limit of separate ranges of guard pages.
const GUARDS_MAX: usize = 1 << 17;

/// A list of guard pages.
pub struct Guards(List<[u64; 2]>);

impl Guards {
    /// An empty list.
    pub fn new() -> Outcome<Self> {
        // SAFETY: numbers.
        Ok(Guards(unsafe { List::new(GUARDS_MAX)? }))
    }

    /// Adds a range.
    pub fn note(&mut self, range: Range<u64>) -> Outcome<()> {
        self.0
            .push([range.start, range.end], "guarded pieces of memory")
    }

    /// All ranges.
    pub fn into_static(self) -> &'static [[u64; 2]] {
        self.0.into_static()
    }
}

/// The pages of memory that a list lies in, if the list is not empty.
pub fn place_of(all: &[[u64; 2]]) -> Option<[u64; 2]> {
    let list = all.as_ptr_range();
    let (start, end) = (list.start as u64, list.end as u64);
    (start < end).then(|| [start & !(PAGE - 1), end.next_multiple_of(PAGE)])
}

/// Refuses guard pages in memory that may have content below them, which cannot be read.
///
/// # Errors
/// Always.
pub fn refuse_in(mapping: &Mapping, guard: &Range<u64>) -> Outcome<()> {
    let kind = match mapping.object_len == memory::FROM_FILE {
        true => "a file",
        false => "shared memory",
    };
    refuse!("guard pages hide a part of {kind}, at {:#x}", guard.start)
}

/// In a process that is being restored: makes the guard pages. Where the kernel has none, or memory
/// is locked, the pages lose all rights instead.
pub fn make(all: &[[u64; 2]]) -> Outcome<()> {
    for &[start, end] in all {
        // SAFETY: guard pages have no content.
        let made = unsafe { memory::advise(start..end, MADV_GUARD_INSTALL) };
        if made == Err(Errno(libc::EINVAL)) {
            let (start, len) = (start as usize, (end - start) as usize);
            // SAFETY: as above.
            let closed = unsafe { sys::call3(nr::MPROTECT, start, len, libc::PROT_NONE as usize) };
            sys::check(closed).step("making guard pages again")?;
        } else {
            made.step("making guard pages again")?;
        }
    }
    Ok(())
}
