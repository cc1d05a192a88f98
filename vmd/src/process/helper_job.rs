//! The jobs of helper processes: the instructions of a daemon to a process of its own program.
//!
//! The command line is `vmd helper NAME JOB`. `NAME` is for people who look at processes. `JOB` is
//! the job as JSON. Secrets and descriptors are not part of it: a key is passed in the environment,
//! and images, sockets and locks are standard input, output and error.

use crate::net::secure::Mode;
use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use std::{ffi::OsString, path::PathBuf};
use vm_store::CheckpointId;
use vm_wire::{Tid, checkpoint::Part};

/// The hidden subcommand of all helper processes.
const HELPER: &str = "helper";

/// The job of one helper process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HelperJob {
    /// Sends an image, from standard input, to another host.
    TransferSender(SenderJob),
    /// Receives an image over the socket that is standard input, and writes it to standard output.
    TransferReceiver(ReceiverJob),
    /// Becomes the task whose image the process reads.
    TransferRestorer(RestorerJob),
    /// Stores the image that is standard input as a part of a checkpoint.
    StoreWriter(WriterJob),
    /// Writes a part of a checkpoint to standard output.
    StoreReader(ReaderJob),
    /// Stores a copy of another host's part, from standard input.
    StoreTaker(TakerJob),
    /// Stores the image of a suspended task, from standard input.
    SuspendedWriter(SuspendedWriterJob),
    /// Writes the image of a suspended task to standard output.
    SuspendedReader(SuspendedReaderJob),
    /// Copies checkpoints from the store in this folder to its bucket.
    BucketPusher {
        /// The store's folder.
        root: PathBuf,
    },
    /// Coordinates an application over the socket that is standard input.
    Coordinator {
        /// The application, for people who look at processes.
        app: String,
    },
    /// Stops itself, and is to be killed by the timer of its lease.
    LeaseProbe,
    /// Ends the processes that the daemon's tasks leave.
    Guardian {
        /// Process id of the daemon.
        daemon: u32,
    },
}

/// See [`HelperJob::TransferSender`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SenderJob {
    /// `address:port` of the target's daemon.
    pub addr: String,
    /// The number by which the target recognises the connection.
    pub ticket: u64,
    /// Whether the image is encrypted during the transfer.
    pub mode: Mode,
}

/// See [`HelperJob::TransferReceiver`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiverJob {
    /// The number that the sender must present.
    pub ticket: u64,
    /// Whether the image is encrypted during the transfer.
    pub mode: Mode,
}

/// See [`HelperJob::TransferRestorer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestorerJob {
    /// Whether files that the task writes are rolled back to their content at the save.
    pub roll_back: bool,
    /// A folder that has another name on this host.
    pub folder: Option<RenamedFolder>,
}

/// A folder whose name at the save differs from its name on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenamedFolder {
    /// The name at the save.
    pub saved: PathBuf,
    /// The name on this host.
    pub here: PathBuf,
}

/// The store that a helper process writes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreJob {
    /// The store's folder.
    pub root: PathBuf,
    /// Name of this host.
    pub host: String,
    /// Bound on the bytes of the store; 0: no bound.
    pub quota: u64,
}

/// A checkpoint of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointJob {
    /// The application.
    pub app: Tid,
    /// Number of restarts before the checkpoint.
    pub generation: u32,
    /// The checkpoint's number in its generation.
    pub epoch: u32,
}

impl CheckpointJob {
    /// The job's form of a checkpoint's name.
    pub fn new(app: Tid, id: CheckpointId) -> CheckpointJob {
        CheckpointJob {
            app,
            generation: id.generation,
            epoch: id.epoch,
        }
    }

    /// The name of the checkpoint.
    pub fn id(self) -> CheckpointId {
        CheckpointId::new(self.generation, self.epoch)
    }
}

