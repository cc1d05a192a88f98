//! Copies of a store's checkpoints in a bucket of an object store (S3 or compatible).
//!
//! Checkpoints are written to the folder of the store and restarted from there ([`vm_store`]). A
//! [`Mirror`] copies each committed checkpoint to the bucket, under the same names below a prefix,
//! and copies it back if the folder has lost it. An object exists as a whole or not at all, so the
//! rule of the folder holds for the bucket: the parts are written first and the manifest last; the
//! manifest is removed first.
//!
//! The folder records the address of its bucket ([`Address`], [`Tie`]). Credentials come only from
//! the environment; no argument, file, error or log contains them.
//!
//! Reading order: [`address`], [`tie`], [`mirror`], `push`, `pull`, [`remote`] (the requests),
//! [`limits`], [`error`]. `docs/store.md` states the guarantees.
//!
//! Invariants: calls block, so they are for processes without other work. They need memory for one
//! piece of an object, however long the object is. Data from a bucket is trusted as little as data
//! on a disk: it becomes a checkpoint of the folder only when all of it matches the hashes in its
//! manifest. A key in a listing becomes a path only after it was parsed as names of the store.

#![forbid(unsafe_code)]

pub mod address;
pub mod error;
pub mod limits;
pub mod mirror;
pub mod remote;
pub mod tie;

mod pull;
mod push;

pub use address::{Address, AddressError};
pub use error::BucketError;
pub use mirror::{Found, Mirror};
pub use pull::Fetched;
pub use push::Pushed;
pub use remote::{CREDENTIALS, Remote};
pub use tie::{State, Tie};
