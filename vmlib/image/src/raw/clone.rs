//! Makes threads and processes by the bare system call, unknown to the C library.

use crate::raw::sys::{self, nr};
use core::arch::asm;

/// The properties of a new thread besides its stack.
#[derive(Clone, Copy, Default)]
pub struct CloneArguments {
    /// `CLONE_VM` and other flags.
    pub flags: usize,
    /// The address of the word where the kernel writes the thread's id and clears it.
    pub tid_address: usize,
    /// The base of thread-local storage.
    pub tls: usize,
}

/// Runs `work(argument)` in a new thread or process, on the stack that ends at `top`. The thread or
/// process ends with status 0 when `work` returns. Returns its id, or the kernel's error as a
/// negative number.
///
/// # Safety
/// No other code uses the stack. `work` has only the thread-locals of its parent, and must not use
/// the C library.
pub unsafe fn spawn(
    given: CloneArguments,
    top: usize,
    work: extern "C" fn(usize),
    argument: usize,
) -> isize {
    let top = top & !15;
    let value;
    // SAFETY: the new thread takes its arguments from registers and leaves this code by `exit`; for
    // the calling thread the code is an ordinary system call.
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

/// Makes a copy of this process with the calling thread alone, which sends no signal when it ends.
/// Returns 0 in the copy; in this process, the copy's id or the kernel's error as a negative
/// number.
///
/// # Safety
/// The copy must not use the C library, because another thread may have held any lock.
pub unsafe fn fork() -> isize {
    // SAFETY: with a stack of 0 the copy continues on a copy of this stack.
    unsafe { sys::call5(nr::CLONE, 0, 0, 0, 0, 0) }
}

/// Waits for a helper or a copy of this process. Returns the status as of wait(2); `None` if there
/// is no such child.
pub fn wait(pid: i32) -> Option<i32> {
    /// `__WALL`: includes children that send no signal when they end.
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
