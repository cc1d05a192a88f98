//! Code of both the library and the restorer: system calls, the records of the image format,
//! checksums, and descriptions of the processor.
//!
//! Nothing here needs an allocator, thread-locals or the C library. So this code may run in a
//! signal handler, and in the restorer, which has none of them.

// The kernel's interface.
pub mod clone;
pub mod sys;

// The bytes of an image.
pub mod checksum;
pub mod folder_map;
pub mod lz4;
pub mod records;

// The features of a processor.
pub mod features;
pub mod processor;
