//! Images as a program looks at them: read and verified, summed up for people, compared with the
//! host, and written from records.
//!
//! An image comes from a disk or a socket, so nothing in it is believed. [`ImageReader`] goes
//! through it once, without a seek. It compares each length with its limit before it takes memory,
//! verifies each checksum, and hands out nothing that contradicts itself. What it has read without
//! an error can be restored as far as the image is concerned; whether *this host* can do it is
//! what [`compare`] answers, and [`check_files`] for the files that the process had open. `docs/image-format.md` describes the bytes.
//!
//! None of this runs in a process that is being saved or brought back: that code allocates
//! nothing, and is elsewhere. Both share the records of [`format`](crate::raw::format).

mod check;
mod end;
mod error;
mod files;
mod heads;
mod host;
mod info;
mod read;
pub mod room;
mod write;

pub use crate::raw::features::Feature;
pub use end::EndSeen;
pub use error::{Damage, ImageError, Impossible, Place};
pub use files::{FileProblem, check_files};
pub use heads::Heads;
pub use host::{Host, Needs, Obstacle, compare};
pub use info::{Codec, FileKind, FileSummary, Pages, Summary, ThreadSummary};
pub use read::ImageReader;
pub use write::{ImageWriter, Names};
