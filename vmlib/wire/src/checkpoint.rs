//! Checkpoints of applications: what they hold, and what daemons and coordinators say about them.
//!
//! The orders travel like those of [`crate::peer`], as [`crate::peer::Order`]s.

use crate::{
    codec::{Body, Message},
    frame::Op,
    id::{HostId, MachineId, Tid},
    limits,
    peer::{Belongings, KeepOrder},
    task::{Failed, message},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

message! { CheckpointAsk CheckpointEnd CutAsk CutMade PartStands CutLost CutGo CutGone PartSaved CommitAsk Committed CutClose CutClosed KeptSaved CutPrepare CutPrepared }

/// A committed, consistent set of images of one application, with what the machine had agreed on
/// about it: all that is needed to bring it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// What was agreed at the cut.
    pub agreed: AgreedPart,
    /// What was saved of each of its tasks, in the same order.
    pub parts: Vec<SavedPart>,
    /// What hosts kept for them of tasks that had ended.
    pub kept: Vec<KeptChunks>,
    /// From the wish until all of it was saved. Microseconds.
    pub took_us: u64,
}

/// What a task that had ended left behind for one that lived, and had not acknowledged it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptChunks {
    /// Who kept it.
    pub host: HostId,
    /// Of whom, for whom, up to which number.
    pub order: KeepOrder,
    /// The data frames, each whole.
    pub chunks: Vec<Body>,
}

impl Checkpoint {
    /// Chunks of messages in transit at the cut: sent, and not known to have been taken.
    pub fn in_transit(&self) -> u64 {
        in_transit(
            self.parts.iter().map(|part| part.unacknowledged),
            &self.kept,
        )
    }
}

/// Chunks of messages in transit, of what each task had not acknowledged and of what was kept of tasks
/// that had ended.
pub fn in_transit(unacknowledged: impl Iterator<Item = u32>, kept: &[KeptChunks]) -> u64 {
    let of_ended = kept.iter().map(|kept| kept.chunks.len() as u64);
    unacknowledged.map(u64::from).chain(of_ended).sum()
}

impl KeptChunks {
    /// Bytes of all chunks.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }
}

/// An application in the agreed state, at the cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreedPart {
    /// The machine.
    pub machine: MachineId,
    /// The application, its master's tid.
    pub app: Tid,
    /// Its generation.
    pub generation: u32,
    /// The epoch that the cut began.
    pub epoch: u32,
    /// The index of the cut in the machine's log.
    pub index: u64,
    /// Its tasks that were alive, by tid.
    pub tasks: Vec<AgreedTask>,
    /// The hosts of the machine: each says what it keeps.
    pub keepers: Vec<HostId>,
    /// Groups that have them as members.
    pub groups: Vec<SavedGroup>,
    /// When checkpoints of it are made by themselves.
    pub policy: Policy,
}

/// When checkpoints of an application are made by themselves, and how many stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// From the end of one to the beginning of the next. Milliseconds; 0: none is made, unless the next
    /// says otherwise.
    pub every_ms: u64,
    /// The mean time between failures, for which the best interval is chosen. Milliseconds; 0: not
    /// known.
    pub mtbf_ms: u64,
    /// How many are kept; 0: the store's own number.
    pub keep: u32,
    /// When the application goes back to the last one by itself.
    pub recover: Recover,
    /// The files of all checkpoints of it are compressed, also of those that somebody asks for.
    pub compress: bool,
    /// Its tasks stand while their images are written, and no copies of them ever write: less work for
    /// tasks that write to all of their memory again and again.
    pub blocking: bool,
}

/// When an application that has a checkpoint goes back to it by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recover {
    /// When a host is lost on which it has a task.
    #[default]
    Host,
    /// Also when the process of a task is ended by a signal that nobody sent through the machine.
    Kill,
    /// Never: what is left runs on.
    Never,
}

impl Policy {
    /// How long after the end of a checkpoint the next one is made, if one is, when the application lost
    /// that much time for the last one. Without a fixed interval it is that with which least time is lost in the mean, by
    /// checkpoints and by failures: the square root of twice the cost times the mean time between
    /// failures (J. W. Young, A first order approximation to the optimum checkpoint interval, CACM
    /// 17, 1974).
    pub fn interval(self, cost: Duration) -> Option<Duration> {
        match (self.every_ms, self.mtbf_ms) {
            (0, 0) => None,
            (0, mtbf) => {
                let best = (2.0 * cost.as_secs_f64() * mtbf as f64 / 1e3).sqrt();
                Some(Duration::from_secs_f64(best).max(limits::CHECKPOINT_EVERY_MIN))
            }
            (every, _) => Some(Duration::from_millis(every)),
        }
    }

    /// Whether checkpoints follow each other so soon that the memory is kept which images went through.
    pub fn comes_soon(self) -> bool {
        (1..limits::IMAGE_MEMORY_TIME.as_millis() as u64).contains(&self.every_ms)
    }

