//! The results of commands, apart from how they are shown: commands produce events, and
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

/// A result of a command, or of a run, that is shown.
#[derive(Debug)]
pub enum Event<'a> {
    /// Words of the user.
    Echo(&'a [String]),
    /// Names, and the words for which they stand.
    Aliases(&'a [(&'a str, &'a [String])]),
    /// The machine.
    Conf(&'a Conf),
    /// Tasks, and applications that are suspended.
    Tasks(&'a [TaskRow], &'a [SuspendedRow]),
    /// Tasks that were started in the background.
    Started(&'a [Tid]),
    /// A signal was sent.
    Signalled(Tid, i32),
    /// The reasons why a task cannot be moved; none if it can.
    Check(Tid, &'a [String]),
    /// A task was moved. The machine is there for the names of its hosts, here and below.
    Moved(Tid, &'a MoveReport, &'a Conf),
    /// A checkpoint was made.
    Checkpointed(&'a CheckpointReport),
    /// The checkpoint policy of a task's application from now on.
    Policy(Tid, Policy),
    /// An application was stopped with a checkpoint.
    Stopped(&'a CheckpointReport),
    /// An application was suspended.
    Suspended(Tid, &'a CheckpointReport),
    /// A single task was suspended.
    TaskSuspended(Tid, &'a MoveReport, &'a Conf),
    /// A single task was resumed.
    TaskResumed(Tid, &'a MoveReport, &'a Conf),
    /// An application was restarted.
    Restarted(&'a RestartReport, &'a Conf),
    /// A suspended application was resumed.
    Resumed(&'a RestartReport, &'a Conf),
    /// The checkpoints in a store, what is known of its bucket, and the folder.
    Checkpoints(&'a [Row], Option<&'a Known>, &'a Path),
    /// Checkpoints were copied to a bucket.
    Pushed(&'a Pushed, &'a Address),
    /// A checkpoint was fetched from a bucket.
    Pulled(Tid, &'a Fetched, &'a Address),
    /// The checkpoints in a bucket.
    InBucket(&'a [BucketRow], &'a Address),
    /// A drain has ended, with or without tasks that stay.
    Drained(&'a DrainReport, &'a Conf),
    /// A drained host takes tasks again.
    HostResumed(&'a str),
    /// A host has joined the machine.
    HostAdded(&'a str),
    /// A host has left the machine.
    HostDeleted(&'a str),
    /// The machine has ended.
    Halted,
    /// A process has saved itself.
    ImageMade(&'a Made),
    /// The content of an image.
    Image(&'a Report),
    /// An image was verified: what its process needs of a host, or where the image is damaged.
    ImageVerified(&'a Path, &'a Result<Whole, ImageError>),
    /// The releases of this console, and of the daemon if one runs.
    Version(Option<&'a DaemonFacts>),
    /// A manual page.
    Help(&'a str),
    /// A program runs at this console.
    RunStarted(Tid),
    /// A task of the application that runs at this console wrote something.
    RunOutput {
        /// The master of the application.
        master: Tid,
        /// The bytes, and the task that wrote them.
        output: &'a Output,
    },
    /// The run has ended; without a status, the application runs on.
    RunEnded(Tid, Option<ExitStatus>),
}
