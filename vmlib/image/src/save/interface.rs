//! The interface of saves for programs: from ordinary code, and from a signal handler.
//!
//! What is called `in_handler` allocates nothing, locks nothing, and uses no thread-locals.

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
        /// Its bytes.
        bytes: u64,
        /// How long the program was frozen.
        freeze: Duration,
    },
    /// A copy of the process writes it.
    Underway(Writer),
    /// This is the process that was restored.
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
    /// How long the program was frozen.
    pub fn freeze(&self) -> Duration {
        self.freeze
    }

    /// Waits until the image is whole.
    ///
    /// # Errors
    /// What went wrong; the image is of no use.
    pub fn finish(self) -> Result<(), SaveError> {
        forked_copy::finish(self.pid).map_err(SaveError::from)
    }
}

/// Saves this process with all its threads into `image`: a file, a pipe, a socket.
///
/// # Errors
/// [`SaveError::Refused`] before anything was stopped, [`SaveError::Failed`] later; the process
/// goes on, and what was written is recognised as no whole image.
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

/// Looks up what [`save_in_handler`] needs to know of the C library. To be called once, outside of
/// signal handlers.
pub fn prepare() {
    resume::look_up();
    interpose::link();
}

/// Saves like [`save()`], in place, from a signal handler: it allocates nothing, locks nothing, and
/// calls no callbacks. Not within a [`Section`](crate::Section). After [`prepare`]. If
/// [`begin_in_handler`] has begun the image, this writes the rest of it. A copy that writes is to
/// be waited for by [`reap`].
///
/// # Errors
/// Why there is no image; the process runs on.
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

/// Begins to save like [`begin_in_rounds`](crate::begin_in_rounds), from a signal handler, as
/// [`save_in_handler`] does. If that is to be `checked`, what could not be saved now is refused at
/// once, else by [`save_in_handler`]. When the rounds are over, `told` is called with `fd` and
/// `mark`, their bytes and their number, in a thread that has no other descriptor of the
/// program's: it may make bare system calls, and use atomics.
///
/// # Errors
/// Why nothing has begun.
pub fn begin_in_handler(
    image: RawFd,
    options: Options<'_>,
    checked: bool,
    (fd, mark): (RawFd, u64),
    told: fn(RawFd, u64, u64, u32),
) -> Result<(), Text> {
    let request = SaveRequest::new(image, options);
    let tell = precopy::EndNotice::Call(fd, mark, told);
    // A save that was given up just before is not in the way of this one.
    precopy::await_cancelled();
    sequence::begin_rounds(request, Until::default(), checked, tell).map_err(|fault| fault.text())
}

/// Gives up what [`begin_in_handler`] has begun, without waiting for its end.
pub fn give_up_in_handler() {
    precopy::cancel();
}

/// Ends a copy of this process that writes an image, if it has not ended, and waits for it. May be
/// called in a signal handler. Whether the image is whole is known where it is read.
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
