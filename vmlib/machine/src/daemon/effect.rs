//! Orders of one subsystem of a daemon to another.
//!
//! A subsystem calls no sibling: it leaves an effect in the context, and `settle` delivers the
//! effects in their order. The effects that the delivery of an effect leaves are delivered before
//! those that waited behind it, as if the subsystem had called its sibling.

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

/// See the module.
#[derive(Debug)]
pub(super) enum Effect {
    /// The request of a console, a task, or this daemon itself has its reply.
    Reply(Requester, Answer),
    /// The console of that application, if it is here, shows a line of the daemon.
    TellRun(Tid, String),
    /// The run of that application ends with this status, if its console is here.
    EndRun(Tid, ExitStatus),
    /// That console is the console of a restarted application with tasks on these hosts.
    AttachConsole {
        /// The console.
        conn: ConnId,
        /// The application.
        app: Tid,
        /// Where its tasks are.
        hosts: BTreeSet<HostId>,
    },
    /// Spawn requests of the tasks of that application are of its earlier generation.
    ForgetSpawns(Tid),
    /// The application is over.
    ForgetApplication(Tid),
    /// It may have changed which host has the coordinator of that application.
    ReviewCoordinator(Tid),
    /// The console that waits for the end of that application is told how it was saved.
    AwaitEndReport(Tid),
    /// There may be room for suspended applications.
    RoomMayBe,
    /// A suspended application is resumed without a request.
    Resume {
        /// The application.
        app: Tid,
        /// Its generation.
        generation: u32,
        /// Its checkpoint.
        from: CheckpointId,
    },
    /// A restart, or a recovery, comes to nothing.
    AbandonRestart {
        /// The application.
        app: Tid,
        /// Its generation.
        generation: u32,
        /// It is not tried again.
        for_good: bool,
        /// Why, for people.
        why: String,
    },
    /// It may have changed what becomes of that suspended application.
    ReviewSuspension(Tid),
    /// The process of that task gets a signal.
    SignalProcess(Tid, i32),
    /// The image of that task is about to be restored.
    ExpectRestored {
        /// The task.
        tid: Tid,
        /// Its incarnation.
        incarnation: u32,
        /// What the checkpoint holds for it beside its image.
        belongings: Belongings,
    },
    /// The image of a task is in the store of another host.
    FetchImage {
        /// The host that has it.
        host: HostId,
        /// The task.
        tid: Tid,
        /// Its application, and the checkpoint.
        from: (Tid, CheckpointId),
        /// The image.
        image: Part,
        /// Files that the task writes are used as they are, and not rolled back.
        keep_files: bool,
        /// Where files are here, if elsewhere than where it was saved.
        folders: Option<Folders>,
    },
    /// The image of that task is not fetched any more, or has been restored.
    ForgetFetched(Tid),
    /// The daemon of that host requests a checkpoint of the coordinator of an application. The
    /// coordinator's process is on this host, or is started now.
    RequestCheckpoint(HostId, CheckpointAsk),
    /// The part of a checkpoint that a task is restored from does not come from its host.
    PartLost(Tid, Failed),
}
