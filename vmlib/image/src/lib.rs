//! Saves a whole process - memory, threads, signals, timers, open files - as one stream of bytes,
//! and restores the process from that stream on this host or another. The program needs no change.
//! Neither a save nor a restore needs a privilege.
//!
//! [`save()`] stops all threads where they are, writes the image, and resumes the threads. A forked
//! save ([`Options::forked`]) has a copy of the process write the image while the process runs. A
//! save in pre-copy rounds ([`save_in_rounds`], [`begin_in_rounds`]) writes most of the memory
//! before the freeze, while the threads run. [`restore()`] turns the calling process into the
//! process of an image. In the restored process the call of [`save()`] returns a second time, with
//! [`Saved::Restored`].
//!
//! State that cannot be restored is a refusal: the save fails and names that state before any
//! thread is stopped.
//!
//! | folder | what it owns |
//! |---|---|
//! | [`raw`] | code of both library and restorer: system calls, records of the format, checksums |
//! | `frozen` | memory, errors and signals for code that runs while threads are stopped |
//! | `capture` | reads the state of the process, and stops its threads while it is read |
//! | [`mod@format`] | reads, verifies and writes images in ordinary code |
//! | [`inspect`] | the summary of an image; what this host lacks for the restore |
//! | `restore` | starts the restorer; the first code of the image that runs in the restored process |
//! | `save` | the order of a save, pre-copy rounds, the forked copy, the bytes of the image |
//! | `trigger` | saves that a signal requests, in programs that do not call this library |
//! | `c_interface` | the functions of `include/vm_image.h` |
//!
//! The restorer is a separate program, in `restorer/` beside `src/`. To read the code, begin with
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
    left_out::leave_out,
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
