//! What can go wrong; every text says at which step, where, why, and what to do.

use crate::limits::{MANIFEST_MAX, MANIFEST_VERSION};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};
use vm_wire::CodecError;

/// Why a call of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system said no.
    #[error("cannot {step} {path}: {cause}; {}", advice(.cause), path = path.display())]
    System {
        /// The step that failed.
        step: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// Error of the system.
        #[source]
        cause: io::Error,
    },
    /// The root of the store is something else.
    #[error("{path} is no folder: give the store a folder of its own", path = path.display())]
    NotAFolder {
        /// What was to be the root.
        path: PathBuf,
    },
    /// The root belongs to someone else, who could exchange what is in it.
    #[error(
        "{path} belongs to user {owner}, not to user {user}: give the store a folder of this user",
        path = path.display()
    )]
    Owner {
        /// Path of the root.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
        /// User id of the process.
        user: u32,
    },
    /// Others may write into the root, and could exchange what is in it.
    #[error(
        "{path} may be written by others (mode {mode:04o}): run `chmod 700 {path}`, if what is in \
         it can be trusted",
        path = path.display()
    )]
    Mode {
        /// Path of the root.
        path: PathBuf,
        /// Its mode bits.
        mode: u32,
    },
    /// A name that is none of the layout's.
    #[error("{name:?} is no name of a part: take those of vm_store::name")]
    Name {
        /// The name.
        name: String,
    },
    /// There is no folder of this checkpoint.
    #[error("there is no checkpoint {path}: list the store to see which there are", path = path.display())]
    Absent {
        /// Where it would be.
        path: PathBuf,
    },
    /// The checkpoint has no manifest.
    #[error(
        "{path} was begun and not committed: it is being written, or it was given up; use an \
         earlier checkpoint",
        path = path.display()
    )]
    Unfinished {
        /// Its folder.
        path: PathBuf,
    },
    /// The checkpoint has a manifest: nothing in it changes any more.
    #[error(
        "{path} is committed already: take a new epoch for another checkpoint, prune to remove one",
        path = path.display()
    )]
    Committed {
        /// Its folder.
        path: PathBuf,
    },
    /// The file is there, or another process writes it.
    #[error(
        "{path} is there already: another process writes it, has written it, or died while it \
         did; in that case abort the checkpoint and begin another",
        path = path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A part would become longer than it may.
    #[error(
        "{path} would exceed its quota of {quota} bytes: raise the quota, or prune the store first",
        path = path.display()
    )]
    Quota {
        /// The part.
        path: PathBuf,
        /// What it may have. Bytes.
        quota: u64,
    },
    /// There is something wrong with the manifest.
    #[error("{path}: {cause}", path = path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: ManifestError,
    },
    /// There is something wrong with a part.
    #[error("{path}: {flaw}; use another checkpoint, or copy this part again", path = path.display())]
    Part {
        /// The part.
        path: PathBuf,
        /// The difference.
        flaw: Flaw,
    },
    /// There is something wrong with the part that an increment was written against.
    #[error(
        "{base}: {flaw}; {path} holds only what differs from it: use a checkpoint with another \
         base (vm checkpoints), or copy this base again",
        path = path.display(),
        base = base.display()
    )]
    Base {
        /// The increment.
        path: PathBuf,
        /// The part of an earlier checkpoint.
        base: PathBuf,
        /// The difference in the base.
        flaw: Flaw,
    },
    /// There is no room in the store for another checkpoint.
    #[error(
        "the store {root} holds {used} bytes, and its quota is {quota}: raise it (vmd \
         --store-quota), keep fewer checkpoints (--keep), or remove those of an application that \
         has ended (vm checkpoints --remove)",
        root = root.display()
    )]
    Full {
        /// Path of the store's root.
        root: PathBuf,
        /// All its files together. Bytes.
        used: u64,
        /// What it may have. Bytes.
        quota: u64,
    },
}

