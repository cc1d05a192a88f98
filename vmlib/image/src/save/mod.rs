//! Writes the image of this process: the order of a save, pre-copy rounds, the forked copy, and
//! the bytes of the image.
//!
//! What is written comes from [`capture`](crate::capture); where the restored process resumes
//! comes from [`restore`](mod@crate::restore).

// The interface, the order of a save, and what the program does around it.
pub mod hooks;
pub mod interface;
pub mod sequence;

// Pre-copy rounds: the interface, the thread that sends, what each round sends.
pub mod in_rounds;
pub mod precopy;
pub mod rounds;

// The forked copy that writes, and what it need not write.
pub mod forked_copy;
pub mod spare;

// What is written: tables and content of files, then pieces of memory.
pub mod carried_files;
pub mod pieces;
pub mod tables;

// The bytes of the image, written by calls or into memory.
pub mod head_helper;
pub mod image_memory;
pub mod image_writer;
pub mod mapped_image;
