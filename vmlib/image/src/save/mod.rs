//! Writes the image of this process: the order of a save, pre-copy rounds, the forked copy, and
//! the bytes of the image.
//!
//! [`capture`](crate::capture) supplies the content of the image, and
//! [`restore`](mod@crate::restore) the address at which the restored process resumes.

// The interface, the order of a save, and the program's hooks.
pub mod hooks;
pub mod interface;
pub mod sequence;

// Pre-copy rounds: the interface, the thread that sends memory, the content of each round.
pub mod in_rounds;
pub mod precopy;
pub mod rounds;

// The forked copy that writes the image, and the memory that it need not write.
pub mod forked_copy;
pub mod spare;

// The content of the image: tables and files, then pieces of memory.
pub mod carried_files;
pub mod pieces;
pub mod tables;

// The bytes of the image, written by system calls or into mapped memory.
pub mod head_helper;
pub mod image_memory;
pub mod image_writer;
pub mod mapped_image;
