//! Memory that the kernel may empty at any time (MAP_DROPPABLE, Linux 6.11).
//!
//! C libraries keep the state of `getrandom` there (glibc 2.41), which no two processes may share.
//! A restored process gets such memory empty, as a child does, and the C library seeds it anew.
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

/// A larger mapping is taken for ordinary memory, because C libraries map a few pages at a time.
/// Bytes.
const LEN_MAX: u64 = 1 << 20;
const MAP_DROPPABLE: i32 = 8;

const RIGHTS: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Finds droppable memory among the mappings of a frozen process: the kernel refuses MADV_DODUMP
/// for it. Other mappings lose MADV_DONTDUMP by that test, and get it again if it is in `advice`.
pub fn find(mappings: &[Mapping], advice: &[Advice]) -> Outcome<&'static [[u64; 2]]> {
    // SAFETY: zeros are values.
    let mut list = unsafe { List::<[u64; 2]>::new(MAPPINGS_MAX)? };
    for mapping in mappings {
        let len = mapping.end - mapping.start;
        let is_like_it = memory::is_anonymous(mapping)
            && mapping.name.len == 0
            && mapping.prot == RIGHTS as u32
            && len <= LEN_MAX;
        // SAFETY: the advice does not change the content of memory.
        let dump = || unsafe { memory::advise(mapping.start..mapping.end, libc::MADV_DODUMP) };
        if is_like_it && dump() == Err(Errno(libc::EINVAL)) {
            list.push([mapping.start, mapping.end], "mappings")?;
        }
    }
    memory_advice::give_again(advice, libc::MADV_DONTDUMP);
    Ok(list.into_static())
}

/// In a process that is being restored: maps the memory, empty. A kernel without droppable memory
/// gives ordinary memory, which children do not get either.
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
            // SAFETY: the advice does not change the content of memory.
            unsafe { memory::advise(start..end, advice) }.step("giving advice for memory")?;
        }
    }
    Ok(())
}
