//! The options of a save, and the functions that a save calls while all threads are stopped.

use std::{os::fd::RawFd, time::Duration};

/// Whose content an image carries, of the open regular files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carry {
    /// None: each file must exist on the host of the restore.
    #[default]
    Nothing,
    /// Files of at most this many bytes together. Deleted files are taken first, then the others,
    /// each group in the order of descriptors. A file that does not fit any more is left out if it
    /// has a name, and refuses the save if it was deleted.
    Fitting(u64),
    /// Files for an image whose restore rolls files back
    /// ([`RestoreOptions::roll_back`](crate::RestoreOptions::roll_back)): deleted files and files
    /// that the process can rewrite, as long as they fit into `rewritable`; the others as long as
    /// they fit into `others`. A file that the process has open for appending only is one of the
    /// others, because a rollback truncates it and needs no copy.
    RollBack {
        /// Limit for deleted and rewritable files, all together. Bytes.
        rewritable: u64,
        /// Limit for all other files together. Bytes.
        others: u64,
    },
    /// All files. A file that cannot be carried refuses the save.
    All,
}

impl Carry {
    /// Whether any file may be carried.
    pub(crate) fn is_any(self) -> bool {
        self != Carry::Nothing
    }

    /// The limit of carried bytes, for files that the process can rewrite or for the others.
    /// `None`: no limit, or no file is carried.
    pub(crate) fn most(self, is_rewritable: bool) -> Option<u64> {
        match self {
            Carry::Nothing | Carry::All => None,
            Carry::Fitting(most) => Some(most),
            Carry::RollBack { rewritable, .. } if is_rewritable => Some(rewritable),
            Carry::RollBack { others, .. } => Some(others),
        }
    }
}

/// A folder, and the folder that takes its place on the host of the restore. The path of an open
/// file, a shared mapping or the working directory that lies below `here` is looked for at the same
/// place below `there`. Both are absolute paths without a slash at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Folders<'a> {
    /// The folder on the host of the save.
    pub here: &'a [u8],
    /// The folder on the host of the restore.
    pub there: &'a [u8],
}

impl<'a> Folders<'a> {
    /// The path on the host of the restore, in two parts that are to be joined.
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

/// The options of a save.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// A copy of the process writes the image; this process runs on after a freeze of milliseconds.
    /// Shared memory, which other processes can change, is written before this process runs on. If
    /// the system has no memory or process for a copy, this process writes the image itself, as
    /// without the option.
    pub forked: bool,
    /// Memory is compressed with LZ4 where that makes it smaller. The save takes several times as
    /// long.
    pub compress: bool,
    /// Memory may be lent to a pipe instead of copied into it: the reader of the pipe then reads
    /// pages of this process. Useful if several images are written at the same time. Only for a
    /// reader that does nothing but read.
    pub lend: bool,
    /// The open regular files whose content is written into the image during the freeze. A carried
    /// file that is missing on the host of the restore is made from that content. A carried file
    /// that was deleted while it was open does not refuse the save.
    pub carry: Carry,
    /// A folder that has another name on the host of the restore.
    pub folders: Option<Folders<'a>>,
    /// How many bytes of each open regular file the checksum covers, from the beginning of the
    /// file; all bytes by default. Most checksums are made before the freeze. On the host of the
    /// restore the file must have the same size and the same checksum, unless it has grown and the
    /// process can write it.
    pub checked_max: u64,
    /// Descriptors that the program manages itself. These descriptors are not checked, and are
    /// closed in the restored process. The first four below 512 can be handed over: see
    /// [`restore`](crate::restore()).
    pub own: &'a [RawFd],
    /// The time limit for stopping all threads.
    pub limit: Duration,
    /// Called while all threads are stopped, at each [`Moment`]. The save or restore continues when
    /// the function returns.
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

/// When the pre-copy rounds of a save end: see [`save_in_rounds`](crate::save_in_rounds). The round
/// that meets one of these conditions is the last one before the freeze.
#[derive(Debug, Clone, Copy)]
pub struct Until {
    /// A round that sent at most this many bytes.
    pub small: u64,
    /// A round that sent more than this share of the previous round: the rounds do not shrink any
    /// more.
    pub shrinks: f64,
    /// The round with this number, counted from 1; at most 64.
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
    /// All threads are stopped, and nothing of the process was captured yet.
    Stopped,
    /// A forked save was requested, but this process has to write a part of the image itself, or
    /// all of it: memory that is shared with other processes, the content of carried files, or
    /// everything if there is no room for a copy. The reader of the image has to read during that
    /// time.
    Writes,
    /// The image is written, or a copy of the process writes it.
    Saved {
        /// Size of the image. Bytes; 0 while a copy writes.
        bytes: u64,
        /// The time since all threads were stopped. Nanoseconds.
        ns: u64,
        /// The process id of the copy that writes, or 0.
        writer: i32,
    },
    /// The process was restored.
    Restored,
}

/// A function that is called while all threads are stopped. The function may make bare system calls
/// and use atomics. The function must not allocate, lock, or use thread-locals or the C library.
pub type Hold = fn(Moment);
