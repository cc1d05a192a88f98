//! Memory that the kernel may empty at any time (MAP_DROPPABLE, Linux 6.11).
//!
//! C libraries keep the state of `getrandom` there (glibc 2.41), which no two processes may share:
//! whoever is brought back gets such memory empty, as a child does, and it is seeded anew.
//!
//! **Runs in signal handlers**, and in a process that is being brought back: it allocates nothing
//! and locks nothing.

use crate::{
    advice::{self, Advice},
    arena::List,
    fault::{Outcome, Step as _},
    memory::FROM_FILE,
    raw::{
        format::{MAPPINGS_MAX, Mapping, PRIVATE},
        sys::{self, Errno, nr},
    },
};

/// A mapping that is larger is taken for ordinary memory. Bytes: C libraries take some pages at a time.
const LEN_MAX: u64 = 1 << 20;
const MAP_DROPPABLE: i32 = 8;

const RIGHTS: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Finds it among the mappings of a process that stands still: the kernel refuses to have core files
/// hold it. Others lose a MADV_DONTDUMP so, and get it again if it is among the advice.
pub fn find(mappings: &[Mapping], advice: &[Advice]) -> Outcome<&'static [[u64; 2]]> {
    // SAFETY: zeros are values.
    let mut list = unsafe { List::<[u64; 2]>::new(MAPPINGS_MAX)? };
    for mapping in mappings {
        let len = mapping.end - mapping.start;
        let is_like_it = mapping.kind == PRIVATE
            && mapping.object_len != FROM_FILE
            && mapping.name.len == 0
            && mapping.prot == RIGHTS as u32
            && len <= LEN_MAX;
        if is_like_it && !may_be_dumped(mapping.start as usize, len as usize) {
            list.push([mapping.start, mapping.end], "mappings")?;
        }
    }
    advice::give_again(advice, libc::MADV_DONTDUMP);
    Ok(list.into_static())
}

fn may_be_dumped(start: usize, len: usize) -> bool {
    // SAFETY: it does not change what memory holds.
    let value = unsafe { sys::call3(nr::MADVISE, start, len, libc::MADV_DODUMP as usize) };
    sys::check(value) != Err(Errno(libc::EINVAL))
}

/// In a process that is brought back: has that memory, empty. A kernel that does not know it gives
/// ordinary memory that children do not get either.
pub fn make(all: &[[u64; 2]]) -> Outcome<()> {
    for &[start, end] in all {
        let (start, len) = (start as usize, (end - start) as usize);
        let map = |kind| {
            let flags = libc::MAP_ANONYMOUS | libc::MAP_FIXED | kind;
            sys::map(start, len, RIGHTS, flags)
        };
        map(MAP_DROPPABLE)
            .or_else(|_| map(libc::MAP_PRIVATE))
            .step("getting memory that may be emptied")?;
        for advice in [libc::MADV_WIPEONFORK, libc::MADV_DONTDUMP] {
            // SAFETY: they do not change what memory holds.
            unsafe { sys::call3(nr::MADVISE, start, len, advice as usize) };
        }
    }
    Ok(())
}
