//! Errors of the store. Each text names the step that failed, the file, the reason and the remedy.

use crate::limits::{MANIFEST_MAX, MANIFEST_VERSION};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};
use vm_wire::CodecError;

/// Why a call of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A call of the operating system failed.
    #[error("cannot {step} {path}: {cause}; {}", advice(.cause), path = path.display())]
    System {
        /// The step that failed.
        step: &'static str,
        /// File or folder of the step.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The path of the root names no folder.
    #[error("{path} is no folder: give the store a folder of its own", path = path.display())]
    NotAFolder {
        /// Path that was given as the root.
        path: PathBuf,
    },
    /// The root belongs to another user, so that user could exchange its content.
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
    /// Other users may write into the root and could exchange its content.
    #[error(
        "{path} may be written by others (mode {mode:04o}): run `chmod 700 {path}`, if what is in \
         it can be trusted",
        path = path.display()
    )]
    Mode {
        /// Path of the root.
        path: PathBuf,
        /// Mode bits of the root.
        mode: u32,
    },
    /// A name that is no name of a part.
    #[error("{name:?} is no name of a part: take those of vm_store::name")]
    Name {
        /// The name, as it was given.
        name: String,
    },
    /// The store has no folder of this checkpoint.
    #[error("there is no checkpoint {path}: list the store to see which there are", path = path.display())]
    Absent {
        /// Path of the folder that is missing.
        path: PathBuf,
    },
    /// The checkpoint has no manifest.
    #[error(
        "{path} was begun and not committed: it is being written, or it was given up; use an \
         earlier checkpoint",
        path = path.display()
    )]
    Unfinished {
        /// Folder of the checkpoint.
        path: PathBuf,
    },
    /// The checkpoint has a manifest, so nothing in it changes any more.
    #[error(
        "{path} is committed already: take a new epoch for another checkpoint, prune to remove one",
        path = path.display()
    )]
    Committed {
        /// Folder of the checkpoint.
        path: PathBuf,
    },
    /// The file exists: another process writes it, or has written it.
    #[error(
        "{path} is there already: another process writes it, has written it, or died while it \
         did; in that case abort the checkpoint and begin another",
        path = path.display()
    )]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// A part would become longer than its quota.
    #[error(
        "{path} would exceed its quota of {quota} bytes: raise the quota, or prune the store first",
        path = path.display()
    )]
    Quota {
        /// Path of the part.
        path: PathBuf,
        /// Bound on the length of the file. Bytes.
        quota: u64,
    },
    /// The manifest cannot be used.
    #[error("{path}: {cause}", path = path.display())]
    Manifest {
        /// Path of the manifest.
        path: PathBuf,
        /// The reason why the manifest cannot be used.
        #[source]
        cause: ManifestError,
    },
    /// The file of a part differs from its record in the manifest.
    #[error("{path}: {flaw}; use another checkpoint, or copy this part again", path = path.display())]
    Part {
        /// Path of the part.
        path: PathBuf,
        /// The difference from the manifest.
        flaw: Flaw,
    },
    /// The base of an increment has changed since the increment was written.
    #[error(
        "{base}: {flaw}; {path} holds only what differs from it: use a checkpoint with another \
         base (vm checkpoints), or copy this base again",
        path = path.display(),
        base = base.display()
    )]
    Base {
        /// Path of the increment.
        path: PathBuf,
        /// Path of the part of an earlier checkpoint.
        base: PathBuf,
        /// The difference of the base from the manifest.
        flaw: Flaw,
    },
    /// The store has no room for another checkpoint.
    #[error(
        "the store {root} holds {used} bytes, and its quota is {quota}: raise it (vmd \
         --store-quota), keep fewer checkpoints (--keep), or remove those of an application that \
         has ended (vm checkpoints --remove)",
        root = root.display()
    )]
    Full {
        /// Path of the store's root.
        root: PathBuf,
        /// Length of all files of the store together. Bytes.
        used: u64,
        /// Bound on the length of all files together. Bytes.
        quota: u64,
    },
}

/// The difference between a part and its record in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The file does not exist.
    Missing {
        /// Name of the host that wrote the part.
        place: String,
    },
    /// The file is shorter or longer than the manifest records. Bytes.
    Length {
        /// Length of the file.
        found: u64,
        /// Length in the manifest.
        expected: u64,
    },
    /// The content differs. Hashes are XXH3 of 128 bits.
    Content {
        /// Hash of the content.
        found: [u8; 16],
        /// Hash in the manifest.
        expected: [u8; 16],
    },
    /// The file is no increment, or an increment that contradicts itself.
    Increment {
        /// The contradiction, as text for users.
        what: &'static str,
    },
    /// The file is no compressed file, or its content differs from the content that was compressed.
    Compressed {
        /// The contradiction, as text for users.
        what: &'static str,
    },
    /// The part has changed since an increment of it was written.
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

/// Reasons why a manifest cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The manifest is longer than [`MANIFEST_MAX`].
    #[error("a manifest of {bytes} bytes: {MANIFEST_MAX} are the most; use another checkpoint")]
    TooLong {
        /// Length of the manifest. Bytes.
        bytes: u64,
    },
    /// The first bytes are not those of a manifest.
    #[error("this is no manifest: it begins differently; use another checkpoint")]
    NotAManifest,
    /// Bytes were changed, lost or added after the manifest was written.
    #[error("the manifest is damaged: its hash differs; use another checkpoint, or copy it again")]
    Damaged,
    /// The manifest has another version of the format.
    #[error(
        "the manifest has version {found}, and only version {MANIFEST_VERSION} can be read here: use the \
         release that wrote it"
    )]
    OtherVersion {
        /// Version of the file.
        found: u32,
    },
    /// The hash is right, but the value cannot be decoded.
    #[error("the manifest cannot be read: {0}; use another checkpoint")]
    Body(#[from] CodecError),
    /// The manifest contradicts itself.
    #[error("the manifest contradicts itself: {what}; use another checkpoint, and report it")]
    Impossible {
        /// The contradiction, as text for users.
        what: String,
    },
    /// The folder belongs to another checkpoint than the manifest.
    #[error("this is the manifest of {found}: put it back into that folder")]
    Elsewhere {
        /// Folder in which the manifest belongs, below the root.
        found: String,
    },
}

/// The remedy for an error of the operating system.
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

/// Adds the failed step and its path to an error. If the cause is a [`Flaw`], the result is the
/// error of a part.
pub(crate) trait Step<T> {
    /// `step` is a verb; `path` is the file or folder of the step.
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
