//! Orders between daemons in a machine in which each host has a store of its own.
//!
//! Images are copied to a second host, so that the loss of one host loses no checkpoint. The
//! manifest is committed on all hosts. A restart requests each part from a host that has it. The
//! orders travel as [`crate::peer::Order`]s. None of them is sent in a machine whose hosts share
//! one store.

use crate::{
    checkpoint::{Checkpoint, Part},
    codec::message,
    failure::Failed,
    id::{CheckpointId, HostId, Tid},
};
use serde::{Deserialize, Serialize};

message! { CopyAsk CopyEnd PartAsk PartLost StockAsk Stock ManifestAsk ManifestEnd CommitHere ForgetStored }

/// An owner to a second host: take a second copy of an image that is in the owner's store. The
/// reply is [`CopyEnd`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyAsk {
    /// The application.
    pub app: Tid,
    /// Generation of the application.
    pub generation: u32,
    /// The epoch of the cut.
    pub epoch: u32,
    /// The task whose image is copied.
    pub tid: Tid,
    /// The image in the owner's store.
    pub part: Part,
}

/// Reply to [`CopyAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyEnd {
    /// As in the request.
    pub app: Tid,
    /// As in the request.
    pub epoch: u32,
    /// As in the request.
    pub tid: Tid,
    /// The second copy is whole and on the disk, or why there is none.
    pub result: Result<(), Failed>,
}

/// To a host with a part in its store: send the part to the requesting host, under this ticket. If
/// it cannot be sent completely, [`PartLost`] follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartAsk {
    /// Number that admits the connection with the part.
    pub ticket: u64,
    /// The application.
    pub app: Tid,
    /// The checkpoint.
    pub from: CheckpointId,
    /// The requested part.
    pub part: Part,
    /// `true`: the bytes of its file, for a second copy; `false`: its content, verified.
    pub file: bool,
}

/// A requested part cannot be sent, or not completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartLost {
    /// As in the request.
    pub ticket: u64,
    /// Reason of the failure.
    pub why: Failed,
}

/// Request for the store inventory of an application. The reply is [`Stock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockAsk {
    /// Number chosen by the requester; the reply bears it.
    pub question: u64,
    /// The application.
    pub app: Tid,
    /// Only the checkpoint of this generation and epoch.
    pub from: Option<CheckpointId>,
    /// Whether the host reads and verifies all of it, not only lengths.
    pub verify: bool,
}

/// Reply to [`StockAsk`]: the store inventory of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stock {
    /// As in the request.
    pub question: u64,
    /// At most [`crate::limits::STOCK_MAX`] checkpoints, newest first; or why the store cannot be
    /// read.
    pub result: Result<Vec<StockRow>, Failed>,
}

/// The store inventory of one host, for consoles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStock {
    /// The host with the store.
    pub host: HostId,
    /// As in [`Stock`].
    pub result: Result<Vec<StockRow>, Failed>,
}

/// One checkpoint in the store inventory of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockRow {
    /// Generation of the checkpoint.
    pub generation: u32,
    /// Epoch of the checkpoint.
    pub epoch: u32,
    /// Number of its tasks; 0: its manifest cannot be read on that host.
    pub tasks: u32,
    /// Tasks whose images are in that store, without damage that was seen.
    pub here: Vec<Tid>,
    /// Missing or damaged files of that host, as text for users; at most
    /// [`crate::limits::FLAWS_MAX`].
    pub flaws: Vec<String>,
}

/// Request for the manifest of a checkpoint. The reply is [`ManifestEnd`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestAsk {
    /// Number chosen by the requester; the reply bears it.
    pub question: u64,
    /// The application.
    pub app: Tid,
    /// The checkpoint.
    pub from: CheckpointId,
}

/// Reply to [`ManifestAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEnd {
    /// As in the request.
    pub question: u64,
    /// The content of the manifest, and its age in milliseconds; or why it cannot be read.
    pub result: Result<(Checkpoint, u64), Failed>,
}

/// The daemon of a coordinator to all others: all parts and second copies exist, commit the
/// checkpoint in your store. The reply is [`crate::checkpoint::Committed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitHere {
    /// Content of the manifest.
    pub checkpoint: Checkpoint,
}

/// Remove all checkpoints of an application from the receiver's store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetStored {
    /// The application.
    pub app: Tid,
}
