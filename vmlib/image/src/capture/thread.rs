//! The captured state of one thread, and the number of restores of this process.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A set of processors, in the kernel's format.
pub type ProcessorSet = [u64; 16];

/// The state of a thread. The thread writes it itself when it is stopped.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Thread {
    /// The thread's id; 0 until all other fields are written.
    pub tid: i32,
    /// The nice value, from -20 to 19.
    pub nice: i32,
    /// The address of the signal frame that the thread returns from to resume.
    pub frame: usize,
    /// The base of thread-local storage.
    pub fs: usize,
    /// Base of GS.
    pub gs: usize,
    /// The address of the word that the kernel clears when the thread ends.
    pub tid_address: usize,
    /// The address of the head of the list of robust mutexes.
    pub robust: usize,
    /// Length of that head. Bytes.
    pub robust_len: usize,
    /// The signal that the process gets when this thread's parent ends, or 0. Each thread has its
    /// own.
    pub death_signal: i32,
    /// The name, ended by NUL.
    pub name: [u8; 16],
    /// The processors that the program has chosen for the thread.
    pub processors: ProcessorSet,
    /// Bytes of the set; 0 if the thread has the processors that its process was given.
    pub processors_len: usize,
    /// Whether the thread is registered for restartable sequences. A thread that the C library has
    /// just made is not.
    pub rseq: bool,
}

/// The number of restores of this process.
static RESTORES: AtomicU32 = AtomicU32::new(0);

/// The number of restores of this process. In a restored process the saving thread returns from the
/// same call once more, and recognises that by this number. That thread must then not change state
/// that threads share, because another thread may be saving already.
pub fn restores() -> u32 {
    RESTORES.load(SeqCst)
}

/// Counts a restore, in the process that was just restored.
pub fn count_restore() {
    RESTORES.fetch_add(1, SeqCst);
}