/// See [`HelperJob::StoreWriter`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriterJob {
    /// Where the image is stored.
    pub store: StoreJob,
    /// The checkpoint that it belongs to.
    pub checkpoint: CheckpointJob,
    /// The task.
    pub tid: Tid,
    /// How it is stored.
    pub form: Form,
    /// Whether the store belongs to this host alone.
    pub local: bool,
    /// Length of an image in memory, in bytes; none: the image comes through a pipe.
    pub length: Option<u64>,
}

/// How an image is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// If this host's store is its own: the host that gets a second copy, if any.
    pub second: Option<String>,
    /// Whether the image is stored in full, even if the store has earlier images.
    pub full: bool,
    /// Whether the file is compressed.
    pub compress: bool,
    /// Whether the file goes through the kernel's cache: the task is frozen until it is written,
    /// and there is room.
    pub cached: bool,
}

/// See [`HelperJob::StoreReader`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReaderJob {
    /// The store's folder.
    pub root: PathBuf,
    /// The checkpoint.
    pub checkpoint: CheckpointJob,
    /// The part.
    pub part: Part,
    /// Whether to write the bytes of the part's file; else the image in the part is verified and
    /// written.
    pub file: bool,
}

/// See [`HelperJob::StoreTaker`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakerJob {
    /// Where the copy is stored.
    pub store: StoreJob,
    /// The checkpoint.
    pub checkpoint: CheckpointJob,
    /// The part.
    pub part: Part,
}

/// See [`HelperJob::SuspendedWriter`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuspendedWriterJob {
    /// Where the image is stored.
    pub store: StoreJob,
    /// The task's application.
    pub app: Tid,
    /// Name of the image's file.
    pub name: String,
}

/// See [`HelperJob::SuspendedReader`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuspendedReaderJob {
    /// The store's folder.
    pub root: PathBuf,
    /// The task's application.
    pub app: Tid,
    /// The image.
    pub image: Part,
}

impl HelperJob {
    /// The name of the job on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            HelperJob::TransferSender(_) => "transfer-sender",
            HelperJob::TransferReceiver(_) => "transfer-receiver",
            HelperJob::TransferRestorer(_) => "transfer-restorer",
            HelperJob::StoreWriter(_) => "store-writer",
            HelperJob::StoreReader(_) => "store-reader",
            HelperJob::StoreTaker(_) => "store-taker",
            HelperJob::SuspendedWriter(_) => "suspended-writer",
            HelperJob::SuspendedReader(_) => "suspended-reader",
            HelperJob::BucketPusher { .. } => "bucket-pusher",
            HelperJob::Coordinator { .. } => "coordinator",
            HelperJob::LeaseProbe => "lease-probe",
            HelperJob::Guardian { .. } => "guardian",
        }
    }

    /// The words of the command line after the program's name.
    pub fn words(&self) -> [String; 3] {
        let job = serde_json::to_string(self).expect("the paths of a job are UTF-8");
        [HELPER.to_owned(), self.name().to_owned(), job]
    }

    /// The job in the words of a command line after the program's name; none if the command line is
    /// not a helper's.
    pub fn from_words(
        words: impl IntoIterator<Item = OsString>,
    ) -> Option<anyhow::Result<HelperJob>> {
        let mut words = words.into_iter();
        (words.next()? == HELPER).then(|| HelperJob::parse(words))
    }

    fn parse(words: impl Iterator<Item = OsString>) -> anyhow::Result<HelperJob> {
        let words: Vec<OsString> = words.collect();
        let [name, job] = &words[..] else {
            bail!(
                "`vmd {HELPER}` takes the name of a job and its description, not {} words: daemons \
                 start it, not people",
                words.len()
            );
        };
        let (name, job) = (name.to_string_lossy(), job.to_string_lossy());
        let job: HelperJob = serde_json::from_str(&job)
            .with_context(|| format!("cannot read the description of the job '{name}'"))?;
        ensure!(
            job.name() == name,
            "the job '{name}' has the description of a job '{}'",
            job.name()
        );
        Ok(job)
    }
}

#[cfg(test)]
mod tests;
