//! Waits with a deadline, on a host whose clock shows another time.
//!
//! `CLOCK_MONOTONIC` begins with the boot of a host. A thread that waits at a futex until some time
//! of that clock - so wait condition variables, channels and parked threads, in the C library and
//! in Rust's - would wait for days on a host that was booted later, or not at all. A thread that
//! was stopped in such a call is found by its registers, and the deadline that they point to is
//! moved by the difference of the clocks before it resumes. Its caller, which computed the
//! deadline, sees that its wait was interrupted and waits on with what is now right.
//!
//! A deadline that nobody waits for at the moment of the save is the program's own number, and is
//! not touched.

use crate::{
    capture::thread::Thread,
    raw::{records::Mapping, sys::nr},
};

/// `FUTEX_WAIT_BITSET`, private or not.
const WAIT_BITSET: u64 = 9;
const PRIVATE_FLAG: u64 = 128;
/// The clock is that of the wall.
const REALTIME_FLAG: u64 = 256;
/// Any bit.
const MATCH_ANY: u64 = 0xffff_ffff;
/// A deadline farther away than this is taken for something else. Nanoseconds.
const FAR_NS: i128 = 100 * 365 * 86_400 * 1_000_000_000;
/// `syscall`.
const INSTRUCTION: [u8; 2] = [0x0f, 0x05];

/// Moves the deadline of the wait that a thread was stopped in, if there is one, by `ahead_ns`:
/// this host's clock less the other one's. `memory` is what the thread may point to.
pub fn shift(thread: &Thread, monotonic_ns: u64, ahead_ns: i128, memory: &[Mapping]) {
    // SAFETY: the frame as the kernel wrote it.
    let registers = unsafe {
        &(*(thread.frame as *const libc::ucontext_t))
            .uc_mcontext
            .gregs
    };
    let register = |index: i32| registers[index as usize] as u64;
    let (at, result) = (register(libc::REG_RIP), register(libc::REG_RAX));
    // Either the call is about to be made again, or it has ended with EINTR.
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
    // SAFETY: mapped and writable, and its owner is stopped.
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
