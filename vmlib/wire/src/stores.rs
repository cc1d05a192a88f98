//! What daemons say to each other where each host has its checkpoints on a disk of its own.
//!
//! Images are copied to a second host, so that the loss of one loses no checkpoint; the manifest is
//! committed on all hosts; and what is to be brought back is asked for wherever it is. The orders
//! travel like those of [`crate::peer`], as [`crate::peer::Order`]s. Where all hosts share one folder
//! none of them is sent.

use crate::{
    checkpoint::{Checkpoint, Part},
    codec::Message,
    frame::Op,
    id::{HostId, Tid},
    task::{Failed, message},
};
use serde::{Deserialize, Serialize};

message! { CopyAsk CopyEnd PartAsk PartLost StockAsk Stock ManifestAsk ManifestEnd CommitHere ForgetStored }

/// An owner, to a second host: take a copy of an image that is in the owner's store. Answered with
/// [`CopyEnd`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyAsk {
    /// The application.
    pub app: Tid,
    /// Its generation.
    pub generation: u32,
    /// The epoch of the cut.
    pub epoch: u32,
    /// The task.
    pub tid: Tid,
    /// Its image.
    pub part: Part,
}

/// The answer to [`CopyAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyEnd {
    /// As asked.
    pub app: Tid,
    /// As asked.
    pub epoch: u32,
    /// As asked.
    pub tid: Tid,
    /// The copy is whole and on the disk, or why there is none.
    pub result: Result<(), Failed>,
}

/// To a host that has a part in its store: send it to this host, under this ticket. If it cannot be
/// sent as a whole, [`PartLost`] follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartAsk {
    /// By which the connection that brings it is known here.
    pub ticket: u64,
    /// The application.
    pub app: Tid,
    /// Of which checkpoint: generation and epoch.
    pub from: (u32, u32),
    /// The part.
    pub part: Part,
    /// The bytes of its file, for a copy of that; else what the part holds, verified.
    pub file: bool,
}

/// A part that was asked for cannot be sent, or not as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartLost {
    /// As asked.
    pub ticket: u64,
    /// Why.
    pub why: Failed,
}

/// Which checkpoints of an application are in your store? Answered with [`Stock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockAsk {
    /// Chosen by the asker.
    pub question: u64,
    /// The application.
    pub app: Tid,
    /// Only this one: generation and epoch.
    pub from: Option<(u32, u32)>,
    /// All of it is read, not only looked at.
    pub verify: bool,
}

/// The answer to [`StockAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stock {
    /// As asked.
    pub question: u64,
    /// At most [`crate::limits::STOCK_MAX`], the newest ones, newest first; or why the store cannot be
    /// read.
    pub result: Result<Vec<StockRow>, Failed>,
}

/// What a host said of its store, for consoles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStock {
    /// The host.
    pub host: HostId,
    /// As in [`Stock`].
    pub result: Result<Vec<StockRow>, Failed>,
}

/// What is in one host's store of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockRow {
    /// Its generation.
    pub generation: u32,
    /// Its epoch.
    pub epoch: u32,
    /// Tasks in it; 0: its manifest cannot be read there.
    pub tasks: u32,
    /// Those whose images are there, and nothing wrong with them was seen.
    pub here: Vec<Tid>,
    /// What is wrong with what that host has or should have, for people; at most
    /// [`crate::limits::FLAWS_MAX`].
    pub flaws: Vec<String>,
}

/// What does the manifest of that checkpoint say? Answered with [`ManifestEnd`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestAsk {
    /// Chosen by the asker.
    pub question: u64,
    /// The application.
    pub app: Tid,
    /// Which checkpoint: generation and epoch.
    pub from: (u32, u32),
}

/// The answer to [`ManifestAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEnd {
    /// As asked.
    pub question: u64,
    /// What it says, and for how long it has been there in milliseconds; or why it cannot be read.
    pub result: Result<(Checkpoint, u64), Failed>,
}

/// The daemon of a coordinator, to all others: all parts and copies are there, commit the checkpoint in
/// your store. Answered with [`crate::checkpoint::Committed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitHere {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
}

/// All checkpoints of an application are of no use any more: remove them from your store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetStored {
    /// The application.
    pub app: Tid,
}
