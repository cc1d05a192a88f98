//! The kernel's code in every process, the vdso: its address, and a copy of its bytes.
//!
//! A program stores addresses of functions in the vdso. In the restored process the vdso must be at
//! the same address. If the kernel there has another vdso, the old bytes must be there, with each
//! entry leading to the new code. So the library makes a copy of the bytes, which is in the image.

use crate::{
    capture::proc,
    frozen::fault::{Outcome, refuse},
    raw::{checksum::checksum, sys},
};
use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
static AREA: AtomicUsize = AtomicUsize::new(0);
static COPY: AtomicUsize = AtomicUsize::new(0);
static CHECK: AtomicUsize = AtomicUsize::new(0);

/// The addresses and the content of the vdso.
#[derive(Clone, Copy, Debug)]
pub struct Vdso {
    /// The first address of the vdso's data, which lies before the code.
    pub area: u64,
    /// The first address of the code.
    pub start: u64,
    /// The first address behind the code.
    pub end: u64,
    /// Checksum of the code.
    pub check: u64,
    /// The address of the copy of the code.
    pub copy: u64,
}

/// Finds the vdso, once in a process.
pub fn find() -> Outcome<Vdso> {
    if START.load(Relaxed) == 0 {
        look_up()?;
    }
    let value = |word: &AtomicUsize| word.load(Relaxed) as u64;
    Ok(Vdso {
        area: value(&AREA),
        start: value(&START),
        end: value(&END),
        check: value(&CHECK),
        copy: value(&COPY),
    })
}

/// Reads the mappings. Runs once, before the first save: in a restored process the result is still
/// in memory, and describes the old vdso, whatever code runs there.
fn look_up() -> Outcome<()> {
    let maps = proc::read_file(b"/proc/self/maps\0", "reading the mappings")?;
    let mut area: Option<usize> = None;
    for line in maps.split(|byte| *byte == b'\n') {
        let Some((range, name)) = range_and_name(line) else {
            continue;
        };
        if name.starts_with(b"[vvar") {
            area = area.or(Some(range.start));
        } else if name == b"[vdso]" {
            return keep(area.unwrap_or(range.start), range);
        }
    }
    refuse!("the kernel gives this process no vdso")
}

fn keep(area: usize, code: Range<usize>) -> Outcome<()> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let Ok(copy) = sys::map(0, code.len(), prot, flags) else {
        return refuse!("there is no memory for a copy of the vdso");
    };
    // SAFETY: the vdso is readable; the copy's memory is new, and no other code knows it.
    let check = unsafe {
        let bytes = std::slice::from_raw_parts(code.start as *const u8, code.len());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy as *mut u8, bytes.len());
        checksum(bytes)
    };
    COPY.store(copy, Relaxed);
    CHECK.store(check as usize, Relaxed);
    AREA.store(area, Relaxed);
    END.store(code.end, Relaxed);
    START.store(code.start, Relaxed);
    Ok(())
}

/// Whether an address is in the vdso's code.
pub fn contains(address: usize) -> bool {
    (START.load(Relaxed)..END.load(Relaxed)).contains(&address)
}

/// The addresses and the name in a line of `/proc/self/maps`.
pub fn range_and_name(line: &[u8]) -> Option<(Range<usize>, &[u8])> {
    let mut words = proc::words(line);
    let mut ends = words.next()?.split(|byte| *byte == b'-');
    let start = proc::hexadecimal(ends.next()?)? as usize;
    let end = proc::hexadecimal(ends.next()?)? as usize;
    // Skips protection, offset, device, inode.
    let name = words.nth(4).unwrap_or_default();
    Some((start..end, name))
}
