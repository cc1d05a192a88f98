//! A child that the program forks has the sockets of its parent and must not use them: it is no task.
//!
//! The copies that save an image are made by bare system calls, which call no handler of the C library. So a
//! restored process is no forked child.
//!
//! The `unsafe` part here is the registration of that handler.

use crate::{code::Code, error::Error};
use std::sync::{
    Once,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// This process was forked from a task.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    IS_FORKED.store(true, Relaxed);
}

/// This process is a task from now on.
pub fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        // SAFETY: the handler is a plain function, which may be called in any child: it stores one word.
        // Without memory for the registration, children are not told from tasks.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// An error in a forked child.
pub fn check() -> Result<(), Error> {
    match IS_FORKED.load(Relaxed) {
        true => Err(Error::new(
            Code::Left,
            "this process was forked from a task, and is none: start tasks with vm_start_tasks",
        )),
        false => Ok(()),
    }
}
