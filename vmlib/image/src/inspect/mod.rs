//! Reads an image for users and tools: a summary, the needs of the image, and whether this host and
//! its files meet them.
//!
//! Nothing here runs in a process that is being saved or restored.

// The content of the image.
mod summary;

// The needs that this host does not meet.
mod files;
mod host;

pub use crate::raw::features::Feature;
pub use files::{FileProblem, check_files};
pub use host::{Host, Needs, Obstacle, compare};
pub use summary::{FileKind, FileSummary, Pages, Summary, ThreadSummary};
