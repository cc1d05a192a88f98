//! Effects: orders of one subsystem of a daemon to another.
//!
//! A function of a subsystem's struct calls no sibling. It leaves an effect in the context, and
//! `settle` delivers the effects in their order. If the delivery of an effect leaves more effects, these are delivered
//! before the effects that waited already, as if the subsystem had called its sibling.

use super::requester::Requester;
use crate::ConnId;
use std::collections::BTreeSet;
use vm_wire::{
    CheckpointId, HostId, Tid,
    agreed::ExitStatus,
    checkpoint::{CheckpointAsk, Part},
    console::Answer,
    interrupt::Folders,
    peer::Belongings,
    task::Failed,
};

/// An order of one subsystem of a daemon to another.
#[derive(Debug)]
pub(super) enum Effect {
    /// Replies to the request of a console, a task, or this daemon itself.
    Reply(Requester, Answer),
    /// Shows a line of the daemon on the console of that application, if the console is on this
    /// host.
    TellRun(Tid, String),
    /// Ends the run of that application with this status, if its console is on this host.
    EndRun(Tid, ExitStatus),
    /// Makes a console the console of a restarted application.
    AttachConsole {
        conn: ConnId,
        app: Tid,
        /// The hosts with tasks of the application.
        hosts: BTreeSet<HostId>,
    },
    /// Drops the spawn requests of that application's tasks, which are of its earlier generation.
    ForgetSpawns(Tid),
    /// Drops the requests and orders of that application, if it has no task left.
    ForgetApplication(Tid),
    /// Reviews the coordinator of that application, whose host may have changed.
    ReviewCoordinator(Tid),
    /// Makes the requests for the checkpoint with which that application has ended wait for the
    /// report of the coordinator's daemon.
    AwaitEndReport(Tid),
    /// Reviews the suspended applications, because there may be room for them.
    RoomMayBe,
    /// Resumes a suspended application without a request.
    Resume {
        app: Tid,
        generation: u32,
        /// The checkpoint with which the application was suspended.
        from: CheckpointId,
    },
    /// Proposes that a restart or a recovery is abandoned.
    AbandonRestart {
        app: Tid,
        generation: u32,
        /// The application is not tried again.
        for_good: bool,
        /// The reason, for people.
        why: String,
    },
    /// Reviews that suspended application, whose state may have changed.
    ReviewSuspension(Tid),
    /// Sends a signal to the process of that task.
    SignalProcess(Tid, i32),
    /// Expects the restore of a task from a checkpoint.
    ExpectRestored {
        tid: Tid,
        incarnation: u32,
        /// The state of the task beside its image, from the checkpoint.
        belongings: Belongings,
    },
    /// Requests the image of a task from the store of another host.
    FetchImage {
        /// The host whose store has the image.
        host: HostId,
        tid: Tid,
        /// The application, and the checkpoint.
        from: (Tid, CheckpointId),
        image: Part,
        /// Files that the task writes are used as they are, and not rolled back.
        keep_files: bool,
        /// The working folders of this host and of the host where the task was saved, if they
        /// differ.
        folders: Option<Folders>,
    },
    /// The image of that task is not fetched any more, or has been restored.
    ForgetFetched(Tid),
    /// A host's daemon requests a checkpoint from the coordinator of an application. The process of
    /// the coordinator is on this host, or is started now.
    RequestCheckpoint(HostId, CheckpointAsk),
    /// The image of a task that is to be restored could not be fetched from its host.
    PartLost(Tid, Failed),
}
