//! Saves a whole process - memory, threads, signals, timers, open files - into one stream, and
//! brings it back in a new process, here or on another host. The program needs no change and
//! nobody needs a privilege.
//!
//! [`save()`] stops all threads where they are, writes the image, and lets them go on; or a copy of
//! the process writes it while they go on ([`Options::forked`]); or most of it is written before,
//! while they run ([`save_in_rounds`], [`begin_in_rounds`]). [`restore()`] turns the calling
//! process into the one of an image. To the saved program the call of [`save()`] returns a second
//! time, there with [`Saved::Back`].
//!
//! What cannot be brought back is refused before anything stops, by name.
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
pub mod format;
mod frozen;
pub mod inspect;
pub mod raw;
mod restore;
mod save;
mod trigger;

pub use capture::affinity::is_elsewhere;
pub use frozen::{
    fault::Text,
    signal::{SIGNAL, Section},
};
pub use restore::start::{Way, restore};
pub use save::{
    callbacks::{Callbacks, register},
    image_memory,
    in_rounds::{InRounds, Until, begin_in_rounds, save_in_rounds},
    sequence::{Hold, Moment},
};
pub use trigger::{
    handler::TRIGGER,
    request::{AskError, Modes, News, Request},
};

use frozen::{fault::Fault, interpose, signal};
use restore::resume;
use save::{callbacks, forked_copy, precopy, sequence};
use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, RawFd},
    time::Duration,
};

/// The exit code of the restorer when the image cannot be restored.
pub const CANNOT_RESTORE: i32 = 124;
/// The exit code of a process that was brought back and could not go on.
pub const CANNOT_GO_ON: i32 = 125;

/// Why a process was not saved. It runs on in any case.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// It has something that cannot be brought back.
    #[error("this process cannot be saved: {0}")]
    Refused(String),
    /// Something that should work did not: a full disk, a closed socket.
    #[error("the save failed, {step}: {cause}")]
    Failed {
        /// What was being done.
        step: String,
        /// What the system says.
        cause: io::Error,
    },
}

impl From<Fault> for SaveError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(text) => SaveError::Refused(text.as_str().to_owned()),
            Fault::Failed(text, errno) => SaveError::Failed {
                step: text.as_str().to_owned(),
                cause: io::Error::from_raw_os_error(errno.0),
            },
        }
    }
}

/// Which open regular files an image has the content of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carry {
    /// None: all have to be where the process is brought back.
    #[default]
    Nothing,
    /// Those that together have at most so many bytes; taken are files that were deleted, then the
    /// others, each by descriptor, and what does not fit any more is left out. A deleted file that
    /// does not fit is refused.
    Fitting(u64),
    /// For an image that files are to be rolled back to ([`Way::roll_back`]): those that were deleted
    /// and those that the process can rewrite, as long as they fit into `rewritable`, and the others as
    /// long as they fit into `others`. What is open for appending alone is one of these: to be cut
    /// back it need not be carried.
    RollBack {
        /// Bytes.
        rewritable: u64,
        /// Bytes.
        others: u64,
    },
    /// All. One that cannot be carried is refused.
    All,
}

impl Carry {
    /// Whether a file may be carried at all.
    fn is_any(self) -> bool {
        self != Carry::Nothing
    }

    /// How many bytes of files may be carried, of those that can be rewritten or of the others;
    /// `None`: as many as there are, or none.
    fn most(self, is_rewritable: bool) -> Option<u64> {
        match self {
            Carry::Nothing | Carry::All => None,
            Carry::Fitting(most) => Some(most),
            Carry::RollBack { rewritable, .. } if is_rewritable => Some(rewritable),
            Carry::RollBack { others, .. } => Some(others),
        }
    }
}

/// A folder, and the one that takes its place where a process is brought back: what the process has
/// open, has mapped shared, or has as its working directory below the one is looked for at the same
/// place below the other. Both are absolute paths without a slash at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Folders<'a> {
    /// Where the process is saved.
    pub here: &'a [u8],
    /// Where it is brought back.
    pub there: &'a [u8],
}

impl<'a> Folders<'a> {
    /// A path as it is there, in two parts.
    fn there<'b>(folders: Option<Folders<'a>>, path: &'b [u8]) -> (&'b [u8], &'b [u8])
    where
        'a: 'b,
    {
        let below = |folders: &Folders<'a>| {
            let rest = path.strip_prefix(folders.here)?;
            (rest.is_empty() || rest.starts_with(b"/")).then_some((folders.there, rest))
        };
        folders.as_ref().and_then(below).unwrap_or((path, &[]))
    }
}

