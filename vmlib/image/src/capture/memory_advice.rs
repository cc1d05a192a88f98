//! What the kernel was told of memory besides its rights: large pages or none, locked, left out of
//! copies of the process or of core files.
//!
//! The kernel tells it in `/proc/self/smaps`, for which it looks at every page. So it is asked only
//! where there may be something to tell: where the program has called `madvise`, which is put
//! before the C library's for that, or has locked memory.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    capture::{limits, memory, proc, vdso},
    frozen::{
        arena::List,
        fault::{Outcome, refuse},
    },
    raw::{
        records::MAPPINGS_MAX,
        sys::{self, nr},
    },
};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Some advice was given that is kept. Counts up.
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// A kind of advice: how the kernel shows it, how it is given, and taken back.
struct Kind {
    shown: &'static [u8],
    given: i32,
    taken_back: Option<i32>,
}

const fn kind(shown: &'static [u8], given: i32, taken_back: Option<i32>) -> Kind {
    Kind {
        shown,
        given,
        taken_back,
    }
}

/// What is kept. The first two are in the way of a copy that writes the image.
const KINDS: [Kind; 8] = [
    kind(b"dc", libc::MADV_DONTFORK, Some(libc::MADV_DOFORK)),
    kind(b"wf", libc::MADV_WIPEONFORK, Some(libc::MADV_KEEPONFORK)),
    kind(b"hg", libc::MADV_HUGEPAGE, None),
    kind(b"nh", libc::MADV_NOHUGEPAGE, None),
    kind(b"dd", libc::MADV_DONTDUMP, None),
    kind(b"mg", libc::MADV_MERGEABLE, None),
    kind(b"sr", libc::MADV_SEQUENTIAL, None),
    kind(b"rr", libc::MADV_RANDOM, None),
];
/// The bits of locked memory, behind those of [`KINDS`]: all of it, or what was touched.
const LOCKED: u32 = 1 << KINDS.len();
const LOCKED_ON_FAULT: u32 = LOCKED << 1;

/// What was told of a piece of memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Advice {
    start: usize,
    len: usize,
    /// A bit for each of [`KINDS`], and those of locked memory.
    kinds: u32,
}

/// All that is kept, by address.
pub fn capture() -> Outcome<&'static [Advice]> {
    let status = proc::read_file(b"/proc/self/status\0", "looking at the process")?;
    let locked = proc::field(status, "VmLck").and_then(proc::decimal);
    if GIVEN.load(SeqCst) == 0 && locked.unwrap_or(0) == 0 {
        return Ok(&[]);
    }
    // A kernel may lack the file; then nothing is known.
    let Ok(file) = proc::read_file(b"/proc/self/smaps\0", "looking at the memory") else {
        return Ok(&[]);
    };
    // SAFETY: zeros are values of all fields.
    let mut list = unsafe { List::<Advice>::new(MAPPINGS_MAX)? };
    let mut range = 0..0;
    for line in file.split(|byte| *byte == b'\n') {
        let Some(flags) = line.strip_prefix(b"VmFlags:") else {
            if let Some((found, _)) = vdso::range_and_name(line) {
                range = found;
            }
            continue;
        };
        let kinds = kinds_of(flags);
        if kinds != 0 {
            let advice = Advice {
                start: range.start,
                len: range.len(),
                kinds,
            };
            list.push(advice, "mappings")?;
        }
    }
    Ok(list.into_static())
}

fn kinds_of(flags: &[u8]) -> u32 {
    // Memory of devices and the kernel has some of these by itself.
    let has = |flag: &[u8]| proc::words(flags).any(|word| word == flag);
    if has(b"io") || has(b"pf") {
        return 0;
    }
    let bits = KINDS
        .iter()
        .enumerate()
        .filter(|(_, kind)| has(kind.shown))
        .fold(0, |bits, (index, _)| bits | 1 << index);
    match (has(b"lo"), has(b"lf")) {
        (false, _) => bits,
        (true, false) => bits | LOCKED,
        (true, true) => bits | LOCKED_ON_FAULT,
    }
}

