//! New threads and processes by the bare system call, which the C library knows nothing of.

use crate::raw::sys::{self, nr};
use core::arch::asm;

/// What a new thread is given besides its stack.
#[derive(Clone, Copy, Default)]
pub struct CloneArguments {
    /// `CLONE_VM` and so on.
    pub flags: usize,
    /// Where its id is written and cleared.
    pub tid_address: usize,
    /// Base of its thread-local storage.
    pub tls: usize,
}

/// Runs `work(argument)` on the stack that ends at `top`; when it returns, that thread or process
/// ends with 0. Returns its id, or the error as the kernel gives it.
///
/// # Safety
/// The stack belongs to nobody else. `work` finds no thread-locals but its parent's, and must not
/// use the C library.
pub unsafe fn spawn(
    given: CloneArguments,
    top: usize,
    work: extern "C" fn(usize),
    argument: usize,
) -> isize {
    let top = top & !15;
    let value;
    // SAFETY: the new one takes what it needs from registers and leaves this code by `exit`; for
    // this one it is a system call like any other.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const nr::EXIT,
            inlateout("rax") nr::CLONE as isize => value,
            in("rdi") given.flags,
            in("rsi") top,
            in("rdx") given.tid_address,
            in("r10") given.tid_address,
            in("r8") given.tls,
            in("r12") work,
            in("r13") argument,
            out("rcx") _,
            out("r11") _,
        );
    }
    value
}

/// A copy of this process with this thread alone, without a signal at its end. 0 in the copy.
///
/// # Safety
/// The copy must not use the C library: another thread may have held any lock.
pub unsafe fn fork() -> isize {
    // SAFETY: with a stack of 0 it goes on on a copy of this one.
    unsafe { sys::call5(nr::CLONE, 0, 0, 0, 0, 0) }
}

/// Waits for a worker or a copy of this process.
pub fn wait(pid: i32) -> Option<i32> {
    /// `__WALL`: children without a signal at their end, too.
    const WALL: usize = 0x4000_0000;
    let mut status = 0i32;
    loop {
        let to = &raw mut status as usize;
        // SAFETY: the kernel writes the status.
        let value = unsafe { sys::call4(nr::WAIT4, pid as usize, to, WALL, 0) };
        match sys::check(value) {
            Ok(_) => return Some(status),
            Err(sys::EINTR) => {}
            Err(_) => return None,
        }
    }
}
