//! Turns a process into the process of an image: starts the restorer, and holds the first code of
//! the image that runs again when the restorer has put the memory in place.
//!
//! The restorer itself is a program of its own, in `restorer/` beside `src/`.

// Starts the restorer.
pub mod start;

// Runs in the restored process.
pub mod carried_content;
pub mod descriptors;
pub mod lock_owners;
pub mod open_files;
pub mod reopen;
pub mod resume;
pub mod wait_deadlines;
