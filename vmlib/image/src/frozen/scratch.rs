//! Memory that is in no image: the stacks on which a save runs, and buffers. Their content changes
//! while the image is written, so a checksum of it would not hold.
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

/// The stack of the thread that saves. Bytes.
const STACK: usize = 256 << 10;
/// The stack of the helper that makes heads. Bytes.
const HELPER: usize = 64 << 10;
/// The stack of the thread that sends memory while the program runs. Bytes.
const SENDER: usize = 256 << 10;
/// The memory that the sending thread shares with the program's threads. Bytes.
pub const PLACE: usize = 4096;
/// The notes for the recovery from faults, see [`crate::frozen::memory_faults`]. Bytes.
const RECORDS: usize = 4096;
/// The part of [`RECORDS`] that belongs to one stack. Bytes.
pub const RECORD: usize = RECORDS / 2;

/// The buffer for memory that is copied. Bytes.
const BUFFER: usize = crate::raw::records::BLOCK;
/// The memory that is lent to a pipe. Bytes.
pub const RING: usize = 4 << 20;
/// All memory of this module. Bytes.
const ALL: usize = STACK + HELPER + 2 * BUFFER + RING + SENDER + PLACE + RECORDS;

static BASE: AtomicUsize = AtomicUsize::new(0);

/// Reserves the memory, if it is not reserved yet.
pub fn reserve() -> Outcome<()> {
    if BASE.load(SeqCst) == 0 {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let base = sys::map(0, ALL, prot, flags).step("reserving a stack")?;
        // The memory must be a mapping of its own in the kernel's table, so that the image can
        // leave it out as a whole.
        // SAFETY: the memory is new. Without this advice the kernel would join a neighbour of the
        // same kind.
        unsafe { sys::call3(sys::nr::MADVISE, base, ALL, libc::MADV_DONTDUMP as usize) };
        BASE.store(base, SeqCst);
    }
    Ok(())
}

/// Whether the memory is reserved.
pub fn is_reserved() -> bool {
    BASE.load(SeqCst) != 0
}

/// Forgets the memory in a restored process, because it was not in the image.
pub fn forget() {
    BASE.store(0, SeqCst);
}

/// The addresses of the memory; from 0 if it is not reserved.
pub fn range() -> Range<usize> {
    let base = BASE.load(SeqCst);
    base..base + ALL
}

/// The upper end of the helper's stack.
pub fn helper_stack() -> usize {
    BASE.load(SeqCst) + STACK + HELPER
}

/// The upper end of the stack of the sending thread.
pub fn sender_stack() -> usize {
    place() as usize
}

/// The memory that the sending thread shares with the program's threads.
pub fn place() -> *mut u8 {
    (range().end - RECORDS - PLACE) as *mut u8
}

/// The id of the thread that sends memory during pre-copy rounds; 0: none. The thread's id is in
/// the first word of the shared memory, and the kernel clears the word when the thread ends.
pub fn sender_tid() -> i32 {
    // SAFETY: the memory is reserved, and the word is only used as an atomic.
    unsafe { AtomicU32::from_ptr(place().cast()) }.load(SeqCst) as i32
}

/// The [`RECORD`] of the stack that an address is in, if that is the stack of the saving thread or
/// of its helper.
pub fn record_of(address: usize) -> Option<*mut u8> {
    let base = BASE.load(SeqCst);
    let stacks = [base..base + STACK, base + STACK..base + STACK + HELPER];
    let index = stacks.iter().position(|stack| stack.contains(&address));
    let records = range().end - RECORDS;
    index
        .filter(|_| base != 0)
        .map(|index| (records + index * RECORD) as *mut u8)
}

/// The buffer for memory that is copied before it is written.
pub fn buffer() -> &'static mut [u8] {
    let start = BASE.load(SeqCst) + STACK + HELPER;
    // SAFETY: there is one save at a time, and its steps follow one another.
    unsafe { std::slice::from_raw_parts_mut(start as *mut u8, BUFFER) }
}

/// The buffer for memory that is compressed before it is written.
pub fn second_buffer() -> &'static mut [u8] {
    let start = BASE.load(SeqCst) + STACK + HELPER + BUFFER;
    // SAFETY: there is one save at a time, and its steps follow one another.
    unsafe { std::slice::from_raw_parts_mut(start as *mut u8, BUFFER) }
}

/// The buffer for memory that is copied before it is lent to a pipe: `len` bytes from offset `at`
/// of the [`RING`] bytes.
pub fn ring(at: usize, len: usize) -> &'static mut [u8] {
    assert!(at + len <= RING);
    let start = BASE.load(SeqCst) + STACK + HELPER + 2 * BUFFER + at;
    // SAFETY: there is one save at a time, and its steps follow one another.
    unsafe { std::slice::from_raw_parts_mut(start as *mut u8, len) }
}

/// Calls `work` on the stack of the saving thread.
///
/// # Safety
/// To be called after [`reserve`], by one thread at a time.
pub unsafe fn call(work: extern "C" fn()) {
    let top = BASE.load(SeqCst) + STACK;
    // SAFETY: the stack is large enough and no other code uses it. The registers that a call may
    // change are declared as changed, and the old stack pointer is restored.
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
