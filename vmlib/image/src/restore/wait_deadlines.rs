//! Adjusts the deadlines of waiting threads to the clock of the host of the restore.
//!
//! `CLOCK_MONOTONIC` starts at the boot of a host. Condition variables, channels and parked
//! threads, of the C library and of Rust's, wait at a futex until a deadline of that clock. On a
//! host that was booted later such a wait would last for days; on a host booted earlier it would
//! end at once. A thread that was stopped in such a call is recognised by its registers. Its
//! deadline in memory is moved by the difference of the clocks before the thread resumes. The
//! caller in the C library, which computed the deadline, sees an interrupted wait and repeats it
//! with the adjusted deadline.
//!
//! A deadline that no thread waits for at the save is a plain number of the program and is not
//! adjusted.

use crate::{
    capture::thread::Thread,
    raw::{records::Mapping, sys::nr},
};

/// `FUTEX_WAIT_BITSET`, private or not.
const WAIT_BITSET: u64 = 9;
const PRIVATE_FLAG: u64 = 128;
/// The deadline is of the wall clock.
const REALTIME_FLAG: u64 = 256;
/// Wakes for any bit.
const MATCH_ANY: u64 = 0xffff_ffff;
/// A deadline farther away is not one: the memory holds something else. Nanoseconds.
const FAR_NS: i128 = 100 * 365 * 86_400 * 1_000_000_000;
/// The instruction `syscall`.
const INSTRUCTION: [u8; 2] = [0x0f, 0x05];

/// Moves the deadline of the wait that a thread was stopped in, if it was in one, by `ahead_ns`:
/// this host's clock less the clock of the save's host. `memory` lists the memory that the thread
/// may point to.
pub fn shift(thread: &Thread, monotonic_ns: u64, ahead_ns: i128, memory: &[Mapping]) {
    // SAFETY: the frame is as the kernel wrote it.
    let registers = unsafe {
        &(*(thread.frame as *const libc::ucontext_t))
            .uc_mcontext
            .gregs
    };
    let register = |index: i32| registers[index as usize] as u64;
    let (at, result) = (register(libc::REG_RIP), register(libc::REG_RAX));
    // Either the call is about to be repeated, or it has ended with EINTR.
    let again = result == nr::FUTEX as u64 && is_call(at, memory);
    let interrupted =
        result as i64 == -i64::from(libc::EINTR) && is_call(at.wrapping_sub(2), memory);
    let operation = register(libc::REG_RSI) & !PRIVATE_FLAG;
    let place = register(libc::REG_R10);
    let waits = operation == WAIT_BITSET
        && operation & REALTIME_FLAG == 0
        && register(libc::REG_R9) & MATCH_ANY == MATCH_ANY;
    if !(again || interrupted) || !waits || !is_there(place, 16, memory, libc::PROT_WRITE) {
        return;
    }
    // SAFETY: mapped and writable, and the thread that owns it is stopped.
    let time = unsafe { &mut *(place as *mut [i64; 2]) };
    let then = i128::from(time[0]) * 1_000_000_000 + i128::from(time[1]);
    let left = then - i128::from(monotonic_ns);
    if time[1] < 0 || time[1] >= 1_000_000_000 || left.abs() > FAR_NS {
        return;
    }
    let now = (then + ahead_ns).max(0);
    *time = [(now / 1_000_000_000) as i64, (now % 1_000_000_000) as i64];
}

fn is_call(at: u64, memory: &[Mapping]) -> bool {
    // SAFETY: mapped and readable.
    is_there(at, 2, memory, libc::PROT_READ) && unsafe { *(at as *const [u8; 2]) } == INSTRUCTION
}

/// Whether `len` bytes at an address lie in one mapping that has these rights.
pub fn is_there(at: u64, len: u64, memory: &[Mapping], rights: i32) -> bool {
    let index = memory.partition_point(|mapping| mapping.end <= at);
    let end = at.checked_add(len);
    memory.get(index).is_some_and(|mapping| {
        let inside = mapping.start <= at && end.is_some_and(|end| end <= mapping.end);
        inside && mapping.prot & rights as u32 == rights as u32
    })
}