    /// Why no checkpoints can be made so, for people.
    pub fn refusal(self) -> Option<String> {
        if self.mtbf_ms > limits::MTBF_MAX.as_millis() as u64 {
            let max = limits::MTBF_MAX.as_secs() / 86_400;
            return Some(format!(
                "a mean time between failures is at most {max} days"
            ));
        }
        let (least, max) = (limits::CHECKPOINT_EVERY_MIN, limits::CHECKPOINTS_KEPT_MAX);
        if (1..least.as_millis() as u64).contains(&self.every_ms) {
            return Some(format!("checkpoints are made every {least:?} at most"));
        }
        let too_many = || format!("{max} checkpoints of an application are kept at most");
        (self.keep > max).then(too_many)
    }
}

/// A task in the agreed state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreedTask {
    /// The task.
    pub tid: Tid,
    /// Its owner.
    pub host: HostId,
    /// The owner's name and architecture.
    pub place: (String, String),
    /// Its incarnation there.
    pub incarnation: u32,
    /// Who asked for it.
    pub asker: Tid,
    /// The asker's number for that.
    pub request: u64,
    /// Its index among all tasks of the request.
    pub index: u32,
    /// Its program, for people.
    pub program: String,
}

/// A group, as far as its members are of one application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedGroup {
    /// Its name, which users choose freely. It is never part of a path.
    pub name: String,
    /// Of the group, at the cut.
    pub version: u64,
    /// Instance numbers and who has them, each of both once.
    pub members: Vec<(u32, Tid)>,
}

/// What was saved of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPart {
    /// Its image.
    pub image: Part,
    /// What its daemon knew of it.
    pub belongings: Belongings,
    /// How long it stood. Microseconds.
    pub freeze_us: u64,
    /// Chunks of messages that it had sent, and of which it did not know that they had been taken.
    pub unacknowledged: u32,
}

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its name in the folder of the checkpoint.
    pub name: String,
    /// Length of what it holds. Bytes.
    pub bytes: u64,
    /// The XXH3 hash of all that it holds, 128 bits, little-endian.
    #[serde(with = "serde_bytes")]
    pub hash: [u8; 16],
    /// Name of the host that wrote it, on whose disk it is unless all hosts share the folder.
    pub place: String,
    /// Length of what its file holds: less than `bytes` if that is only what differs from a base. Bytes.
    pub stored: u64,
    /// Length of its file, if that is compressed; none: it is not. Bytes.
    pub packed: Option<u64>,
    /// What its file is an increment of; none if that holds all.
    pub base: Option<Base>,
    /// Name of the second host that has it on its disk; none if all hosts share the folder, or if there
    /// was no second one.
    pub copy: Option<String>,
}

/// What the image of a task that is suspended alone is called in the store: `t3.17-g0-i4-n12.image`,
/// by the generation of its application, its incarnation and a number of its owner's.
pub fn suspended_image(
    app: Tid,
    tid: Tid,
    generation: u32,
    incarnation: u32,
    number: u64,
) -> String {
    let task = match tid.machine() == app.machine() {
        true => tid.to_string(),
        false => format!("{}-{tid}", tid.machine()),
    };
    format!("{task}-g{generation}-i{incarnation}-n{number}.image")
}

/// The part of an earlier checkpoint, of the same name, that an increment takes the rest from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Generation of that checkpoint.
    pub generation: u32,
    /// Its epoch.
    pub epoch: u32,
    /// Length of its part. Bytes.
    pub bytes: u64,
    /// Length of the file of that, if it is compressed; none: it is not. Bytes.
    pub packed: Option<u64>,
}

impl Part {
    /// Length of its file. Bytes.
    pub fn file_bytes(&self) -> u64 {
        self.packed.unwrap_or(self.stored)
    }
}

impl Base {
    /// Length of the file of that part. Bytes.
    pub fn file_bytes(&self) -> u64 {
        self.packed.unwrap_or(self.bytes)
    }
}

/// How an application was brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartReport {
    /// The application, its master's tid.
    pub app: Tid,
    /// From which checkpoint: its generation and epoch.
    pub from: (u32, u32),
    /// Its generation from now on.
    pub generation: u32,
    /// The hosts on which its tasks run, and how many on each.
    pub hosts: Vec<(HostId, u32)>,
    /// From the wish to the moment when all of them ran. Microseconds.
    pub total_us: u64,
    /// Newer checkpoints that are not whole, each with the reason.
    pub passed_over: Vec<String>,
}

/// A checkpoint that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// What it holds.
    pub checkpoint: Checkpoint,
    /// Newer ones that are not whole, each with the reason, for people.
    pub passed_over: Vec<String>,
    /// For how long it has been in the store. Milliseconds.
    pub age_ms: u64,
}

/// To the coordinator of an application, by a daemon: make a checkpoint. Answered with
/// [`CheckpointEnd`]. Asked again, with the same number, of each coordinator that takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointAsk {
    /// Chosen by the asker.
    pub request: u64,
    /// The application.
    pub app: Tid,
    /// Its generation when it was asked: nothing is carried out in another one.
    pub generation: u32,
    /// The application is to end with it, and how.
    pub stop: Option<Stop>,
}