/// How a process is saved.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// A copy of the process writes the image, while this one goes on after milliseconds. What
    /// other processes could see in shared memory is written before. If the process cannot be copied,
    /// for want of memory or processes, it writes the image itself, as without this.
    pub forked: bool,
    /// Memory is compressed with LZ4, where that makes it smaller. Takes several times as long.
    pub compress: bool,
    /// The image is one of several that are written at the same time; if it goes to a pipe, what it
    /// holds of memory need not be copied into that: whoever reads it may take pages of this process.
    /// Only for who knows that the reader does nothing but read.
    pub lend: bool,
    /// The content of which open regular files is written into the image, while the process stands
    /// still. One that is missing where the process is brought back is made of it, and one that was
    /// deleted while it was open is no reason to refuse the save.
    pub carry: Carry,
    /// Files below a folder have other names where the process is brought back.
    pub folders: Option<Folders<'a>>,
    /// How many bytes of each open regular file the checksum covers, from its beginning; all of
    /// them by default. Most of it is made before the process stands still. Where it is brought
    /// back, the file's size and this checksum have to be the same.
    pub checked_max: u64,
    /// Descriptors that the program looks after itself: they are not checked, and closed where it
    /// is brought back. The first four below 512 can be handed over: see [`restore()`].
    pub own: &'a [RawFd],
    /// How long threads may take to stop.
    pub limit: Duration,
    /// Called while all threads stand still: when the process has to write although a copy was to,
    /// when the image is written, or a copy writes it, and when the process was brought back. It goes
    /// on when that returns.
    pub hold: Option<Hold>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            forked: false,
            compress: false,
            lend: false,
            carry: Carry::Nothing,
            folders: None,
            checked_max: u64::MAX,
            own: &[],
            limit: Duration::from_secs(2),
            hold: None,
        }
    }
}

impl<'a> Options<'a> {
    fn wanted(self, image: RawFd) -> sequence::Wanted<'a> {
        sequence::Wanted {
            image,
            forked: self.forked,
            compress: self.compress,
            lend: self.lend,
            carry: self.carry,
            folders: self.folders,
            checked_max: self.checked_max,
            own: self.own,
            limit_ns: u64::try_from(self.limit.as_nanos()).unwrap_or(u64::MAX),
            hold: self.hold,
        }
    }
}

/// What a call of [`save()`] came to.
#[derive(Debug)]
pub enum Saved {
    /// The image is whole.
    Whole {
        /// Its bytes.
        bytes: u64,
        /// How long the program stood still.
        freeze: Duration,
    },
    /// A copy of the process writes it.
    Underway(Writer),
    /// This is the process that was brought back.
    Back,
}

/// A copy of this process that writes an image.
#[derive(Debug)]
#[must_use = "only when it has finished, the image is whole"]
pub struct Writer {
    pid: i32,
    freeze: Duration,
}

impl Writer {
    /// How long the program stood still.
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
    callbacks::around(alone, |saved| matches!(saved, Saved::Back))
}

fn try_save(image: BorrowedFd<'_>, options: Options<'_>) -> Result<Saved, SaveError> {
    resume::look_up();
    interpose::link();
    sequence::save(options.wanted(image.as_raw_fd()))
        .map(saved)
        .map_err(SaveError::from)
}

/// Looks up what [`save_in_handler`] needs to know of the C library. To be called once, outside of
/// signal handlers.
pub fn prepare() {
    resume::look_up();
    interpose::link();
}

/// Whether this thread is in a [`Section`].
pub fn in_section() -> bool {
    signal::in_section()
}

/// Saves like [`save()`], in place, from a signal handler: it allocates nothing, locks nothing, and
/// calls no callbacks. Not within a [`Section`]. After [`prepare`]. If [`begin_in_handler`] has begun
/// the image, this writes the rest of it. A copy that writes is to be waited for by [`reap`].
///
/// # Errors
/// Why there is no image; the process goes on.
pub fn save_in_handler(image: RawFd, options: Options<'_>, begun: bool) -> Result<Moment, Text> {
    let wanted = options.wanted(image);
    let saved = match begun {
        true => sequence::save_rest(wanted, false, |_| ()),
        false => {
            precopy::await_cancelled();
            sequence::save(wanted)
        }
    };
    match saved {
        Ok(sequence::Now::Back) => Ok(Moment::Back),
        Ok(sequence::Now::Here(saved)) => Ok(Moment::Saved {
            bytes: saved.bytes,
            ns: saved.freeze_ns,
            writer: saved.writer,
        }),
        Err(fault) => Err(fault.text()),
    }
}

/// Begins to save like [`begin_in_rounds`], from a signal handler, as [`save_in_handler`] does. If that is
/// to be `checked`, what could not be saved now is refused at once, else by [`save_in_handler`]. When
/// the rounds are over, `told` is called with `fd` and `mark`, their bytes and their number, in a
/// thread that has no other descriptor of the program's: it may make bare system calls, and use
/// atomics.
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
    let wanted = options.wanted(image);
    let tell = precopy::Tell::Call(fd, mark, told);
    // Who gave up a save, and begins another one at once, finds no other in its way.
    precopy::await_cancelled();
    sequence::begin_rounds(wanted, Until::default(), checked, tell).map_err(|fault| fault.text())
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

fn saved(now: sequence::Now) -> Saved {
    match now {
        sequence::Now::Back => Saved::Back,
        sequence::Now::Here(saved) => {
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
