//! Errors of a store's bucket. Each text gives the step, the place, the reason and the remedy.

use crate::address::AddressError;
use std::{io, path::PathBuf};
use vm_store::{Flaw, ManifestError, StoreError};

/// An error of an operation with a bucket.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The environment has no credentials.
    #[error(
        "no credentials for {bucket}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the \
         environment (and AWS_SESSION_TOKEN, AWS_REGION where they are needed)"
    )]
    Credentials {
        /// The bucket that needs credentials.
        bucket: String,
    },
    /// The certificate file that the environment names cannot be used.
    #[error("no certificates in {path} (AWS_CA_BUNDLE): {cause}", path = path.display())]
    Certificates {
        /// Path of the certificate file.
        path: PathBuf,
        /// The reason.
        cause: String,
    },
    /// The object store cannot be reached, or its reply is incomplete.
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
    /// The object store refused the request.
    #[error("cannot {step} {at}: it says {status} {code}{said}; {}", advice(*.status, .code))]
    Refused {
        /// The step that failed.
        step: &'static str,
        /// Name of the object.
        at: String,
        /// HTTP status of the reply.
        status: u16,
        /// Error code in the reply.
        code: String,
        /// Message in the reply, in brackets, or empty.
        said: String,
    },
    /// The reply does not come from an object store.
    #[error("cannot {step} {at}: what answers is no object store; look at the endpoint")]
    Answer {
        /// The step that failed.
        step: &'static str,
        /// Name of the object.
        at: String,
    },
    /// A part in the bucket differs from its manifest.
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
    /// The folder has a checkpoint of this name, and the bucket has another one.
    #[error(
        "{at} is another checkpoint than the one of that name in {folder}: one of them is of another \
         run of the application; use another folder, or another prefix",
        folder = folder.display()
    )]
    Differs {
        /// Name of the manifest in the bucket.
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
    /// An error of the store's folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of the folder about its bucket cannot be read or written.
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
    /// Whether the error concerns only one checkpoint, so that another checkpoint may be good.
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

/// The remedy for a refusal of the object store.
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
