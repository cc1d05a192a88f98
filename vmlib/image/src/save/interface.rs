//! The interface of saves: for ordinary code, and for a signal handler.
//!
//! The functions named `*_in_handler` allocate nothing, lock nothing, and use no thread-locals.

use crate::{
    error::SaveError,
    frozen::{fault::Text, interpose},
    options::{Moment, Options, Until},
    restore::resume,
    save::{
        forked_copy, hooks, precopy,
        sequence::{self, SaveRequest},
    },
};
use std::{
    os::fd::{AsRawFd as _, BorrowedFd, RawFd},
    time::Duration,
};

/// The result of [`save()`].
#[derive(Debug)]
pub enum Saved {
    /// The image is whole.
    Whole {
        /// Size of the image.
        bytes: u64,
        /// The freeze time.
        freeze: Duration,
    },
    /// A copy of the process writes the image.
    Underway(Writer),
    /// The call returned in the restored process.
    Restored,
}

/// A copy of this process that writes an image.
#[derive(Debug)]
#[must_use = "only when it has finished, the image is whole"]
pub struct Writer {
    pid: i32,
    freeze: Duration,
}

impl Writer {
    /// The freeze time.
    pub fn freeze(&self) -> Duration {
        self.freeze
    }

    /// Waits until the image is whole.
    ///
    /// # Errors
    /// The step of the copy that failed. The image is of no use.
    pub fn finish(self) -> Result<(), SaveError> {
        forked_copy::finish(self.pid).map_err(SaveError::from)
    }
}

/// Saves this process with all its threads into `image`: a file, a pipe, a socket.
///
/// # Errors
/// [`SaveError::Refused`] before any thread was stopped, [`SaveError::Failed`] later. The process
/// runs on, and the bytes in `image` are not a whole image.
pub fn save(image: BorrowedFd<'_>, options: Options<'_>) -> Result<Saved, SaveError> {
    let alone = || try_save(image, options);
    hooks::around(alone, |saved| matches!(saved, Saved::Restored))
}

fn try_save(image: BorrowedFd<'_>, options: Options<'_>) -> Result<Saved, SaveError> {
    resume::look_up();
    interpose::link();
    sequence::save(SaveRequest::new(image.as_raw_fd(), options))
        .map(saved)
        .map_err(SaveError::from)
}

/// Looks up the functions of the C library that [`save_in_handler`] needs. To be called once,
/// outside of signal handlers.
pub fn prepare() {
    resume::look_up();
    interpose::link();
}

/// Saves like [`save()`], in this thread, from a signal handler. Allocates nothing, locks nothing,
/// and calls no hooks. If `begun`, writes the rest of the image that [`begin_in_handler`] began. A
/// copy that writes the image must be waited for by [`reap`].
///
/// To be called after [`prepare`], and not within a [`Section`](crate::Section).
///
/// # Errors
/// Why there is no image. The process runs on.
pub fn save_in_handler(image: RawFd, options: Options<'_>, begun: bool) -> Result<Moment, Text> {
    let request = SaveRequest::new(image, options);
    let saved = match begun {
        true => sequence::save_rest(request, false, |_| ()),
        false => {
            precopy::await_cancelled();
            sequence::save(request)
        }
    };
    match saved {
        Ok(sequence::AfterSave::Restored) => Ok(Moment::Restored),
        Ok(sequence::AfterSave::Saved(saved)) => Ok(Moment::Saved {
            bytes: saved.bytes,
            ns: saved.freeze_ns,
            writer: saved.writer,
        }),
        Err(fault) => Err(fault.text()),
    }
}

/// Begins a save like [`begin_in_rounds`](crate::begin_in_rounds), from a signal handler, under the
/// conditions of [`save_in_handler`]. With `checked`, state that cannot be saved is refused at
/// once, else by [`save_in_handler`].
///
/// When the rounds are over, `told` is called with `fd`, `mark`, the bytes of all rounds, and the
/// number of rounds. The call comes from the thread that sends memory, which has no other
/// descriptor of the program open: `told` may make bare system calls and use atomics.
///
/// # Errors
/// Why no save was begun.
pub fn begin_in_handler(
    image: RawFd,
    options: Options<'_>,
    checked: bool,
    (fd, mark): (RawFd, u64),
    told: fn(RawFd, u64, u64, u32),
) -> Result<(), Text> {
    let request = SaveRequest::new(image, options);
    let tell = precopy::EndNotice::Call(fd, mark, told);
    // A save that was given up just before may still be ending; it does not refuse this save.
    precopy::await_cancelled();
    sequence::begin_rounds(request, Until::default(), checked, tell).map_err(|fault| fault.text())
}

/// Gives up what [`begin_in_handler`] has begun, without waiting for its end.
pub fn give_up_in_handler() {
    precopy::cancel();
}

/// Kills the copy of this process that writes an image, if it has not ended, and waits for it. May
/// be called in a signal handler. Only the reader of the image knows whether the image is whole.
pub fn reap(writer: i32) {
    forked_copy::reap(writer);
}

pub(super) fn saved(now: sequence::AfterSave) -> Saved {
    match now {
        sequence::AfterSave::Restored => Saved::Restored,
        sequence::AfterSave::Saved(saved) => {
            let freeze = Duration::from_nanos(saved.freeze_ns);
            match saved.writer {
                0 => Saved::Whole {
                    bytes: saved.bytes,
                    freeze,
                },
                pid => Saved::Underway(Writer { pid, freeze }),
            }
        }
    }
}
