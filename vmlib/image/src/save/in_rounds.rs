//! The interface of saves in rounds.

use crate::{
    capture::thread,
    error::SaveError,
    frozen::interpose,
    options::{Options, Until},
    raw::sys,
    restore::resume,
    save::{
        hooks,
        interface::{Saved, saved},
        precopy::{self, EndNotice},
        sequence::{self, SaveRequest},
    },
};
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Saves this process like [`save`](crate::save()), but most of its memory while it runs: in
/// rounds, each of what was written since the one before. Only what is left at the end is written
/// while all threads are stopped. This thread waits meanwhile. Returns the bytes of each round
/// too.
///
/// Where the kernel cannot tell which pages were written (before Linux 6.7), or does not allow it,
/// there are no rounds, and it is a [`save`](crate::save()).
///
/// # Errors
/// As for [`save`](crate::save()).
pub fn save_in_rounds(
    image: BorrowedFd<'_>,
    options: Options<'_>,
    until: Until,
) -> Result<(Saved, Vec<u64>), SaveError> {
    let in_rounds = || {
        begin(image, options, until, true)?;
        finish(image, options, false)
    };
    hooks::around(in_rounds, |(saved, _)| matches!(saved, Saved::Restored))
}

/// Begins to save this process in rounds, and returns at once: a thread that the program knows
/// nothing of sends memory while all others run. [`InRounds::finish`] makes the image whole: what
/// is saved is the process at that moment.
///
/// # Errors
/// Another save is under way, or there is no memory for it. What cannot be restored is refused by
/// [`InRounds::finish`].
pub fn begin_in_rounds<'a>(
    image: BorrowedFd<'a>,
    options: Options<'a>,
    until: Until,
) -> Result<InRounds<'a>, SaveError> {
    begin(image, options, until, false)?;
    Ok(InRounds {
        image,
        options,
        process: process(),
    })
}

/// A save whose memory is being sent. If it is dropped, the save is given up; the next one can
/// begin when the thread that sends has noticed, which may take as long as the reader of the image
/// lets the thread wait.
///
/// If the process ends or runs another program meanwhile, the sending ends with it. A child has no
/// part in it.
#[derive(Debug)]
#[must_use = "only when it has finished, the image is whole"]
pub struct InRounds<'a> {
    image: BorrowedFd<'a>,
    options: Options<'a>,
    process: (i32, u32),
}

impl InRounds<'_> {
    /// Whether the rounds are over, so that [`InRounds::finish`] stops the process at once.
    pub fn is_ready(&self) -> bool {
        !self.is_own() || precopy::is_ready()
    }

    /// Waits until the rounds are over, stops all threads and writes what is left. If the rounds
    /// have been over before, there is another one first.
    ///
    /// # Errors
    /// As for [`save`](crate::save()).
    pub fn finish(self) -> Result<(Saved, Vec<u64>), SaveError> {
        if !self.is_own() {
            let why = "the save was begun by the process that this one is a child of";
            return Err(SaveError::Refused(why.to_owned()));
        }
        let (image, options) = (self.image, self.options);
        let mut given_up = Some(self);
        let rest = || {
            std::mem::forget(given_up.take());
            finish(image, options, true)
        };
        hooks::around(rest, |(saved, _)| matches!(saved, Saved::Restored))
    }

    fn is_own(&self) -> bool {
        self.process == process()
    }
}

/// This process and its number of restores: a restored process may get the same id.
fn process() -> (i32, u32) {
    (sys::getpid(), thread::restores())
}

impl Drop for InRounds<'_> {
    fn drop(&mut self) {
        if self.is_own() {
            precopy::cancel();
        }
    }
}

fn begin(
    image: BorrowedFd<'_>,
    options: Options<'_>,
    until: Until,
    checked: bool,
) -> Result<(), SaveError> {
    resume::look_up();
    interpose::link();
    let request = SaveRequest::new(image.as_raw_fd(), options);
    Ok(sequence::begin_rounds(
        request,
        until,
        checked,
        EndNotice::Nobody,
    )?)
}

fn finish(
    image: BorrowedFd<'_>,
    options: Options<'_>,
    one_more: bool,
) -> Result<(Saved, Vec<u64>), SaveError> {
    let mut sent = Vec::new();
    let request = SaveRequest::new(image.as_raw_fd(), options);
    let now = sequence::save_rest(request, one_more, |bytes| sent.extend_from_slice(bytes))?;
    Ok((saved(now), sent))
}
