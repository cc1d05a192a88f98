//! A second worker, which shares the memory: a process of its own that ends by itself or with the
//! first worker.

use crate::{
    raw::{
        clone::{self, CloneArguments},
        sys::{self, nr},
    },
    space,
};

/// The task of a helper.
struct Help {
    help: extern "C" fn(usize),
    argument: usize,
    /// The process id of the first worker.
    parent: i32,
}

/// Runs `work` beside a helper that runs `help(argument)`, and waits until the helper has ended.
/// Returns the helper's status as of wait(2): 0 if it succeeded, or if no helper could be started.
///
/// # Safety
/// One helper at a time; the value that `argument` refers to outlives the call.
pub unsafe fn beside(help: extern "C" fn(usize), argument: usize, work: impl FnOnce()) -> i32 {
    // CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND.
    let given = CloneArguments {
        flags: 0x100 | 0x200 | 0x400 | 0x800,
        ..CloneArguments::default()
    };
    let told = Help {
        help,
        argument,
        parent: sys::getpid(),
    };
    // SAFETY: no other code uses the stack, and `told` outlives the helper; the caller promises the
    // rest.
    let helper =
        unsafe { clone::spawn(given, space::helper_stack(), run, &raw const told as usize) };
    work();
    let mut status = 0i32;
    if helper > 0 {
        const WALL: usize = 0x4000_0000;
        // SAFETY: the kernel writes the status.
        unsafe {
            let to = &raw mut status as usize;
            while sys::call4(nr::WAIT4, helper as usize, to, WALL, 0) == -4 {}
        }
    }
    status
}

extern "C" fn run(told: usize) {
    const SET_DEATH_SIGNAL: usize = 1;
    const KILL: usize = 9;
    // SAFETY: the value outlives this helper, or its memory does.
    let told = unsafe { &*(told as *const Help) };
    // SAFETY: the calls only set the death signal and read. Without the first worker the helper is
    // of no use, and a lock that the first worker held is never released.
    let parent = unsafe {
        sys::call2(nr::PRCTL, SET_DEATH_SIGNAL, KILL);
        sys::call0(nr::GETPPID)
    };
    if parent == told.parent as isize {
        (told.help)(told.argument);
    }
}
