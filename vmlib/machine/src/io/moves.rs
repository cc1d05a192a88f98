//! Images of tasks that move or are frozen: events and orders.

use std::time::Duration;
use vm_wire::{
    CheckpointId, Tid,
    checkpoint::Part,
    interrupt::Folders,
    peer::{MoveWay, Sent},
    task::Failed,
};

/// An event of a task that moves, is frozen or is restored.
#[derive(Debug)]
pub enum MoveInput {
    /// The pre-copy of a task is over: bytes sent, and number of pre-copy rounds.
    Copied(Tid, u64, u32),
    /// Progress of the image of a task that moves away. Comes now and then, until all is sent.
    Sent(Tid, Sent),
    /// The image of a task was sent, or the transfer process ended otherwise.
    SentAll(Tid),
    /// From now on the task is a portable task: its image is the state that its program supplies.
    Portable(Tid),
    /// From now on the task is frozen only in calls of the library, which calls the program's
    /// callbacks around the save.
    InCalls(Tid),
    /// A task has stopped, as `MoveOutput::Hold` ordered: a portable task at a safe point, a task with
    /// callbacks in a call of the library, before the callbacks. For a task with callbacks it also
    /// comes before a save that no `Hold` preceded.
    Held(Tid),
    /// A task is frozen and has written its image. Or the save failed, or the image could not be
    /// sent; in the latter case the task is still frozen.
    Frozen(Tid, Result<Written, Failed>),
    /// The image of an expected task is whole, and its process is ready, frozen; or why not.
    Arrived(Tid, Result<(), Failed>),
}

/// An order about a task that moves, is frozen or is restored.
#[derive(Debug)]
pub enum MoveOutput {
    /// Open a connection to that address for the image of a task; the ticket admits it there. With
    /// pre-copy, have the task write its memory while it runs: `Copied` follows, or `Frozen` with
    /// the reason why not.
    Copy {
        /// The task.
        tid: Tid,
        /// `address:port` of the target's daemon.
        addr: String,
        /// Number that admits the connection at the target.
        ticket: u64,
        /// Options of the move.
        way: MoveWay,
        /// The working folders of source and target, if they differ.
        folders: Option<Folders>,
    },
    /// Restore a task from its image in the store, frozen. `Arrived` follows.
    Restore {
        /// The task.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// The checkpoint.
        from: CheckpointId,
        /// The image.
        image: Part,
        /// Use files that the task writes as they are, and do not roll them back.
        keep_files: bool,
        /// The former and the present working folder of the task, if they differ.
        folders: Option<Folders>,
    },
    /// Have a portable task, or a task with callbacks, run to a place where it can be saved and
    /// stop there. `Held` follows. `Freeze` or `CancelCopy` ends the wait.
    Hold(Tid),
    /// Freeze that task and have it write the rest of its image. `Frozen` follows.
    Freeze(Tid, MoveWay),
    /// Discard the pre-copy of a task, or the image that its copy writes. The task runs on.
    CancelCopy(Tid),
    /// Let a frozen task of this host run.
    Resume {
        /// The task.
        tid: Tid,
        /// Generation of its application.
        generation: u32,
        /// Whether a copy of the task still writes its image; `false`: discard the image.
        writes: bool,
    },
    /// Expect a connection with this ticket that brings the image of that task: restore the task,
    /// frozen. `Arrived` follows.
    Expect {
        /// The task.
        tid: Tid,
        /// Number that admits the connection.
        ticket: u64,
        /// Roll files that the task writes back to their content at the save.
        roll_back: bool,
        /// The former and the present working folder of the task, if they differ and the image does
        /// not say so.
        folders: Option<Folders>,
    },
    /// Let a restored task run: this host is its owner.
    Begin {
        /// The task.
        tid: Tid,
        /// Its incarnation here.
        incarnation: u32,
        /// Generation of its application.
        generation: u32,
        /// Whether its output is passed on unchanged, and not in whole lines: a master with a
        /// console.
        raw: bool,
    },
    /// End the process of a task that belongs to another host, is suspended, or will not run here.
    /// Deliver its remaining output; no `Ended` follows.
    Discard(Tid),
}

/// An image written by a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Length of the whole image. Bytes.
    pub bytes: u64,
    /// Time since all threads were frozen.
    pub time: Duration,
    /// Number of sent chunks that the task had no acknowledgement for.
    pub unacknowledged: u32,
}
