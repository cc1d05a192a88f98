//! Saves a whole process - memory, threads, signals, timers, open files - into one stream, and
//! brings it back in a new process, here or on another host. The program needs no change and
//! nobody needs a privilege.

pub mod image;
pub mod raw;

/// Nothing of this is public by accident: see [`raw::format`].
pub use raw::format;
