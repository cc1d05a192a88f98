//! Checkpoints of whole applications in a folder.
//!
//! A [`Store`] is a folder of one user. Each application has a folder in the store. The folder of
//! an application holds a folder for each checkpoint, named by generation and epoch
//! ([`CheckpointId`]). A checkpoint consists of *parts*, an image for each task, and of a
//! [`Manifest`], which names all parts with their lengths and hashes. The manifest is written last:
//! a checkpoint exists from the moment at which [`CheckpointWriter::commit`] has renamed the
//! manifest.
//!
//! Many processes on many hosts may write parts of one checkpoint. One process commits the
//! checkpoint. The store has no locks: a file is created only under a name that no file has.
//!
//! All hosts share the folder, or each host has a folder of its own ([`Store::of_host`]). With
//! folders of their own, each part is on the disks of two hosts ([`copies`]), and each host commits
//! the same manifest.
//!
//! An image is stored in full, or as an increment: the blocks that differ from the image of the
//! same task in the last full checkpoint. Both kinds of file may be compressed. A reader gets the
//! whole image in each case.
//!
//! Reading order: [`name`], [`manifest`], [`store`], [`part`], [`part_reader`], [`listing`],
//! [`mod@write`], [`image`], [`increment`], [`copies`], [`prune`], [`disk`], [`limits`]. The layout
//! of the files, and the failures that they survive, are in `docs/store.md`.
//!
//! Invariants:
//!
//! - Calls block and are plain functions. The crate has no clock (times are arguments) and no
//!   thread.
//! - A committed checkpoint stays whole and readable whenever the power is cut.
//! - A checkpoint that is half written or half removed is never taken for a whole one.
//! - A name from a folder or a manifest is checked before it becomes a component of a path.

#![forbid(unsafe_code)]

pub mod copies;
pub mod disk;
pub mod error;
pub mod image;
pub mod increment;
pub mod limits;
pub mod listing;
pub mod manifest;
pub mod name;
pub mod part;
pub mod part_reader;
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
mod room;
mod sealed;
mod summary;

#[cfg(test)]
mod tests;

pub use copies::{FileReader, Stocked};
pub use disk::{Disk, System};
pub use error::{Flaw, ManifestError, StoreError};
pub use image::ImageWriter;
pub use listing::{Depth, Entry, LastGood, State};
pub use manifest::{Base, KeptChunks, Manifest, Part, Policy, SavedGroup, SavedTask};
pub use part::PartWriter;
pub use part_reader::PartReader;
pub use prune::Pruned;
pub use store::Store;
pub use summary::Summary;
pub use vm_wire::CheckpointId;
pub use write::CheckpointWriter;
