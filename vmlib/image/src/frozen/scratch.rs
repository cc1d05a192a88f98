//! Memory that is in no image: the stacks on which a save runs. What they hold changes while the
//! image is written, so it could not be checked.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    frozen::fault::{Outcome, Step as _},
    raw::sys,
};
use std::{
    arch::asm,
    ops::Range,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
};

/// Bytes of the stack of the thread that saves.
const STACK: usize = 256 << 10;
/// Bytes of the stack of its helper.
const HELPER: usize = 64 << 10;
/// Bytes of the stack of the thread that sends memory while the program runs.
const SENDER: usize = 256 << 10;
/// Bytes of what that thread shares with the others.
pub const PLACE: usize = 4096;
/// Bytes of what the recovery from faults notes, see [`crate::frozen::memory_faults`].
const RECORDS: usize = 4096;
/// Bytes of the part of [`RECORDS`] that belongs to one stack.
pub const RECORD: usize = RECORDS / 2;

/// Bytes of the buffer for memory that is copied.
const BUFFER: usize = crate::raw::records::BLOCK;
/// Bytes of the memory that is lent to a pipe.
pub const RING: usize = 4 << 20;
/// Bytes of all.
const ALL: usize = STACK + HELPER + 2 * BUFFER + RING + SENDER + PLACE + RECORDS;

static BASE: AtomicUsize = AtomicUsize::new(0);

/// Makes sure that there is some.
pub fn reserve() -> Outcome<()> {
    if BASE.load(SeqCst) == 0 {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let base = sys::map(0, ALL, prot, flags).step("reserving a stack")?;
        // A mapping of its own in the kernel's table, so that it can be left out as a whole.
        // SAFETY: it is new; without that advice a neighbour of the same kind would be joined.
        unsafe { sys::call3(sys::nr::MADVISE, base, ALL, libc::MADV_DONTDUMP as usize) };
        BASE.store(base, SeqCst);
    }
    Ok(())
}

/// Whether there is some.
pub fn is_reserved() -> bool {
    BASE.load(SeqCst) != 0
}

/// It was not in the image.
pub fn forget() {
    BASE.store(0, SeqCst);
}

/// Where it is.
pub fn range() -> Range<usize> {
    let base = BASE.load(SeqCst);
    base..base + ALL
}

/// The end of the helper's stack.
pub fn helper_stack() -> usize {
    BASE.load(SeqCst) + STACK + HELPER
}

/// The end of the stack of the thread that sends memory while the program runs.
pub fn sender_stack() -> usize {
    place() as usize
}

/// What that thread shares with the others.
pub fn place() -> *mut u8 {
    (range().end - RECORDS - PLACE) as *mut u8
}

/// The id of the thread that sends memory during pre-copy rounds; 0: there is none. The thread
/// keeps its id in the first word of what it shares, and the kernel clears the word when the
/// thread ends.
pub fn sender_tid() -> i32 {
    // SAFETY: the memory is reserved, and the word is only used as an atomic.
    unsafe { AtomicU32::from_ptr(place().cast()) }.load(SeqCst) as i32
}

/// The [`RECORD`] of the stack that an address is in, if that is the stack of the thread that
/// saves or of its helper.
pub fn record_of(address: usize) -> Option<*mut u8> {
    let base = BASE.load(SeqCst);
    let stacks = [base..base + STACK, base + STACK..base + STACK + HELPER];
    let index = stacks.iter().position(|stack| stack.contains(&address));
    let records = range().end - RECORDS;
    index
        .filter(|_| base != 0)
        .map(|index| (records + index * RECORD) as *mut u8)
}

/// Room for memory that is copied before it is written.
pub fn buffer() -> &'static mut [u8] {
    let start = BASE.load(SeqCst) + STACK + HELPER;
    // SAFETY: one save at a time, and its steps follow one another.
    unsafe { std::slice::from_raw_parts_mut(start as *mut u8, BUFFER) }
}

/// Room for memory that is compressed before it is written.
pub fn second_buffer() -> &'static mut [u8] {
    let start = BASE.load(SeqCst) + STACK + HELPER + BUFFER;
    // SAFETY: one save at a time, and its steps follow one another.
    unsafe { std::slice::from_raw_parts_mut(start as *mut u8, BUFFER) }
}

/// Room for memory that is copied before it is lent to a pipe, at that place of [`RING`] bytes.
pub fn ring(at: usize, len: usize) -> &'static mut [u8] {
    assert!(at + len <= RING);
    let start = BASE.load(SeqCst) + STACK + HELPER + 2 * BUFFER + at;
    // SAFETY: one save at a time, and its steps follow one another.
    unsafe { std::slice::from_raw_parts_mut(start as *mut u8, len) }
}

/// Calls `work` on the stack for it.
///
/// # Safety
/// One thread at a time, after [`reserve`].
pub unsafe fn call(work: extern "C" fn()) {
    let top = BASE.load(SeqCst) + STACK;
    // SAFETY: the stack is large enough and nobody else's; the registers that a call may change are
    // said to be changed, and the old stack comes back.
    unsafe {
        asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {work}",
            "mov rsp, r12",
            top = in(reg) top,
            work = in(reg) work,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}
