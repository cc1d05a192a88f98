//! Advice that the kernel has for memory, besides its rights: large pages or none, locked, left out
//! of children or of core files.
//!
//! The kernel reports the advice in `/proc/self/smaps`, and looks at every page for that. So the
//! file is read only if there may be advice: if the program has called `madvise`, which is
//! interposed for that purpose, or has locked memory.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    capture::{limits, memory, proc, vdso},
    frozen::{
        arena::List,
        fault::{Outcome, refuse},
        left_out,
    },
    raw::{
        records::MAPPINGS_MAX,
        sys::{self, nr},
    },
};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The number of calls that gave advice of a kind in [`KINDS`].
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// A kind of advice: its flag in smaps, the advice that gives it, and the advice that takes it
/// back.
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

/// The kinds that an image has. The first two would keep memory from a copy that writes the image.
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
/// Bits of locked memory, behind those of [`KINDS`]: all of it, or the touched pages.
const LOCKED: u32 = 1 << KINDS.len();
const LOCKED_ON_FAULT: u32 = LOCKED << 1;

/// The advice for a piece of memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Advice {
    start: usize,
    len: usize,
    /// One bit for each of [`KINDS`], and the bits of locked memory.
    kinds: u32,
}

/// All advice, ascending by address.
pub fn capture() -> Outcome<&'static [Advice]> {
    let status = proc::read_file(b"/proc/self/status\0", "looking at the process")?;
    let locked = proc::field(status, "VmLck").and_then(proc::decimal);
    if GIVEN.load(SeqCst) == 0 && locked.unwrap_or(0) == 0 {
        return Ok(&[]);
    }
    // Without the file the advice is not known and is lost.
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
        if kinds != 0 && !left_out::is_left_out(&range) {
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
    // Memory of devices and of the kernel has some of these flags by itself.
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
    // SAFETY: no kind of advice changes the content of memory. Advice that is not allowed or known
    // here is not needed for correctness.
    let _ = unsafe { memory::advise(start..start + at.len as u64, advice) };
}

/// Takes back the advice that keeps memory from a copy of the process. To be called before the copy
/// is made, and undone by [`give`].
pub fn take_back(all: &[Advice]) {
    for (index, kind) in KINDS.iter().enumerate() {
        let Some(advice) = kind.taken_back else {
            continue;
        };
        let given = all.iter().filter(|at| at.kinds & 1 << index != 0);
        given.for_each(|at| advise(at, advice));
    }
}

/// Gives the advice of one kind again.
pub fn give_again(all: &[Advice], advice: i32) {
    let index = KINDS.iter().position(|kind| kind.given == advice);
    let given = |at: &&Advice| index.is_some_and(|index| at.kinds & 1 << index != 0);
    all.iter().filter(given).for_each(|at| advise(at, advice));
}

/// Gives all advice again. Advice that is not allowed or known here is not needed for correctness.
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
            // SAFETY: the call does not change the content of memory.
            let locked = unsafe { sys::call3(MLOCK2, at.start, at.len, on_fault.into()) };
            let limit = limits::hard_limit(libc::RLIMIT_MEMLOCK);
            let is_locked = |at: &&Advice| at.kinds & (LOCKED | LOCKED_ON_FAULT) != 0;
            let wanted: usize = all.iter().filter(is_locked).map(|at| at.len).sum();
            if locked < 0 && limit < wanted as u64 {
                return refuse!(
                    "the limit on locked memory (RLIMIT_MEMLOCK) is {limit} bytes here, and the process \
                     has {wanted} locked: raise it"
                );
            }
        }
    }
    Ok(())
}

/// As in Linux; also counts advice of a kind in [`KINDS`].
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
            // SAFETY: `errno` belongs to this thread.
            unsafe { *libc::__errno_location() = error.0 };
            -1
        }
    }
}

/// As in POSIX; also counts advice of a kind in [`KINDS`]. The C library's function does not call
/// the interposed `madvise`.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(start: *mut libc::c_void, len: usize, advice: i32) -> i32 {
    // The POSIX advice discards nothing.
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
    fn flags_are_parsed_as_the_kernel_writes_them() {
        assert_eq!(kinds_of(b" rd wr mr mw me ac sd "), 0);
        assert_eq!(kinds_of(b" rd wr mr mw me dc wf ac"), 1 | 2);
        assert_eq!(kinds_of(b" rd wr lo ac hg"), LOCKED | 4);
        assert_eq!(kinds_of(b" rd ex mr mw me de io dc dd"), 0);
    }
}
