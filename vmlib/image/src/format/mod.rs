//! The image format for ordinary code: images are read and verified, and written from records.
//!
//! An image comes from a disk or a socket, so nothing in it is believed. [`ImageReader`] goes
//! through it once, without a seek. It compares each length with its limit before it takes memory,
//! verifies each checksum, and hands out nothing that contradicts itself. An image that was read
//! without an error can be restored as far as the image is concerned. Whether *this host* can do
//! it is what [`inspect`](crate::inspect) answers. `docs/image-format.md` describes the bytes.
//!
//! Nothing here runs in a process that is being saved or restored: that code allocates nothing,
//! and is elsewhere. Both share the records of the format, which are re-exported here.

// Reading: errors, checks of single sections, the first sections, the whole image.
mod check;
mod error;
mod heads;
mod read;

// Writing.
mod write;

// An image that only passes through.
mod end;

pub use crate::raw::records::*;
pub use end::EndSeen;
pub use error::{Damage, ImageError, Impossible, Location};
pub use heads::Heads;
pub use read::ImageReader;
pub use write::{Codec, Names, RecordWriter};
