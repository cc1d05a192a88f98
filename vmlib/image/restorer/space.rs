//! The restorer's own memory: its addresses, and fixed rooms for the data that it keeps. Also the
//! functions on memory that compilers expect of a C library.

use crate::{
    failure::die,
    raw::records::{BLOCK, MAPPINGS_MAX, Mapping, NAMES_MAX},
};
use core::ops::Range;

#[repr(C, align(4096))]
struct Room<const LEN: usize>([u8; LEN]);

static mut NAMES: Room<NAMES_MAX> = Room([0; NAMES_MAX]);
static mut MAPPINGS: [Room<MAPPINGS_LEN>; 3] = [const { Room([0; MAPPINGS_LEN]) }; 3];
static mut SCRATCH: Room<SCRATCH_LEN> = Room([0; SCRATCH_LEN]);
static mut HELPER: Room<HELPER_LEN> = Room([0; HELPER_LEN]);

/// Bytes of a table of mappings.
const MAPPINGS_LEN: usize = (MAPPINGS_MAX * size_of::<Mapping>()).next_multiple_of(4096);
static mut STORED: [Room<BLOCK>; 2] = [const { Room([0; BLOCK]) }; 2];

/// Bytes of [`scratch`].
const SCRATCH_LEN: usize = 1 << 20;
/// Bytes of the helper's stack.
const HELPER_LEN: usize = 64 << 10;

unsafe extern "C" {
    /// The first address of the program, and the first address behind it, set by the linker.
    static __executable_start: u8;
    static _end: u8;
}

/// The room for the names.
pub fn names() -> &'static mut [u8] {
    // SAFETY: called once, by the only thread.
    unsafe { &mut *(&raw mut NAMES.0) }
}

/// The rooms for tables of mappings: 2 for a table that was just read; 0 and 1, alternating, for
/// the joined table of all rounds.
pub fn mappings(turn: usize) -> &'static mut [u8] {
    // SAFETY: there is one thread, and a room is reused only when its table is not needed any more.
    unsafe { &mut *(&raw mut MAPPINGS[turn].0) }
}

/// A room for data that is used at once.
pub fn scratch() -> &'static mut [u8] {
    // SAFETY: no code keeps the data beyond a step, and steps follow one another.
    unsafe { &mut *(&raw mut SCRATCH.0) }
}

/// The room for the payload of a compressed section, one for each worker.
pub fn stored(len: usize, worker: usize) -> &'static mut [u8] {
    // SAFETY: each worker has its own room, and its steps follow one another.
    let room = unsafe { &mut *(&raw mut STORED[worker].0) };
    match room.get_mut(..len) {
        Some(room) => room,
        None => die!("a compressed section is too long"),
    }
}

/// The upper end of the helper's stack.
pub fn helper_stack() -> usize {
    (&raw const HELPER) as usize + HELPER_LEN
}

/// The addresses of the restorer.
pub fn own() -> Range<usize> {
    let start = (&raw const __executable_start) as usize;
    start..((&raw const _end) as usize).next_multiple_of(4096)
}

/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller promises that both ranges are valid and do not overlap.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: in this direction no byte is overwritten before it is read.
        return unsafe { memcpy(to, from, len) };
    }
    for index in (0..len).rev() {
        // SAFETY: the caller promises that both ranges are valid. The accesses are volatile, so
        // that the compiler does not make a call of this function of them.
        unsafe {
            to.add(index)
                .write_volatile(from.add(index).read_volatile())
        };
    }
    to
}

/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    // SAFETY: the caller promises that the range is valid.
    unsafe {
        core::arch::asm!(
            "rep stosb",
            inout("rcx") len => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    for index in 0..len {
        // SAFETY: the caller promises that both ranges are valid.
        let (a, b) = unsafe {
            (
                one.add(index).read_volatile(),
                other.add(index).read_volatile(),
            )
        };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    // SAFETY: as for `memcmp`.
    unsafe { memcmp(one, other, len) }
}

/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut len = 0;
    // SAFETY: the caller promises that there is a NUL.
    while unsafe { text.add(len).read_volatile() } != 0 {
        len += 1;
    }
    len
}