/// What a part is, and what the manifest says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// It is not there.
    Missing {
        /// Name of the host that wrote it.
        place: String,
    },
    /// It is shorter or longer. Bytes.
    Length {
        /// Length that was found.
        found: u64,
        /// What the manifest says.
        expected: u64,
    },
    /// It holds something else. XXH3 of 128 bits.
    Content {
        /// What it hashes to.
        found: [u8; 16],
        /// What the manifest says.
        expected: [u8; 16],
    },
    /// It is no increment, or one that contradicts itself.
    Increment {
        /// The contradiction.
        what: &'static str,
    },
    /// It is no compressed file, or not what was compressed.
    Compressed {
        /// The contradiction.
        what: &'static str,
    },
    /// It is not any more what an increment was written against.
    Changed,
}

impl std::error::Error for Flaw {}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Missing { place } => write!(f, "the part is missing ({place} wrote it)"),
            Flaw::Length { found, expected } => write!(
                f,
                "the part has {found} bytes where the manifest says {expected}"
            ),
            Flaw::Content { found, expected } => write!(
                f,
                "the part is damaged: it hashes to {:032x} where the manifest says {:032x}",
                u128::from_le_bytes(*found),
                u128::from_le_bytes(*expected)
            ),
            Flaw::Increment { what } => write!(f, "the increment is damaged: {what}"),
            Flaw::Compressed { what } => write!(f, "the compressed part is damaged: {what}"),
            Flaw::Changed => f.write_str("the part is damaged: it is not what it was"),
        }
    }
}

/// What is wrong with a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Longer than any may be.
    #[error("a manifest of {bytes} bytes: {MANIFEST_MAX} are the most; use another checkpoint")]
    TooLong {
        /// Its length. Bytes.
        bytes: u64,
    },
    /// The first bytes are not those of a manifest.
    #[error("this is no manifest: it begins differently; use another checkpoint")]
    NotAManifest,
    /// Bytes were changed, lost or added after it was written.
    #[error("the manifest is damaged: its hash differs; use another checkpoint, or copy it again")]
    Damaged,
    /// Another version of the format.
    #[error(
        "the manifest has version {found}, and only version {MANIFEST_VERSION} can be read here: use the \
         release that wrote it"
    )]
    OtherVersion {
        /// Version of the file.
        found: u32,
    },
    /// The hash holds, but the value is none.
    #[error("the manifest cannot be read: {0}; use another checkpoint")]
    Body(#[from] CodecError),
    /// The value says what cannot be.
    #[error("the manifest contradicts itself: {what}; use another checkpoint, and report it")]
    Impossible {
        /// The contradiction, as text for users.
        what: String,
    },
    /// It is the manifest of another checkpoint than its folder's.
    #[error("this is the manifest of {found}: put it back into that folder")]
    Elsewhere {
        /// The folder where it belongs, below the root.
        found: String,
    },
}

/// What to do about an error of the operating system.
fn advice(cause: &io::Error) -> &'static str {
    use io::ErrorKind::*;
    match cause.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => "free room there, or prune the store",
        PermissionDenied | ReadOnlyFilesystem => {
            "give the store a folder in which this user may write"
        }
        NotFound => "make the folder above it, or see whether it was removed meanwhile",
        DirectoryNotEmpty => "it holds what is not of the store: remove that by hand",
        _ => "see whether its disk is in order",
    }
}

/// Says which step failed at what. An error whose cause is a [`Flaw`] is that of the part.
pub(crate) trait Step<T> {
    /// The step as a verb, and its file or folder.
    fn step(self, step: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &'static str, path: &Path) -> Result<T, StoreError> {
        let path = || path.to_owned();
        self.map_err(|cause| match cause.downcast() {
            Ok(flaw) => StoreError::Part { path: path(), flaw },
            Err(cause) => StoreError::System {
                step,
                path: path(),
                cause,
            },
        })
    }
}
