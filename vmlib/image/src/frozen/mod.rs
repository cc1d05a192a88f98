//! What code uses that runs while threads are stopped: memory without an allocator (`arena`,
//! `scratch`), errors without an allocator (`fault`), signal actions, and recovery from memory
//! that cannot be read.
//!
//! **Everything here runs in signal handlers**: it allocates nothing and locks nothing.

// Errors and memory without an allocator.
pub mod arena;
pub mod fault;
pub mod scratch;

// Calls on files, and who may save.
pub mod file_calls;
pub mod turn;

// Signals, and functions that this library puts before those of the C library.
pub mod interpose;
pub mod memory_faults;
pub mod queued_signal;
pub mod signal;
