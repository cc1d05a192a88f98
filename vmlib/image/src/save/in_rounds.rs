//! The interface of saves in pre-copy rounds.

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

/// Saves this process like [`save`](crate::save()), but sends most of the memory while the process
/// runs, in pre-copy rounds. Each round sends the pages that were written since the previous round.
/// All threads are stopped only while the remaining pages are written. The calling thread waits
/// during the rounds. Returns the bytes of each round, too.
///
/// Where the kernel cannot tell which pages were written (before Linux 6.7) or does not allow that,
/// there are no rounds, and the save is like [`save`](crate::save()).
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

/// Begins to save this process in pre-copy rounds, and returns at once. A thread that the program
/// and its C library do not know sends memory while all other threads run. [`InRounds::finish`]
/// completes the image, which then has the state of the process at that moment.
///
/// # Errors
/// Another save is under way, or there is no memory for this save. State that cannot be restored is
/// refused by [`InRounds::finish`].
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

/// A save whose memory is being sent. Dropping the value gives the save up. The next save can begin
/// when the sending thread has ended. The sending thread ends when its current write returns, which
/// depends on the reader of the image.
///
/// If the process ends or executes another program, the sending thread ends. A child of the process
/// cannot finish or give up the save.
#[derive(Debug)]
#[must_use = "only when it has finished, the image is whole"]
pub struct InRounds<'a> {
    image: BorrowedFd<'a>,
    options: Options<'a>,
    process: (i32, u32),
}

impl InRounds<'_> {
    /// Whether the rounds are over, so that [`InRounds::finish`] need not wait for them.
    pub fn is_ready(&self) -> bool {
        !self.is_own() || precopy::is_ready()
    }

    /// Waits until the rounds are over, stops all threads, and writes the remaining pages. If the
    /// rounds were over before this call, there is one more round first.
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

/// The process id and the number of restores: a restored process may have the id of the saved
/// process.
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
