//! Saves a whole process - memory, threads, signals, timers, open files - into one stream, and
//! restores it in a new process, here or on another host. The program needs no change, and neither
//! a save nor a restore needs a privilege.
//!
//! [`save()`] stops all threads where they are, writes the image, and resumes them; or a copy of
//! the process writes it while they run on ([`Options::forked`]); or most of it is written before,
//! while they run ([`save_in_rounds`], [`begin_in_rounds`]). [`restore()`] turns the calling
//! process into the process of an image. In the restored process the call of [`save()`] returns a
//! second time, with [`Saved::Restored`].
//!
//! What cannot be restored is refused by name, before anything stops.
//!
//! | folder | what it owns |
//! |---|---|
//! | [`raw`] | what the library and the restorer share: system calls, records of the format, checksums |
//! | `frozen` | memory, errors and signals for code that runs while threads are stopped |
//! | `capture` | reads the state of the process, and stops its threads for that |
//! | [`mod@format`] | reads, verifies and writes images in ordinary code |
//! | [`inspect`] | the summary of an image; what this host lacks for the restore |
//! | `restore` | starts the restorer; the first code of the image that runs again |
//! | `save` | the order of a save, pre-copy rounds, the forked copy, the bytes of the image |
//! | `trigger` | saves that a signal asks for, of programs that do not call this library |
//! | `c_interface` | the functions of `include/vm_image.h` |
//!
//! The restorer is a program of its own, in `restorer/` beside `src/`. Begin to read in
//! `save/sequence.rs`, then `restore/resume.rs`.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(
    clippy::result_large_err,
    reason = "errors are made where there is no allocator, so their text is in them"
)]

mod c_interface;
mod capture;
mod error;
pub mod format;
mod frozen;
pub mod inspect;
mod options;
pub mod raw;
mod restore;
mod save;
mod trigger;

pub use capture::affinity::is_elsewhere;
pub use error::{CANNOT_GO_ON, CANNOT_RESTORE, SaveError};
pub use frozen::{
    fault::Text,
    signal::{SIGNAL, Section, TRIGGER, in_section},
};
pub use options::{Carry, Folders, Hold, Moment, Options, Until};
pub use restore::start::{RestoreOptions, restore};
pub use save::{
    hooks::{SaveHooks, register},
    image_memory,
    in_rounds::{InRounds, begin_in_rounds, save_in_rounds},
    interface::{
        Saved, Writer, begin_in_handler, give_up_in_handler, prepare, reap, save, save_in_handler,
    },
};
pub use trigger::{
    packet::Modes,
    request::{Request, RequestedImage},
    request_error::RequestError,
};
