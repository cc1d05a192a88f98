//! Copies of the checkpoints of a store in a bucket of an object store (S3, or what speaks as it does).
//!
//! The folder of the store stays what is written to and restarted from ([`vm_store`]). A [`Mirror`]
//! copies each checkpoint that was committed there to the bucket, under the same names below a prefix,
//! and back if the folder has lost it. An object is either there as a whole or not at all, so the rule
//! is that of the folder: parts first, the manifest last; when one is removed, the manifest first.
//!
//! Who is asked where is an [`Address`], which the folder remembers ([`Tie`]), and credentials, which
//! come from the environment alone and are in no argument, file, error or log.
//!
//! Reading order: [`address`], [`tie`], [`mirror`], then `push` and `pull`;
//! [`remote`] is the requests; [`limits`], [`error`]. What it promises is in `docs/store.md`.
//!
//! Invariants: blocking calls, for processes that do nothing else; memory for one piece of an object,
//! however large that is. What comes from the bucket is believed as little as what is on a disk: it
//! counts as a checkpoint in the folder when all of it has the hashes that its manifest says. No key
//! that a bucket lists becomes a path before it was read as names of the store.

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
