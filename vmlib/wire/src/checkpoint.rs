//! Checkpoints of applications: their content, and the orders about them between daemons and
//! coordinators.
//!
//! The orders travel as [`crate::peer::Order`]s.

pub use crate::part::{Base, Part};
use crate::{
    codec::{Body, message},
    failure::{FailKind, Failed},
    id::{CheckpointId, HostId, MachineId, Tid},
    limits,
    peer::{Belongings, KeepOrder},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

message! { CheckpointAsk CheckpointEnd CutAsk CutMade PartStands CutLost CutGo CutGone PartSaved CommitAsk Committed CutClose CutClosed KeptSaved CutPrepare CutPrepared }

/// The content of a manifest: a committed, consistent set of images of one application, with the
/// agreed facts about it. A restart needs nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The agreed facts at the cut.
    pub agreed: AgreedPart,
    /// The saved state of each task, in the same order.
    pub parts: Vec<SavedPart>,
    /// Messages of ended tasks that hosts kept for these tasks.
    pub kept: Vec<KeptChunks>,
    /// From the request until everything was saved. Microseconds.
    pub took_us: u64,
}

/// Unacknowledged messages from one ended task to one living task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptChunks {
    /// The daemon that retains the messages.
    pub host: HostId,
    /// The ended task, the receiver, and the number of the last chunk.
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

/// Number of chunks in transit: chunks that the tasks had not acknowledged, and chunks that keepers
/// retained from ended tasks.
pub fn in_transit(unacknowledged: impl Iterator<Item = u32>, kept: &[KeptChunks]) -> u64 {
    let of_ended = kept.iter().map(|kept| kept.chunks.len() as u64);
    unacknowledged.map(u64::from).chain(of_ended).sum()
}

impl KeptChunks {
    /// Bytes of all chunks.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }

    /// The failure of a checkpoint for which hosts keep that many bytes, more than
    /// [`limits::KEPT_SAVED_MAX`].
    pub fn too_much(bytes: usize) -> Failed {
        let text = format!(
            "{bytes} bytes of messages of tasks that have ended wait for tasks of the application, \
             more than the {} that a checkpoint can hold; try again when those have received",
            limits::KEPT_SAVED_MAX
        );
        Failed::new(FailKind::Limit, text)
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
    /// Its living tasks, by tid.
    pub tasks: Vec<AgreedTask>,
    /// The hosts of the machine: each one reports the messages that it retains.
    pub keepers: Vec<HostId>,
    /// Groups with these tasks as members.
    pub groups: Vec<SavedGroup>,
    /// The checkpoint policy of the application.
    pub policy: Policy,
    /// The last context that the machine has given to a task.
    #[serde(default)]
    pub context: u32,
}

/// When the machine makes checkpoints of an application, and how many are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// From the end of one checkpoint to the beginning of the next. Milliseconds; 0: none is made,
    /// unless `mtbf_ms` is set.
    pub every_ms: u64,
    /// The mean time between failures, for which the best interval is chosen. Milliseconds; 0: not
    /// known.
    pub mtbf_ms: u64,
    /// How many checkpoints are kept; 0: the store's default.
    pub keep: u32,
    /// When the application recovers from the last checkpoint.
    pub recover: Recover,
    /// Whether the files of its checkpoints are compressed, also of requested ones.
    pub compress: bool,
    /// Whether tasks stay frozen while their images are written, without forked saves. This is less
    /// work for tasks that write to all of their memory continuously.
    pub blocking: bool,
}

/// When an application with a checkpoint recovers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recover {
    #[default]
    /// When a host with a task of the application is lost.
    Host,
    /// The same, and when the process of a task is ended by a signal that did not come through the
    /// machine.
    Kill,
    /// Never: the remaining tasks run on.
    Never,
}

impl Policy {
    /// Time from the end of a checkpoint to the next one; `None`: no checkpoint follows by itself.
    /// `cost` is the time that the application lost for the last checkpoint. Without a fixed
    /// interval, the result is the interval with the smallest mean loss by checkpoints and
    /// failures: the square root of twice the cost times the mean time between failures (J. W.
    /// Young, A first order approximation to the optimum checkpoint interval, CACM 17, 1974).
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

    /// Whether checkpoints follow each other within [`limits::IMAGE_MEMORY_TIME`].
    pub fn comes_soon(self) -> bool {
        (1..limits::IMAGE_MEMORY_TIME.as_millis() as u64).contains(&self.every_ms)
    }

    /// The reason why this policy is refused, for users; `None`: it is accepted.
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
    /// Its incarnation on the owner.
    pub incarnation: u32,
    /// The requester of its spawn.
    pub requester: Tid,
    /// The requester's number of that request.
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
    /// Version of the group at the cut.
    pub version: u64,
    /// Instance numbers and members, each of both once.
    pub members: Vec<(u32, Tid)>,
}

/// The saved state of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPart {
    /// Its image.
    pub image: Part,
    /// Its daemon's state about it.
    pub belongings: Belongings,
    /// Its freeze time. Microseconds.
    pub freeze_us: u64,
    /// Chunks that it had sent and that were not acknowledged.
    pub unacknowledged: u32,
}

/// Name in the store of the image of a task that is suspended alone: `t3.17-g0-i4-n12.image`. The
/// numbers are the generation of its application, its incarnation, and a number of its owner's.
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

