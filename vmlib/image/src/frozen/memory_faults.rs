//! Has memory that cannot be read end a save, and not the process.
//!
//! A process may have memory that is mapped and faults at every access: pages that the hardware has
//! lost, a file that became shorter, guard pages that the kernel does not report. A save reads the
//! program's memory only in [`caught`]. During the save, [`FaultHandlers`] replaces the handlers of
//! the two signals for such faults. A copy of the process and the helper that makes heads inherit
//! these handlers.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    frozen::{
        fault::{Fault, Outcome, Step as _, Text},
        scratch, signal,
    },
    raw::sys::{self, Errno, nr},
};
use std::{arch::naked_asm, mem::MaybeUninit};

/// The signals that the kernel sends for memory that cannot be read.
const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// The direction flag, which must be clear when a function is called.
const DIRECTION: i64 = 1 << 10;

/// Where a thread continues after a fault. There is one record for each stack, in memory that is in
/// no image.
#[repr(C)]
struct Record {
    /// The stack pointer to continue with.
    stack: usize,
    /// The address of the instruction to continue at; 0: no fault is expected.
    resume: usize,
    /// The address that could not be read.
    address: usize,
}

const _: () = assert!(size_of::<Record>() <= scratch::RECORD);

/// Has faults in [`caught`] be caught while the value lives. For the saving thread, while all other
/// threads are stopped.
pub struct FaultHandlers {
    before: [signal::Action; SIGNALS.len()],
    mask: u64,
}

impl FaultHandlers {
    /// Replaces the program's handlers, which the save has captured before.
    pub fn begin() -> Outcome<Self> {
        let mut before = [signal::Action::default(); SIGNALS.len()];
        let mut set = 0;
        for (signal, before) in SIGNALS.iter().zip(&mut before) {
            // SAFETY: the call only reads.
            *before = unsafe { signal::action(*signal, None) }.step("reading a signal's action")?;
            signal::install_at(*signal, on_fault)?;
            set |= signal::bit(*signal);
        }
        let mask = signal::mask(libc::SIG_UNBLOCK, set);
        Ok(FaultHandlers { before, mask })
    }
}

impl Drop for FaultHandlers {
    fn drop(&mut self) {
        signal::mask(libc::SIG_SETMASK, self.mask);
        for (signal, before) in SIGNALS.iter().zip(&self.before) {
            // SAFETY: the handler is the program's own, and was accepted before.
            let _ = unsafe { signal::action(*signal, Some(before)) };
        }
    }
}

/// Does work that reads memory which may not be readable. On a stack that is not one of a save's,
/// faults are not caught.
///
/// # Errors
/// The memory that could not be read.
///
/// # Safety
/// The work may end at any of its loads and stores: it owns nothing that must be dropped.
pub unsafe fn caught<T>(work: impl FnOnce() -> T) -> Outcome<T> {
    let here = 0u8;
    let Some(record) = scratch::record_of(&raw const here as usize) else {
        return Ok(work());
    };
    let mut call = Call {
        work: Some(work),
        value: MaybeUninit::uninit(),
    };
    let (record, argument) = (record.cast::<Record>(), &raw mut call as usize);
    // SAFETY: the record belongs to this stack, and `argument` is a `Call` of that type.
    match unsafe { enter(record, run_of(&call), argument) } {
        // SAFETY: the work has ended normally.
        0 => Ok(unsafe { call.value.assume_init() }),
        _ => {
            // SAFETY: as above.
            let address = unsafe { (*record).address };
            let text = Text::of(format_args!("reading the memory at {address:#x}"));
            Err(Fault::Failed(text, Errno(libc::EFAULT)))
        }
    }
}

/// Work, and its result.
struct Call<F, T> {
    work: Option<F>,
    value: MaybeUninit<T>,
}

fn run_of<F: FnOnce() -> T, T>(_: &Call<F, T>) -> extern "C" fn(usize) {
    run::<F, T>
}

extern "C" fn run<F: FnOnce() -> T, T>(call: usize) {
    // SAFETY: `caught` waits for this call.
    let call = unsafe { &mut *(call as *mut Call<F, T>) };
    if let Some(work) = call.work.take() {
        call.value.write(work());
    }
}

/// Calls `work(argument)` and returns 0, or 1 if a fault has ended it.
///
/// # Safety
/// The record belongs to this stack.
#[unsafe(naked)]
unsafe extern "C" fn enter(
    record: *mut Record,
    work: extern "C" fn(usize),
    argument: usize,
) -> usize {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdi",
        "mov [rdi], rsp",
        "lea rax, [rip + 2f]",
        "mov [rdi + 8], rax",
        "mov rdi, rdx",
        "call rsi",
        "xor eax, eax",
        "jmp 3f",
        "2:",
        "mov eax, 1",
        "3:",
        "pop rdi",
        "mov qword ptr [rdi + 8], 0",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// The beginning of `siginfo_t`, with the address of a fault.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    address: usize,
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: both are as the kernel wrote them.
    let (told, context) = unsafe { (&*info.cast::<Info>(), &mut *context) };
    if told.code <= 0 {
        // Another process has sent the signal: it stays pending until the save has ended.
        // SAFETY: the first 64 bits of the set are the kernel's. A process may send itself any
        // information.
        unsafe {
            *(&raw mut context.uc_sigmask).cast::<u64>() |= signal::bit(signal);
            let (pid, info) = (sys::getpid() as usize, info as usize);
            sys::call3(nr::RT_SIGQUEUEINFO, pid, signal as usize, info);
        }
        return;
    }
    let registers = &mut context.uc_mcontext.gregs;
    let stack = registers[libc::REG_RSP as usize] as usize;
    let record = scratch::record_of(stack).map(|record| record.cast::<Record>());
    // SAFETY: the record belongs to the stack on which this handler runs.
    match record.map(|record| unsafe { &mut *record }) {
        Some(record) if record.resume != 0 => {
            record.address = told.address;
            registers[libc::REG_RIP as usize] = record.resume as i64;
            registers[libc::REG_RSP as usize] = record.stack as i64;
            registers[libc::REG_EFL as usize] &= !DIRECTION;
        }
        // The fault is not in memory that a save reads, but a fault of this library: it ends the
        // process.
        _ => {
            // SAFETY: the default action.
            let _ = unsafe { signal::action(signal, Some(&signal::Action::default())) };
        }
    }
}
