//! The end of a task whose daemon has ended: all threads at once, and without cleaning up.
//!
//! The machine may have declared the task dead and restarted it elsewhere, so the task must not act
//! any more. The `unsafe` part here is the end of the process.

use std::io::Write;

/// Exit code of a task whose daemon has ended: `EX_TEMPFAIL`, try again later.
pub const STATUS_DAEMON_LOST: i32 = 75;

/// Says that the daemon has ended, and ends the process.
pub(crate) fn end_process() -> ! {
    // Standard error may be closed.
    let _ = writeln!(
        std::io::stderr(),
        "vmlib: the daemon of this host has ended, and so does this task"
    );
    end_process_in_handler()
}

/// Ends the process without a word. Allocates nothing and locks nothing: signal handlers call it.
pub(crate) fn end_process_in_handler() -> ! {
    // SAFETY: _exit takes no pointers, runs no code of this process and does not return.
    unsafe { libc::_exit(STATUS_DAEMON_LOST) }
}