/// The report of a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartReport {
    /// The application, its master's tid.
    pub app: Tid,
    /// Generation and epoch of the checkpoint.
    pub from: CheckpointId,
    /// The new generation of the application.
    pub generation: u32,
    /// The hosts of its tasks, and the number of tasks on each.
    pub hosts: Vec<(HostId, u32)>,
    /// From the request until all tasks ran. Microseconds.
    pub total_us: u64,
    /// Newer checkpoints that are not whole, each with the reason.
    pub passed_over: Vec<String>,
}

/// A checkpoint that was read from a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Content of the manifest.
    pub checkpoint: Checkpoint,
    /// Newer checkpoints that are not whole, each with the reason, as text for users.
    pub passed_over: Vec<String>,
    /// Time that it has been in the store. Milliseconds.
    pub age_ms: u64,
}

/// To the coordinator of an application, by a daemon: make a checkpoint. The reply is
/// [`CheckpointEnd`]. Repeated, with the same number, to each coordinator that replaces another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointAsk {
    /// Number chosen by the requester; the reply bears it.
    pub request: u64,
    /// The application.
    pub app: Tid,
    /// Generation of the application at the time of the request; in another generation the request
    /// is refused.
    pub generation: u32,
    /// Whether, and how, the application ends with the checkpoint.
    pub stop: Option<Stop>,
}

/// How an application ends with a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// The machine forgets the application.
    End,
    /// The machine remembers the application as suspended, to be resumed from that checkpoint.
    Suspend(Suspend),
}

/// A request to suspend an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspend {
    /// Time of the request. Milliseconds since 1970, by the clock of the daemon that received it.
    pub asked_ms: u64,
    /// Length of the suspension from then on; afterwards the application has ended, and its
    /// checkpoint stays. Milliseconds; 0: until a request resumes it.
    pub for_ms: u64,
    /// The draining host that its tasks cannot leave otherwise: the machine resumes the application
    /// when there is room. [`HostId::NONE`]: a user requested the suspension.
    pub drained: HostId,
}

/// The result of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointEnd {
    /// As in the request.
    pub request: u64,
    /// The application.
    pub app: Tid,
    /// The report, or why there is no checkpoint: then the application runs on.
    pub result: Result<CheckpointReport, Failed>,
}

/// The report of a checkpoint that was committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// Generation of the application.
    pub generation: u32,
    /// Epoch of the checkpoint.
    pub epoch: u32,
    /// Number of its tasks.
    pub tasks: u32,
    /// Length of all images. Bytes.
    pub bytes: u64,
    /// Length of their files in the store: less for increments and compressed files. Bytes.
    pub stored: u64,
    /// Longest freeze time of a task. Microseconds, like the next field.
    pub freeze_us: u64,
    /// From the request to the commit.
    pub total_us: u64,
    /// Chunks in transit: sent, and not acknowledged.
    pub in_transit: u64,
}

/// A coordinator to its own daemon: begin a cut of its application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutAsk {
    /// The application.
    pub app: Tid,
    /// The term of the coordinator.
    pub term: u32,
    /// Whether, and how, the application ends with the checkpoint.
    pub stop: Option<Stop>,
}

/// The daemon of a coordinator to the owners: a cut will follow, bring portable tasks to their safe
/// points. The reply is [`CutPrepared`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutPrepare {
    /// The application.
    pub app: Tid,
    /// Its generation.
    pub generation: u32,
    /// `true`: no cut will follow, and the tasks continue.
    pub off: bool,
}

/// Reply to [`CutPrepare`]: the portable tasks of that host are at safe points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutPrepared {
    /// The application.
    pub app: Tid,
    /// Its generation.
    pub generation: u32,
    /// Whether they are; or the task that comes to no safe point.
    pub result: Result<(), Failed>,
}

/// A daemon to its coordinator: the log has made the cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutMade {
    /// The agreed facts at the cut.
    pub agreed: AgreedPart,
}

/// An owner to the host of the coordinator: a task is frozen, and its copy writes the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartStands {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// The task.
    pub tid: Tid,
    /// Its owner.
    pub host: HostId,
}

/// A daemon to its coordinator: a host is lost, with the messages that it kept and the images that
/// were being written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutLost {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// The lost host.
    pub host: HostId,
}

/// A coordinator to its own daemon: all tasks are frozen, resume them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutGo {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
}

/// A daemon to its coordinator: the log has resumed the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutGone {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
}

/// An owner to the host of the coordinator: the result of saving a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSaved {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// The task.
    pub tid: Tid,
    /// The saved state, or why there is none.
    pub result: Result<SavedPart, Failed>,
}

/// A host to the host of the coordinator: the messages of ended tasks that the host retains for
/// tasks of the application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSaved {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// The host.
    pub host: HostId,
    /// The messages, or why they cannot be saved.
    pub result: Result<Vec<KeptChunks>, Failed>,
}

/// A coordinator to its own daemon: all parts are there, commit the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitAsk {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
}

/// A daemon to its coordinator: the result of the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// Whether the manifest is in the store, or why not.
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
    /// Time that the checkpoint cost the application. Microseconds.
    pub cost_us: u64,
    /// Replies to send if the application, and with it the coordinator, ends with the checkpoint:
    /// each with the host of its requester. At most [`limits::CHECKPOINTS_WAITING_MAX`], and one
    /// for the requester of this checkpoint.
    pub ends: Vec<(HostId, CheckpointEnd)>,
}

/// A daemon to its coordinator: the log has ended the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutClosed {
    /// The application.
    pub app: Tid,
    /// The epoch of the cut.
    pub epoch: u32,
    /// Whether the checkpoint is committed.
    pub saved: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_fixed_or_follows_from_cost_and_failures() {
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