fn advise(at: &Advice, advice: i32) {
    let start = at.start as u64;
    // SAFETY: none of these changes what memory holds. What is not allowed or known here is not
    // needed to be right.
    let _ = unsafe { memory::advise(start..start + at.len as u64, advice) };
}

/// Before the process is copied: the copy is to have all memory. To be undone by [`give`].
pub fn take_back(all: &[Advice]) {
    for (index, kind) in KINDS.iter().enumerate() {
        let Some(advice) = kind.taken_back else {
            continue;
        };
        let given = all.iter().filter(|at| at.kinds & 1 << index != 0);
        given.for_each(|at| advise(at, advice));
    }
}

/// Gives advice of one kind again.
pub fn give_again(all: &[Advice], advice: i32) {
    let index = KINDS.iter().position(|kind| kind.given == advice);
    let given = |at: &&Advice| index.is_some_and(|index| at.kinds & 1 << index != 0);
    all.iter().filter(given).for_each(|at| advise(at, advice));
}

/// Gives the advice again; what is not allowed or known here is not needed to be right.
///
/// # Errors
/// The limit on locked memory is too low.
pub fn give(all: &[Advice]) -> Outcome<()> {
    const MLOCK2: usize = 325;
    for at in all {
        for (index, kind) in KINDS.iter().enumerate() {
            if at.kinds & 1 << index != 0 {
                advise(at, kind.given);
            }
        }
        if at.kinds & (LOCKED | LOCKED_ON_FAULT) != 0 {
            let on_fault = at.kinds & LOCKED_ON_FAULT != 0;
            // SAFETY: it changes nothing that memory holds.
            let locked = unsafe { sys::call3(MLOCK2, at.start, at.len, on_fault.into()) };
            let limit = limits::hard_limit(libc::RLIMIT_MEMLOCK);
            let is_locked = |at: &&Advice| at.kinds & (LOCKED | LOCKED_ON_FAULT) != 0;
            let wanted: usize = all.iter().filter(is_locked).map(|at| at.len).sum();
            if locked < 0 && limit < wanted as u64 {
                return refuse!(
                    "the limit on locked memory (RLIMIT_MEMLOCK) is {limit} bytes here, and it has \
                     {wanted} locked: raise it"
                );
            }
        }
    }
    Ok(())
}

/// As in Linux; advice that is kept is noted.
///
/// # Safety
/// As in Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut libc::c_void, len: usize, advice: i32) -> i32 {
    if KINDS.iter().any(|kind| kind.given == advice) {
        GIVEN.fetch_add(1, SeqCst);
    }
    // SAFETY: as promised by the caller.
    let value = unsafe { sys::call3(nr::MADVISE, start as usize, len, advice as usize) };
    match sys::check(value) {
        Ok(_) => 0,
        Err(error) => {
            // SAFETY: this thread's own.
            unsafe { *libc::__errno_location() = error.0 };
            -1
        }
    }
}

/// As in POSIX; advice that is kept is noted. The C library's does not call `madvise` by its name.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(start: *mut libc::c_void, len: usize, advice: i32) -> i32 {
    // Which throws nothing away there.
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    if KINDS.iter().any(|kind| kind.given == advice) {
        GIVEN.fetch_add(1, SeqCst);
    }
    // SAFETY: as promised by the caller; the numbers are those of `madvise`.
    let value = unsafe { sys::call3(nr::MADVISE, start as usize, len, advice as usize) };
    sys::check(value).map_or_else(|error| error.0, |_| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_the_kernel_tells_them() {
        assert_eq!(kinds_of(b" rd wr mr mw me ac sd "), 0);
        assert_eq!(kinds_of(b" rd wr mr mw me dc wf ac"), 1 | 2);
        assert_eq!(kinds_of(b" rd wr lo ac hg"), LOCKED | 4);
        assert_eq!(kinds_of(b" rd ex mr mw me de io dc dd"), 0);
    }
}
