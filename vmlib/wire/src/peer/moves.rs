//! Orders between daemons, and between daemons and coordinators, about a task that moves.

use crate::{
    codec::Body,
    failure::Failed,
    id::{HostId, Tid},
    part::Part,
    watched::Watched,
};
use serde::{Deserialize, Serialize};

/// A daemon to the coordinator of a task's application: move the task. The reply is [`MoveEnd`].
/// Repeated with the same number to each coordinator that replaces another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveAsk {
    /// Number chosen by the requester; the reply bears it.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// Its owner at the time of the first request: that daemon knows the result of the request.
    pub from: HostId,
    /// Its incarnation on that owner: the owner's own log may be behind.
    pub incarnation: u32,
    /// Generation of its application at the time of the request; in another generation the request
    /// is refused.
    pub generation: u32,
    /// The target.
    pub to: HostId,
    /// Options of the move.
    pub way: MoveWay,
}

/// Options of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveWay {
    /// `true`: most memory is sent while the task runs, in pre-copy rounds; `false`: all of it is
    /// sent during the freeze.
    pub precopy: bool,
    /// Compress memory with LZ4 where that makes it smaller: for links that are slower than the
    /// compression.
    pub compress: bool,
    /// The task has no process afterwards. To its owner: suspend the task, whose image goes into the
    /// store. To another host: hand on a task that is suspended, and refuse one that is not.
    pub suspended: bool,
}

impl Default for MoveWay {
    fn default() -> Self {
        MoveWay {
            precopy: true,
            compress: false,
            suspended: false,
        }
    }
}

/// The result of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveEnd {
    /// As in the request.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// The report, or why the task is where it was.
    pub result: Result<MoveReport, Failed>,
}

/// The report of a move that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReport {
    /// The source.
    pub from: HostId,
    /// The target.
    pub to: HostId,
    /// Bytes of the image.
    pub bytes: u64,
    /// Bytes of these that were sent while the task ran.
    pub copied: u64,
    /// Number of pre-copy rounds.
    pub rounds: u32,
    /// From the request to the first instruction at the target. Microseconds, as all that follow.
    pub total_us: u64,
    /// Until the target was prepared: the task ran.
    pub prepare_us: u64,
    /// Until the pre-copy rounds were over: the task ran.
    pub copy_us: u64,
    /// Until all threads were stopped. The freeze begins here.
    pub interrupt_us: u64,
    /// Until the image was written.
    pub save_us: u64,
    /// Until the last byte of the image was handed to the network.
    pub transfer_us: u64,
    /// Until the target had the image whole and verified, and the process was ready, frozen.
    pub restore_us: u64,
    /// Until no request of the task was under way.
    pub drain_us: u64,
    /// Until the log had decided the owner.
    pub commit_us: u64,
    /// Chunks for the task that came during the freeze and found no room at the source's daemon.
    /// Their senders send them again. All other chunks waited at the source and followed the task.
    pub sent_again: u64,
}

impl MoveReport {
    /// The freeze time of the task. Microseconds.
    pub fn freeze_us(&self) -> u64 {
        let image = self.interrupt_us + self.save_us + self.transfer_us + self.restore_us;
        image + self.drain_us + self.commit_us
    }
}

/// The report of a drain: for every task that was on the host, its new host or why it stayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainReport {
    /// The drained host.
    pub host: HostId,
    /// From the first request to the end of the last move. Microseconds.
    pub total_us: u64,
    /// Number of tasks that left.
    pub moved_count: u32,
    /// Number of tasks that stayed.
    pub refused_count: u32,
    /// Number of applications that were saved first.
    pub saved_count: u32,
    /// Tasks that left, at most [`crate::limits::DRAIN_NAMED_MAX`].
    pub moved: Vec<(Tid, MoveReport)>,
    /// Tasks that stayed, with reasons; at most as many.
    pub refused: Vec<(Tid, Failed)>,
    /// Applications that were suspended because one of their tasks could not leave; at most as
    /// many.
    pub suspended: Vec<Tid>,
}

/// The source of a move offers the task to the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveOffer {
    /// The task.
    pub tid: Tid,
    /// Its incarnation at the source.
    pub incarnation: u32,
    /// The source's number for this offer: the reply to a withdrawn offer may come after another
    /// offer.
    pub number: u64,
}

/// Reply to [`MoveOffer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReady {
    /// The task.
    pub tid: Tid,
    /// As in the offer.
    pub incarnation: u32,
    /// As in the offer.
    pub number: u64,
    /// Number that admits the connection with the image, or why the target refuses.
    pub ticket: Result<u64, Failed>,
    /// The target's working folder, if its daemon has one.
    pub work_dir: Option<String>,
}

