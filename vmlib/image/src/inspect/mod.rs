//! What an image says, for people and programs: a summary, what a host must have for the restore,
//! and whether the files of the process are still there and unchanged.
//!
//! Nothing here runs in a process that is being saved or restored.

// What the image says.
mod summary;

// What this host lacks.
mod files;
mod host;

pub use crate::raw::features::Feature;
pub use files::{FileProblem, check_files};
pub use host::{Host, Needs, Obstacle, compare};
pub use summary::{FileKind, FileSummary, Pages, Summary, ThreadSummary};