/// How an application ends with a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// The machine remembers nothing of it.
    End,
    /// The machine remembers it as suspended, to be resumed from that checkpoint.
    Suspend(Suspend),
}

/// A wish to suspend an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspend {
    /// When it was asked. Milliseconds since 1970, by the clock of the daemon that was asked.
    pub asked_ms: u64,
    /// For so long from then on; after that it has ended, and its checkpoint stays. Milliseconds; 0:
    /// until somebody resumes it.
    pub for_ms: u64,
    /// The host that drains and from which its tasks cannot leave otherwise: it is resumed by itself
    /// when there is room. [`HostId::NONE`]: somebody asked for it.
    pub drained: HostId,
}

/// What became of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointEnd {
    /// As asked.
    pub request: u64,
    /// The application.
    pub app: Tid,
    /// How it went, or why there is none: then the application runs on.
    pub result: Result<CheckpointReport, Failed>,
}

/// How a checkpoint went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// The generation of the application.
    pub generation: u32,
    /// The epoch that it began.
    pub epoch: u32,
    /// Tasks in it.
    pub tasks: u32,
    /// Of all images.
    pub bytes: u64,
    /// Of their files in the store: less, if these hold only what differs from an earlier one, or are
    /// compressed.
    pub stored: u64,
    /// How long the task stood that stood longest. Microseconds, as what follows.
    pub freeze_us: u64,
    /// From the wish to the commit.
    pub total_us: u64,
    /// Chunks of messages in transit: sent, and not known to have been taken.
    pub in_transit: u64,
}

/// A coordinator to its own daemon: begin a cut of its application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutAsk {
    /// The application.
    pub app: Tid,
    /// The term of the coordinator.
    pub term: u32,
    /// The application ends with it, and how.
    pub stop: Option<Stop>,
}

/// The daemon of a coordinator to those of its application's tasks: a cut will follow, so bring the
/// portable ones to their safe points. Answered with [`CutPrepared`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutPrepare {
    /// The application.
    pub app: Tid,
    /// Its generation.
    pub generation: u32,
    /// No cut will follow: they go on.
    pub off: bool,
}

/// The answer to [`CutPrepare`]: the portable tasks of that host stand at safe points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutPrepared {
    /// The application.
    pub app: Tid,
    /// Its generation.
    pub generation: u32,
    /// Or one does not come to such a point.
    pub result: Result<(), Failed>,
}

/// Its daemon: the log has made the cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutMade {
    /// What was agreed then.
    pub agreed: AgreedPart,
}

/// An owner, to the host of the coordinator: a task stands, and a copy of it is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartStands {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// The task.
    pub tid: Tid,
    /// Where it is.
    pub host: HostId,
}

/// A coordinator's own daemon: a host is lost, with what it kept and what was being written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutLost {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// The host.
    pub host: HostId,
}

/// A coordinator to its own daemon: all tasks stand, they may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutGo {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
}

/// Its daemon: the log lets them go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutGone {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
}

/// An owner, to the host of the coordinator: what came of saving a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSaved {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// The task.
    pub tid: Tid,
    /// What was saved, or why it was not.
    pub result: Result<SavedPart, Failed>,
}

/// A host, to that of the coordinator: what it keeps of tasks that have ended for those of the
/// application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSaved {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// The host.
    pub host: HostId,
    /// What it keeps, or why that cannot be saved.
    pub result: Result<Vec<KeptChunks>, Failed>,
}

/// A coordinator to its own daemon: all parts are there, commit the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitAsk {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
}

/// Its daemon: it is in the store, or why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// Whether it is.
    pub result: Result<(), Failed>,
}

/// A coordinator to its own daemon: end the cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutClose {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// Whether the checkpoint is committed.
    pub saved: bool,
    /// What the application has lost for it. Microseconds.
    pub cost_us: u64,
    /// If the application ends with that, and its coordinator too: who is to be told what then. At
    /// most [`limits::CHECKPOINTS_WAITING_MAX`] beside the one who wanted it.
    pub ends: Vec<(HostId, CheckpointEnd)>,
}

/// Its daemon: the log has ended the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutClosed {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// Whether it left a checkpoint.
    pub saved: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_follows_from_cost_and_failures_or_is_what_was_said() {
        let policy = |every_ms, mtbf_ms| Policy {
            every_ms,
            mtbf_ms,
            ..Policy::default()
        };
        let second = Duration::from_secs(1);
        assert_eq!(policy(0, 0).interval(second), None);
        assert_eq!(policy(5_000, 60_000).interval(second), Some(5 * second));
        // The root of 2 * 1 s * 1800 s.
        assert_eq!(policy(0, 1_800_000).interval(second), Some(60 * second));
        let least = limits::CHECKPOINT_EVERY_MIN;
        assert_eq!(policy(0, 1).interval(second), Some(least));
        assert!(policy(0, u64::MAX).refusal().is_some());
    }
}
