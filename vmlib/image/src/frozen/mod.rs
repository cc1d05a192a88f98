//! Shared parts of code that runs while threads are stopped: memory without an allocator (`arena`,
//! `scratch`), errors without an allocator (`fault`), signal actions, and recovery from memory that
//! cannot be read.
//!
//! **Everything here runs in signal handlers**: it allocates nothing and locks nothing.

// Errors and memory without an allocator.
pub mod arena;
pub mod fault;
pub mod left_out;
pub mod scratch;

// System calls on files, and the right to save.
pub mod file_calls;
pub mod turn;

// Signals, and functions of the C library that this library interposes.
pub mod interpose;
pub mod memory_faults;
pub mod queued_signal;
pub mod signal;
pub mod words;
