//! Memory that the kernel may empty at any time (MAP_DROPPABLE, Linux 6.11).
//!
//! C libraries keep the state of `getrandom` there (glibc 2.41), which no two processes may share:
//! a restored process gets such memory empty, as a child does, and it is seeded anew.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    capture::{
        memory,
        memory_advice::{self, Advice},
    },
    frozen::{
        arena::List,
        fault::{Outcome, Step as _},
    },
    raw::{
        records::{MAPPINGS_MAX, Mapping},
        sys::{self, Errno},
    },
};

/// A mapping that is larger is taken for ordinary memory. Bytes: C libraries take some pages at a
/// time.
const LEN_MAX: u64 = 1 << 20;
const MAP_DROPPABLE: i32 = 8;

const RIGHTS: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Finds such memory among the mappings of a frozen process: the kernel refuses to have core
/// files hold it. Others lose a MADV_DONTDUMP so, and get it again if it is among the advice.
pub fn find(mappings: &[Mapping], advice: &[Advice]) -> Outcome<&'static [[u64; 2]]> {
    // SAFETY: zeros are values.
    let mut list = unsafe { List::<[u64; 2]>::new(MAPPINGS_MAX)? };
    for mapping in mappings {
        let len = mapping.end - mapping.start;
        let is_like_it = memory::is_anonymous(mapping)
            && mapping.name.len == 0
            && mapping.prot == RIGHTS as u32
            && len <= LEN_MAX;
        // SAFETY: it does not change what memory holds.
        let dump = || unsafe { memory::advise(mapping.start..mapping.end, libc::MADV_DODUMP) };
        if is_like_it && dump() == Err(Errno(libc::EINVAL)) {
            list.push([mapping.start, mapping.end], "mappings")?;
        }
    }
    memory_advice::give_again(advice, libc::MADV_DONTDUMP);
    Ok(list.into_static())
}

/// In a process that is being restored: has that memory, empty. A kernel that does not know it
/// gives ordinary memory that children do not get either.
pub fn make(all: &[[u64; 2]]) -> Outcome<()> {
    for &[start, end] in all {
        let map = |kind| {
            let flags = libc::MAP_ANONYMOUS | libc::MAP_FIXED | kind;
            sys::map(start as usize, (end - start) as usize, RIGHTS, flags)
        };
        map(MAP_DROPPABLE)
            .or_else(|_| map(libc::MAP_PRIVATE))
            .step("getting memory that may be emptied")?;
        for advice in [libc::MADV_WIPEONFORK, libc::MADV_DONTDUMP] {
            // SAFETY: they do not change what memory holds.
            unsafe { memory::advise(start..end, advice) }.step("giving advice for memory")?;
        }
    }
    Ok(())
}
