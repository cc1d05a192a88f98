//! Turns a process into the process of an image. The code here starts the restorer, and it contains
//! the first code of the image that runs in the restored process, after the restorer has put the
//! memory in place.
//!
//! The restorer is a separate program, in `restorer/` beside `src/`.

// Starting the restorer.
pub mod start;

// Code that runs in the restored process.
pub mod carried_content;
pub mod descriptors;
pub mod lock_owners;
pub mod open_files;
pub mod reopen;
pub mod resume;
pub mod wait_deadlines;
