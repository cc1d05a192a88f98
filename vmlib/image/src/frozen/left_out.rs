//! Memory that the program leaves out of its images: the restored process has zeros there.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::raw::sys;
use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Leaves memory out of all images of this process. The memory may be shared with other processes,
/// and must be readable and writable. No page beside it may have the same rights, so that the kernel
/// joins it with no other memory.
pub fn leave_out(memory: Range<usize>) {
    END.store(memory.end, SeqCst);
    START.store(memory.start, SeqCst);
}

/// Whether all of this memory is left out.
pub fn is_left_out(memory: &Range<usize>) -> bool {
    let start = START.load(SeqCst);
    start != 0 && start <= memory.start && memory.end <= END.load(SeqCst)
}

/// In a process that is being restored: maps the memory, with zeros.
pub fn map_again() -> sys::Result<()> {
    let (start, end) = (START.load(SeqCst), END.load(SeqCst));
    if start == 0 {
        return Ok(());
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    sys::map(start, end - start, prot, flags).map(|_| ())
}
