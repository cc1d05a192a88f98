//! What can go wrong; every text says at which step, where, why, and what to do.

use crate::address::AddressError;
use std::{io, path::PathBuf};
use vm_store::{Flaw, ManifestError, StoreError};

/// Why something failed that had to do with a bucket.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// There is no such address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Nobody has said who asks.
    #[error(
        "no credentials for {bucket}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the \
         environment (and AWS_SESSION_TOKEN, AWS_REGION where they are needed)"
    )]
    Credentials {
        /// The bucket that needs them.
        bucket: String,
    },
    /// The certificates that were named cannot be used.
    #[error("no certificates in {path} (AWS_CA_BUNDLE): {cause}", path = path.display())]
    Certificates {
        /// Path of their file.
        path: PathBuf,
        /// The reason.
        cause: String,
    },
    /// The object store cannot be asked, or answers half.
    #[error(
        "cannot {step} {at}: {cause}; see whether {endpoint} can be reached from here (vmd \
         --store-endpoint)"
    )]
    Unreachable {
        /// The step that failed.
        step: &'static str,
        /// Name of the object.
        at: String,
        /// Address of the object store.
        endpoint: String,
        /// The reason.
        cause: String,
    },
    /// The object store said no.
    #[error("cannot {step} {at}: it says {status} {code}{said}; {}", advice(*.status, .code))]
    Refused {
        /// The step that failed.
        step: &'static str,
        /// Name of the object.
        at: String,
        /// The status of its answer.
        status: u16,
        /// Its word for it.
        code: String,
        /// Its sentence for it, in brackets.
        said: String,
    },
    /// What answers is no object store.
    #[error("cannot {step} {at}: what answers is no object store; look at the endpoint")]
    Answer {
        /// The step that failed.
        step: &'static str,
        /// Name of the object.
        at: String,
    },
    /// A part in the bucket is not what its manifest says.
    #[error("{at}: {flaw}; use another checkpoint")]
    Damaged {
        /// Name of the object.
        at: String,
        /// The difference.
        flaw: Flaw,
    },
    /// A manifest in the bucket cannot be used.
    #[error("{at}: {cause}")]
    Manifest {
        /// Name of the object.
        at: String,
        /// The reason.
        cause: ManifestError,
    },
    /// A checkpoint of this name is in the folder, and another one in the bucket.
    #[error(
        "{at} is another checkpoint than the one of that name in {folder}: one of them is of another \
         run of the application; use another folder, or another prefix",
        folder = folder.display()
    )]
    Differs {
        /// The one in the bucket.
        at: String,
        /// Path of the folder.
        folder: PathBuf,
    },
    /// A file of the store cannot be read while it is sent.
    #[error("cannot send {at}: {cause}")]
    Source {
        /// Name of the object.
        at: String,
        /// Error of the system.
        cause: io::Error,
    },
    /// What is in the folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the folder remembers of its bucket cannot be read or written.
    #[error("cannot {step} {path}: {cause}", path = path.display())]
    Tie {
        /// The step that failed.
        step: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
}

impl BucketError {
    /// Whether it is a matter of this checkpoint alone, so that another one may be in order.
    pub fn is_of_one(&self) -> bool {
        match self {
            BucketError::Damaged { .. }
            | BucketError::Manifest { .. }
            | BucketError::Differs { .. }
            | BucketError::Source { .. } => true,
            BucketError::Refused { code, .. } => code == "NoSuchKey",
            BucketError::Store(error) => !matches!(error, StoreError::System { .. }),
            _ => false,
        }
    }
}

/// What to do about what an object store says.
fn advice(status: u16, code: &str) -> &'static str {
    match (status, code) {
        (_, "NoSuchBucket") => "make the bucket first, or look at its name (vmd --store-bucket)",
        (_, "NoSuchKey") => "it was removed meanwhile; use another checkpoint",
        (_, "ExpiredToken" | "RequestTimeTooSkewed") => {
            "renew the credentials in the environment, and look whether the clock is right"
        }
        (300..=399, _) | (400, "AuthorizationHeaderMalformed") => {
            "the bucket is elsewhere: look at AWS_REGION and the endpoint (vmd --store-endpoint)"
        }
        (401 | 403, _) => {
            "look whether AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN in the \
             environment are right, and may read, write, list and remove there"
        }
        (500..=599, _) | (429, _) => "it is tried again with the next checkpoint",
        _ => "look at the bucket and the endpoint",
    }
}
