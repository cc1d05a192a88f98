//! The store of checkpoints: events and orders.

use vm_wire::{
    CheckpointId, Tid,
    checkpoint::{Checkpoint, Committed, Loaded, Part},
    stores::StockRow,
    task::Failed,
};

/// The writer of a task's image for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedBy {
    /// A copy of the task (forked save). The task continues.
    Copy,
    /// The one with less work: a copy, or the task itself, which writes into memory and continues
    /// while the image is stored from there. For checkpoints that follow each other soon.
    CopyOrMemory,
    /// The task, which writes into memory if there is room; else it stays frozen until the image is
    /// stored.
    Memory,
    /// The task, which stays frozen until the image is stored: its application ends with the
    /// checkpoint.
    Standing,
}

impl SavedBy {
    /// Whether a copy writes the image if there is no room in memory.
    pub fn is_copy(self) -> bool {
        matches!(self, SavedBy::Copy | SavedBy::CopyOrMemory)
    }
}

/// An event of the store of checkpoints, or a reply from it.
#[derive(Debug)]
pub enum StoreInput {
    /// The image of a task is in the store, for the cut of that epoch; or why not.
    Part(Tid, u32, Result<Part, Failed>),
    /// The image of a task that is suspended alone is in the store, under that number of the
    /// suspension; or why not. The daemon has chosen its name.
    Suspended(Tid, u64, Result<Part, Failed>),
    /// The part of that ticket was copied into the store, whole and verified; or why not. Follows
    /// `StoreOutput::ExpectCopy`.
    CopyTaken(u64, Result<(), Failed>),
    /// The part of that ticket was sent completely; or why not. Follows `StoreOutput::SendPart` or
    /// `StoreOutput::SendSuspended`.
    PartSent(u64, Result<(), Failed>),
    /// Reply to `StoreOutput::Inventory`: the store inventory of an application.
    Inventory(u64, Result<Vec<StockRow>, Failed>),
    /// Reply to `StoreOutput::Commit`.
    Committed(Committed),
    /// Reply to `StoreOutput::Load`: the content of a checkpoint.
    Loaded(u64, Result<Box<Loaded>, Failed>),
}

/// An order to the store of checkpoints.
#[derive(Debug)]
pub enum StoreOutput {
    /// Open a pipe into the store for the image of a task. [`StoreInput::Part`] follows when the
    /// image is whole there.
    Part {
        /// The task.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// Generation of the application.
        generation: u32,
        /// Epoch of the cut.
        epoch: u32,
        /// The writer of the image.
        by: SavedBy,
        /// If hosts have stores of their own: the name of the host with the second copy, if any. A
        /// part that this host lacks is no base.
        second: Option<String>,
        /// Store the whole image, not an increment.
        full: bool,
        /// Compress the file.
        compress: bool,
    },
    /// Open a pipe into the store for the image of a task that is suspended alone. `Suspended` with
    /// that number follows when the image is whole there.
    Suspend {
        /// The task.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// Name of the image in the store.
        name: String,
        /// Number of the reply.
        number: u64,
    },
    /// Send the image of a suspended task to that address. `PartSent` follows.
    SendSuspended {
        /// Number that admits the connection at the other host, which may be this one.
        ticket: u64,
        /// `address:port` of the other host's daemon.
        addr: String,
        /// The application.
        app: Tid,
        /// The image.
        image: Part,
    },
    /// Remove the image of that name: its task is no longer suspended.
    DropSuspended {
        /// The application.
        app: Tid,
        /// Name of the image in the store.
        name: String,
    },
    /// The application of that task resumes: store the image that its copy writes.
    PartOfCopy(Tid),
    /// Commit a checkpoint. All its parts are in the store. `Committed` follows.
    Commit(Box<Checkpoint>),
    /// Remove the parts of a checkpoint from the store: it will not be committed.
    Drop {
        /// The application.
        app: Tid,
        /// Generation of the application.
        generation: u32,
        /// Epoch of the cut.
        epoch: u32,
    },
    /// Read the content of a checkpoint in the store: the one in `from`, or the last whole one.
    /// `Loaded` with that number follows.
    Load {
        /// Number of the reply.
        question: u64,
        /// The application.
        app: Tid,
        /// The checkpoint; `None`: the last whole one.
        from: Option<CheckpointId>,
        /// Read and verify all data of a checkpoint to find the last whole one, not only lengths.
        verify: bool,
    },
    /// Expect a connection with this ticket that brings the file of a part: write the file into the
    /// store. `CopyTaken` follows.
    ExpectCopy {
        /// Number that admits the connection.
        ticket: u64,
        /// The task with that image.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// The checkpoint.
        from: CheckpointId,
        /// The part to receive.
        part: Part,
    },
    /// Discard the part of that ticket, also if it was received already.
    CancelPart(u64),
    /// Send a part in the store to that address. `PartSent` follows.
    SendPart {
        /// Number that admits the connection at the other host.
        ticket: u64,
        /// `address:port` of the other host's daemon.
        addr: String,
        /// The application.
        app: Tid,
        /// The checkpoint.
        from: CheckpointId,
        /// The part to send.
        part: Part,
        /// `true`: the bytes of its file; `false`: its content, verified.
        file: bool,
    },
    /// List the checkpoints of an application in the store. [`StoreInput::Inventory`]
    /// with that number follows.
    Inventory {
        /// Number of the reply.
        question: u64,
        /// The application.
        app: Tid,
        /// Only this checkpoint.
        from: Option<CheckpointId>,
        /// Read and verify all data, not only lengths.
        verify: bool,
    },
    /// Remove all checkpoints of an application from the store.
    Forget(Tid),
}
