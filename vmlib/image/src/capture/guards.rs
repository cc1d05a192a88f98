//! Guard pages: memory that is mapped, and faults at every access (MADV_GUARD_INSTALL, Linux 6.13).
//!
//! C libraries and allocators put them at the ends of stacks (glibc 2.42) and of what they give
//! out. They hold nothing, so no image has them; where the process is restored they are made
//! again. The kernel tells them since 6.15; before that, one of them ends a save.
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
/// Pieces of guarded memory, at most.
const GUARDS_MAX: usize = 1 << 17;

/// Guard pages, as they are found.
pub struct Guards(List<[u64; 2]>);

impl Guards {
    /// Without any entry.
    pub fn new() -> Outcome<Self> {
        // SAFETY: numbers.
        Ok(Guards(unsafe { List::new(GUARDS_MAX)? }))
    }

    /// Notes some.
    pub fn note(&mut self, range: Range<u64>) -> Outcome<()> {
        self.0
            .push([range.start, range.end], "guarded pieces of memory")
    }

    /// All of them.
    pub fn into_static(self) -> &'static [[u64; 2]] {
        self.0.into_static()
    }
}

/// The pages in which a list is, which has something in it.
pub fn place_of(all: &[[u64; 2]]) -> Option<[u64; 2]> {
    let list = all.as_ptr_range();
    let (start, end) = (list.start as u64, list.end as u64);
    (start < end).then(|| [start & !(PAGE - 1), end.next_multiple_of(PAGE)])
}

/// Guard pages in memory that has content below them, which nobody can look at.
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

/// In a process that is being restored: makes them. Where the kernel does not know them, or memory
/// is locked, nothing may be done with it.
pub fn make(all: &[[u64; 2]]) -> Outcome<()> {
    for &[start, end] in all {
        // SAFETY: nobody can have anything there.
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
