//! Checkpoints of whole applications, kept in a folder.
//!
//! A [`Store`] is a folder of one user. In it each application has a folder, and in that each of
//! its checkpoints, named by generation and epoch ([`CheckpointId`]). A checkpoint consists of
//! *parts*, an image for each task, and
//! of a [`Manifest`], which names them all with their lengths and hashes. The manifest is written
//! last: a checkpoint exists from the moment at which [`CheckpointWriter::commit`] has renamed it.
//!
//! Many processes may write parts of one checkpoint, on many hosts; one commits it. Nothing is
//! locked: files are made with names that must be new.
//!
//! All hosts share the folder, or each has one of its own ([`Store::of_host`]): then each part is on the
//! disks of two hosts ([`copies`]), and each host commits the same manifest.
//!
//! An image is stored in full, or as what differs from the image of the same task in the last full
//! checkpoint; either file may be compressed. Whoever reads it gets all of it, either way.
//!
//! Reading order: [`name`], [`manifest`], [`store`], [`mod@write`], [`image`], [`increment`],
//! [`copies`], [`prune`], [`disk`], [`limits`].
//! The layout and what survives what are in `docs/store.md`.
//!
//! Invariants: blocking calls in plain functions; no clock (times are given), no thread. What was
//! committed stays whole and readable whenever the power is cut, and what is half written or half
//! removed is never taken for whole. No name that was read from a folder or from a manifest
//! becomes a part of a path before it was checked.

#![forbid(unsafe_code)]

pub mod copies;
pub mod disk;
pub mod error;
pub mod image;
pub mod increment;
pub mod limits;
pub mod manifest;
pub mod name;
pub mod part;
pub mod prune;
pub mod store;
mod suspended;
pub mod write;

mod base;
mod blocks;
mod check;
mod compressed;
mod hash;
mod index;
mod sealed;

#[cfg(test)]
mod tests;

pub use copies::{FileReader, Stocked};
pub use disk::{Disk, System};
pub use error::{Flaw, ManifestError, StoreError};
pub use image::ImageWriter;
pub use manifest::{Base, KeptChunks, Manifest, Part, Policy, SavedGroup, SavedTask};
pub use part::{PartReader, PartWriter};
pub use prune::Pruned;
pub use store::{Depth, Entry, LastGood, State, Store, Summary};
pub use vm_wire::CheckpointId;
pub use write::CheckpointWriter;
