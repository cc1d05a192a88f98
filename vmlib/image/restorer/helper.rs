//! A second worker, which shares the memory: a process of its own that ends alone, or with the
//! first.

use crate::{
    raw::{
        clone::{self, CloneArguments},
        sys::{self, nr},
    },
    space,
};

/// What a helper is to do.
struct Help {
    help: extern "C" fn(usize),
    argument: usize,
    /// Who waits for it.
    parent: i32,
}

/// Runs `work` beside a helper that runs `help(argument)`, if there can be one, and waits for its
/// end. Returns its status: 0 if all was well, or there was none.
///
/// # Safety
/// One at a time; what `argument` stands for outlives the call.
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
    // SAFETY: the stack is nobody else's, and this outlives the helper; the caller promises the
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
    // SAFETY: it outlives this helper, or its memory does.
    let told = unsafe { &*(told as *const Help) };
    // SAFETY: alone it is of no use, and what the other held nobody gives back.
    let parent = unsafe {
        sys::call2(nr::PRCTL, SET_DEATH_SIGNAL, KILL);
        sys::call0(nr::GETPPID)
    };
    if parent == told.parent as isize {
        (told.help)(told.argument);
    }
}
