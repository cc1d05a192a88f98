//! What the library and the restorer share. Nothing here needs an allocator, thread-locals or the
//! C library, so that it may run in a signal handler, and in a process that has none of them.

pub mod checksum;
pub mod clone;
pub mod features;
pub mod folder_map;
pub mod format;
pub mod lz4;
pub mod processor;
pub mod sys;
