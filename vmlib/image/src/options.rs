//! How a process is saved: the options of a save, and the functions that it calls.

use std::{os::fd::RawFd, time::Duration};

/// Which open regular files an image has the content of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carry {
    /// None: all have to be where the process is restored.
    #[default]
    Nothing,
    /// Those that together have at most so many bytes; taken are files that were deleted, then the
    /// others, each by descriptor, and what does not fit any more is left out. A deleted file that
    /// does not fit is refused.
    Fitting(u64),
    /// For an image that files are to be rolled back to
    /// ([`RestoreOptions::roll_back`](crate::RestoreOptions::roll_back)): those that were deleted
    /// and those that the process can rewrite, as long as they fit into `rewritable`, and the
    /// others as long as they fit into `others`. What is open for appending alone is one of these:
    /// to be cut back it need not be carried.
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
    pub(crate) fn is_any(self) -> bool {
        self != Carry::Nothing
    }

    /// How many bytes of files may be carried, of those that can be rewritten or of the others;
    /// `None`: as many as there are, or none.
    pub(crate) fn most(self, is_rewritable: bool) -> Option<u64> {
        match self {
            Carry::Nothing | Carry::All => None,
            Carry::Fitting(most) => Some(most),
            Carry::RollBack { rewritable, .. } if is_rewritable => Some(rewritable),
            Carry::RollBack { others, .. } => Some(others),
        }
    }
}

/// A folder, and the one that takes its place where a process is restored: what the process has
/// open, has mapped shared, or has as its working directory below the one is looked for at the same
/// place below the other. Both are absolute paths without a slash at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Folders<'a> {
    /// Where the process is saved.
    pub here: &'a [u8],
    /// Where the process is restored.
    pub there: &'a [u8],
}

impl<'a> Folders<'a> {
    /// A path as it is there, in two parts.
    pub(crate) fn there<'b>(folders: Option<Folders<'a>>, path: &'b [u8]) -> (&'b [u8], &'b [u8])
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
    /// A copy of the process writes the image, while this process runs on after milliseconds. What
    /// other processes could see in shared memory is written before. If the process cannot be
    /// copied, for want of memory or processes, it writes the image itself, as without this.
    pub forked: bool,
    /// Memory is compressed with LZ4, where that makes it smaller. Takes several times as long.
    pub compress: bool,
    /// The image is one of several that are written at the same time; if it goes to a pipe, what it
    /// holds of memory need not be copied into that: the reader of the pipe may take pages of this
    /// process. Only for a reader that does nothing but read.
    pub lend: bool,
    /// The content of which open regular files is written into the image, while the process is
    /// frozen. One that is missing where the process is restored is made of it, and one that was
    /// deleted while it was open is no reason to refuse the save.
    pub carry: Carry,
    /// Files below a folder have other names where the process is restored.
    pub folders: Option<Folders<'a>>,
    /// How many bytes of each open regular file the checksum covers, from its beginning; all of
    /// them by default. Most of it is made before the process is frozen. Where it is restored, the
    /// file's size and this checksum have to be the same.
    pub checked_max: u64,
    /// Descriptors that the program looks after itself: they are not checked, and closed where it
    /// is restored. The first four below 512 can be handed over: see [`restore`](crate::restore()).
    pub own: &'a [RawFd],
    /// How long threads may take to stop.
    pub limit: Duration,
    /// Called while all threads are stopped: when the process has to write although a copy was to,
    /// when the image is written, or a copy writes it, and when the process was restored. It goes
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

/// When the rounds of a save end: see [`save_in_rounds`](crate::save_in_rounds).
#[derive(Debug, Clone, Copy)]
pub struct Until {
    /// A round that has sent no more is the last before the process is frozen. Bytes.
    pub small: u64,
    /// So is one that has sent more than this share of what the one before had sent: it does not
    /// shrink any more.
    pub shrinks: f64,
    /// So is the one with this number; 64 at most.
    pub rounds: u32,
}

impl Default for Until {
    fn default() -> Self {
        Until {
            small: 4 << 20,
            shrinks: 0.8,
            rounds: 16,
        }
    }
}

/// The moments at which all threads of a process are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A copy was to write its image, and it has to write some of that itself before, or all: what
    /// is shared with other processes, what its files hold, or if there is no room for a copy. The
    /// other end has to read meanwhile.
    Writes,
    /// Its image is written, or a copy of the process writes it.
    Saved {
        /// Of the image; 0 while a copy writes it.
        bytes: u64,
        /// How long it took since all threads stood. Nanoseconds.
        ns: u64,
        /// That copy, or 0.
        writer: i32,
    },
    /// The process was restored.
    Restored,
}

/// Called while all threads are stopped. It may make bare system calls, and use atomics; it must
/// not allocate, lock, or use thread-locals or the C library.
pub type Hold = fn(Moment);
