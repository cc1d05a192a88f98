//! Puts the vdso, the kernel's code in every process, where the program expects it.
//!
//! If this kernel's vdso has the same bytes as the saved one, it is moved to the old address.
//! Another kernel's vdso cannot replace the old one, because the program knows addresses within
//! that. Then the old bytes are put at the old address, and each entry becomes a jump to this
//! kernel's function of the same name, or the plain system call.

use crate::{
    failure::die,
    memory::Kernels,
    raw::{
        checksum::checksum,
        records::Facts,
        sys::{self, nr},
    },
};
use core::ops::Range;

/// The functions that programs call, with the numbers of the equivalent system calls.
const FUNCTIONS: [(&[u8], u32); 12] = [
    (b"__vdso_clock_gettime", 228),
    (b"clock_gettime", 228),
    (b"__vdso_gettimeofday", 96),
    (b"gettimeofday", 96),
    (b"__vdso_time", 201),
    (b"time", 201),
    (b"__vdso_clock_getres", 229),
    (b"clock_getres", 229),
    (b"__vdso_getcpu", 309),
    (b"getcpu", 309),
    (b"__vdso_getrandom", GETRANDOM),
    (b"getrandom", GETRANDOM),
];
/// `getrandom` is never replaced by this kernel's function, because the program keeps state for it
/// in the layout of the old one. The system call takes the first three arguments and ignores the
/// rest.
const GETRANDOM: u32 = 318;

/// Puts the vdso in place. `foreign`, for tests, treats this kernel's code as another one.
pub fn place(kernels: &Kernels, facts: &Facts, foreign: bool) {
    let code = bytes(&kernels.code);
    let start = kernels.code.start - kernels.area;
    let same = code.len() as u64 == facts.vdso_len
        && checksum(code) == facts.vdso_check
        && start as u64 == facts.vdso - facts.vdso_area;
    if same && !foreign {
        let mut kernels = Kernels {
            parts: kernels.parts.clone(),
            code: kernels.code.clone(),
            ..*kernels
        };
        return kernels.move_to(facts.vdso_area as usize);
    }
    replace(kernels, facts);
}

fn bytes(range: &Range<usize>) -> &'static [u8] {
    // SAFETY: mapped and readable.
    unsafe { core::slice::from_raw_parts(range.start as *const u8, range.len()) }
}

fn replace(kernels: &Kernels, facts: &Facts) {
    let (start, len) = (facts.vdso as usize, facts.vdso_len as usize);
    const PRIVATE_ANONYMOUS_FIXED: i32 = 0x32;
    if let Err(error) = sys::map(start, len, 3, PRIVATE_ANONYMOUS_FIXED) {
        die!(
            "there is no memory for the old kernel's code: error {}",
            error.0
        );
    }
    // SAFETY: the range was just mapped; the copy is in the image, as the library made it.
    let old = unsafe {
        let copy = facts.vdso_copy as *const u8;
        core::ptr::copy_nonoverlapping(copy, start as *mut u8, len);
        core::slice::from_raw_parts_mut(start as *mut u8, len)
    };
    if checksum(old) != facts.vdso_check {
        die!("the old kernel's code is damaged");
    }
    for (name, number) in FUNCTIONS {
        let Some(at) = symbol(old, name) else {
            continue;
        };
        let Some(entry) = old.get_mut(at..at + 16) else {
            continue;
        };
        let target = symbol(bytes(&kernels.code), name).filter(|_| number != GETRANDOM);
        match target {
            // movabs rax, target; jmp rax
            Some(target) => {
                let target = kernels.code.start + target;
                entry[..2].copy_from_slice(&[0x48, 0xb8]);
                entry[2..10].copy_from_slice(&target.to_le_bytes());
                entry[10..12].copy_from_slice(&[0xff, 0xe0]);
            }
            // mov eax, number; syscall; ret
            None => {
                entry[0] = 0xb8;
                entry[1..5].copy_from_slice(&number.to_le_bytes());
                entry[5..8].copy_from_slice(&[0x0f, 0x05, 0xc3]);
            }
        }
    }
    // SAFETY: the range becomes executable again.
    let value = unsafe { sys::call3(nr::MPROTECT, start, len, 5) };
    if let Err(error) = sys::check(value) {
        die!(
            "the old kernel's code cannot be protected: error {}",
            error.0
        );
    }
}

/// The offset of the function of that name in an ELF image that is mapped as a whole.
fn symbol(elf: &[u8], name: &[u8]) -> Option<usize> {
    let word = |at: usize, len: usize| -> Option<usize> {
        let bytes = elf.get(at..at.checked_add(len)?)?;
        let mut all = [0; 8];
        all[..len].copy_from_slice(bytes);
        Some(usize::from_le_bytes(all))
    };
    // Searches the section headers for the dynamic symbols (type 11) and their strings.
    let (table, count) = (word(0x28, 8)?, word(0x3c, 2)?);
    let symbols = (0..count)
        .map(|index| table + 64 * index)
        .find(|at| word(at + 4, 4) == Some(11))?;
    let strings = table + 64 * word(symbols + 0x28, 4)?;
    let (from, len) = (word(symbols + 0x18, 8)?, word(symbols + 0x20, 8)?);
    let texts = word(strings + 0x18, 8)?;
    for at in (from..from.checked_add(len)?).step_by(24) {
        let text = elf.get(texts + word(at, 4)?..)?;
        let text = text.split(|byte| *byte == 0).next()?;
        let value = word(at + 8, 8)?;
        if text == name && value != 0 {
            return Some(value);
        }
    }
    None
}
