//! What is captured of one thread, and how often this process was restored.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A set of processors, as the kernel has it.
pub type ProcessorSet = [u64; 16];

/// What is known of a thread, written by itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Thread {
    /// Its id; 0 until all else is written.
    pub tid: i32,
    /// Nice value, as `getpriority` tells it.
    pub nice: i32,
    /// The frame to return from.
    pub frame: usize,
    /// Base of thread-local storage.
    pub fs: usize,
    /// Base of GS.
    pub gs: usize,
    /// Where the kernel clears the id at its end.
    pub tid_address: usize,
    /// Its robust mutexes.
    pub robust: usize,
    /// Length of that head.
    pub robust_len: usize,
    /// The signal that the process gets when this thread's parent ends, or 0. Each thread has its
    /// own.
    pub death_signal: i32,
    /// Name.
    pub name: [u8; 16],
    /// Processors that it may use.
    pub processors: ProcessorSet,
    /// Bytes of these; none if they are those that its process was given.
    pub processors_len: usize,
    /// It is registered for restartable sequences. One that the C library has just made is not.
    pub rseq: bool,
}

/// How often this process was restored.
static RESTORES: AtomicU32 = AtomicU32::new(0);

/// How often this process was restored. A thread that saved returns from the save again after each
/// restore. It may then change nothing that threads share: another thread may be saving already.
pub fn restores() -> u32 {
    RESTORES.load(SeqCst)
}

/// Counts a restore, in the process that was just restored.
pub fn count_restore() {
    RESTORES.fetch_add(1, SeqCst);
}
