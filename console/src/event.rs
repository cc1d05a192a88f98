//! What the console has to say, apart from how it is shown: commands produce events, and
//! [`render`](crate::render) shows them.

use crate::{
    ask::DaemonFacts,
    bucket::{BucketRow, Known},
    checkpoints::Row,
    image::{Made, Report, Whole},
};
use std::path::Path;
use vm_bucket::{Address, Fetched, Pushed};
use vm_image::format::ImageError;
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    checkpoint::{CheckpointReport, Policy, RestartReport},
    console::{Conf, Output, SuspendedRow, TaskRow},
    peer::{DrainReport, MoveReport},
};

/// Something that a user wanted to know.
#[derive(Debug)]
pub enum Event<'a> {
    /// The machine.
    Conf(&'a Conf),
    /// Its tasks, and applications that are suspended.
    Tasks(&'a [TaskRow], &'a [SuspendedRow]),
    /// Tasks that were started in the background.
    Started(&'a [Tid]),
    /// A signal was sent.
    Signalled(Tid, i32),
    /// Whether a task can be moved: each reason why not.
    Check(Tid, &'a [String]),
    /// A task was moved, and how that went; the machine, for the names.
    Moved(Tid, &'a MoveReport, &'a Conf),
    /// A checkpoint was made.
    Checkpointed(&'a CheckpointReport),
    /// When checkpoints of a task's application are made by themselves, from now on.
    Policy(Tid, Policy),
    /// An application was stopped with a checkpoint.
    Stopped(&'a CheckpointReport),
    /// One was suspended.
    Suspended(Tid, &'a CheckpointReport),
    /// A single task was; the machine, for the names.
    TaskSuspended(Tid, &'a MoveReport, &'a Conf),
    /// It was resumed.
    TaskResumed(Tid, &'a MoveReport, &'a Conf),
    /// An application was brought back; the machine, for the names.
    Restarted(&'a RestartReport, &'a Conf),
    /// A suspended application was brought back; the machine, for the names.
    Resumed(&'a RestartReport, &'a Conf),
    /// What is in the store.
    Checkpoints(&'a [Row], Option<&'a Known>, &'a Path),
    /// What was copied to a bucket.
    Pushed(&'a Pushed, &'a Address),
    /// What was fetched from a bucket.
    Pulled(Tid, &'a Fetched, &'a Address),
    /// The checkpoints that are in a bucket.
    InBucket(&'a [BucketRow], &'a Address),
    /// The tasks of a host have left it, or not; the machine, for the names.
    Drained(&'a DrainReport, &'a Conf),
    /// A host takes tasks again.
    HostResumed(&'a str),
    /// A host is in the machine now.
    HostAdded(&'a str),
    /// A host is in the machine no more.
    HostDeleted(&'a str),
    /// The machine has ended.
    Halted,
    /// A process has saved itself.
    ImageMade(&'a Made),
    /// What is in the image of a process.
    Image(&'a Report),
    /// Whether an image is whole: what it takes to bring it back, or where it is damaged.
    ImageVerified(&'a Path, &'a Result<Whole, ImageError>),
    /// Our release, and the daemon's if there is one.
    Version(Option<&'a DaemonFacts>),
    /// A manual page.
    Help(&'a str),
    /// A program runs at this console.
    RunStarted(Tid),
    /// It, or a task that it spawned, wrote something; `master` is the first.
    RunOutput {
        /// Who runs at this console.
        master: Tid,
        /// What was written, and by whom.
        output: &'a Output,
    },
    /// It has ended.
    RunEnded(Tid, Option<ExitStatus>),
}