/// The target reports that the image is whole and verified and its process is ready, frozen; or why
/// not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveLoaded {
    /// The task.
    pub tid: Tid,
    /// As in the offer.
    pub incarnation: u32,
    /// Whether the process is ready.
    pub result: Result<(), Failed>,
}

/// The release: the source gives up its right to resume the task, and from then on the log decides
/// the owner (`docs/protocol.md`, "Moves").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRelease {
    /// The task.
    pub tid: Tid,
    /// As in the offer.
    pub incarnation: u32,
    /// The source daemon's state about the task.
    pub belongings: Belongings,
}

/// A daemon's state about a task beside the agreed state. It moves with the task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belongings {
    /// Number of tasks of its spawn request.
    pub siblings: u32,
    /// The host whose daemon serves the console of its application, or none.
    pub console: HostId,
    /// Its watches.
    pub watches: Vec<Watched>,
    /// Number of its last request.
    pub asked: u64,
    /// The reply to that request, a whole frame; `None` while the request is under way.
    pub answer: Option<Body>,
    /// The host whose daemon will send that reply after it ([`TaskAnswer`](super::TaskAnswer)), or
    /// none.
    pub awaits: HostId,
    /// Number of the last notification sent to it.
    pub told: u64,
    /// Notifications that it has not acknowledged, whole frames.
    pub untaken: Vec<Body>,
    /// The hosts of the machine that it was or will be notified of.
    pub hosts: Vec<HostId>,
    /// Whether it is a portable task.
    pub portable: bool,
    #[serde(default)]
    /// Its image in the store, if it is suspended and stays so.
    pub suspended: Option<Part>,
    #[serde(default)]
    /// The working folder of its host, if the daemon there has one.
    pub work_dir: Option<String>,
}

/// The source withdraws its offer: the task stays at the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveAbort {
    /// The task.
    pub tid: Tid,
    /// As in the offer.
    pub incarnation: u32,
}

/// A coordinator to the owner of a task: move the task. The reply is [`MoveReported`]: to a
/// repeated order with the current phase of the move, or with its end. Without effect if another
/// term is agreed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveOrder {
    /// The term of the coordinator.
    pub term: u32,
    /// The host of the requester.
    pub requester: HostId,
    /// The requester's number of the request.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// Its incarnation on the owner; an owner whose log does not know it yet waits until it does.
    pub incarnation: u32,
    /// The target.
    pub to: HostId,
    /// Options of the move.
    pub way: MoveWay,
}

/// A coordinator to the owner of a task: cancel that move, if it is not released. Without effect if
/// another term is agreed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveCancel {
    /// The term of the coordinator.
    pub term: u32,
    /// The host of the requester.
    pub requester: HostId,
    /// The requester's number of the request.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// Reason, as text for users.
    pub why: String,
}

/// The phases of a move in their order: those of a checkpoint (TotalCheckpoint), and copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MovePhase {
    /// The source offers the task to the target; the task runs.
    Initialisation,
    /// Most memory goes to the target, in pre-copy rounds; the task runs.
    Copying,
    /// The task is being frozen.
    Interruption,
    /// No frame reaches the frozen task any more.
    Draining,
    /// The rest of the image goes to the target, until the image is whole there.
    Saving,
    /// The log decides the owner, and the task resumes there.
    Resumption,
}

impl MovePhase {
    /// All of them, in their order.
    pub const ALL: [MovePhase; 6] = [
        MovePhase::Initialisation,
        MovePhase::Copying,
        MovePhase::Interruption,
        MovePhase::Draining,
        MovePhase::Saving,
        MovePhase::Resumption,
    ];
}

impl std::fmt::Display for MovePhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MovePhase::Initialisation => "initialisation",
            MovePhase::Copying => "copying",
            MovePhase::Interruption => "interruption",
            MovePhase::Draining => "draining",
            MovePhase::Saving => "saving",
            MovePhase::Resumption => "resumption",
        })
    }
}

/// The state of a move, as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveState {
    /// The move is in that phase.
    In(MovePhase),
    /// The move has ended, and the requester has the result.
    Ended(Result<MoveReport, Failed>),
}

/// The owner of a task to the coordinator of its application: the state of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReported {
    /// The host of the requester.
    pub requester: HostId,
    /// The requester's number of the request.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// State of the move.
    pub state: MoveState,
}

/// A coordinator to the requester of a move: the move has come to that phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveProgress {
    /// As in the request.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// The current phase.
    pub phase: MovePhase,
}

/// The source of a move to its requester: progress of the image. Sent about once a second; a lost
/// one does no harm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveSent {
    /// As in the request.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// The progress.
    pub sent: Sent,
}

/// Progress of the image of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Bytes that the sending process has taken so far; pages that were sent again count again.
    pub bytes: u64,
    /// Current memory of the task. Bytes.
    pub memory: u64,
}
