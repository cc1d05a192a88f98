//! The image format for ordinary code: reads and verifies images, and writes images from records.
//!
//! An image comes from a disk or a socket, so nothing in it is trusted. [`ImageReader`] reads an
//! image once, without a seek. The reader compares each length with its limit before it allocates
//! memory, verifies each checksum, and refuses records that contradict each other. An image that
//! was read without an error can be restored as far as the image is concerned;
//! [`inspect`](crate::inspect) tests whether *this host* can restore it. `docs/image-format.md`
//! describes the bytes.
//!
//! Nothing here runs in a process that is being saved or restored. The code for such processes
//! allocates nothing and is in other modules. Both share the records of the format, which are
//! re-exported here.

// Reading: errors, checks of single sections, the first sections, the whole image.
mod check;
mod error;
mod heads;
mod read;

// Writing.
mod write;

// Passing on: whether a stream of bytes ends as an image does.
mod end;

pub use crate::raw::records::*;
pub use end::EndSeen;
pub use error::{Damage, ImageError, Impossible, Location};
pub use heads::Heads;
pub use read::ImageReader;
pub use write::{Codec, Names, RecordWriter};
