//! What two daemons say to each other of a task that moves.

use crate::{
    checkpoint::Part,
    codec::Body,
    id::{HostId, Tid},
    task::{Failed, Watched},
};
use serde::{Deserialize, Serialize};

/// To the coordinator of a task's application, by its daemon: move it. Answered with [`MoveEnd`].
/// Asked again, with the same number, of each coordinator that takes its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveAsk {
    /// Chosen by the asker.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// Its owner when it was asked first: that daemon knows what became of this request.
    pub from: HostId,
    /// Its incarnation there: the owner's own log may be behind.
    pub incarnation: u32,
    /// The generation of its application in which it was asked: nothing is carried out in another one.
    pub generation: u32,
    /// Where to.
    pub to: HostId,
    /// How.
    pub way: MoveWay,
}

/// How the memory of a task travels that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveWay {
    /// Most of it while the task runs, in rounds; else all of it while the task stands still.
    pub precopy: bool,
    /// Compressed with LZ4 where that makes it smaller: for links that are slower than that.
    pub compress: bool,
    /// The task does not go on there, but is suspended: its image is in the store. It stays with its
    /// owner then, unless it was suspended before.
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

/// What became of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveEnd {
    /// As asked.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// How it went, or why the task is where it was.
    pub result: Result<MoveReport, Failed>,
}

/// How a move went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReport {
    /// Where the task was.
    pub from: HostId,
    /// Where it is.
    pub to: HostId,
    /// Bytes of the image.
    pub bytes: u64,
    /// Of these, what was sent while the task ran.
    pub copied: u64,
    /// In so many rounds.
    pub rounds: u32,
    /// From the wish to the first instruction at the target. Microseconds, as all that follow.
    pub total_us: u64,
    /// Until the target was prepared: the task ran.
    pub prepare_us: u64,
    /// Until the rounds were over: the task ran.
    pub copy_us: u64,
    /// Until all threads stood. Here the freeze begins.
    pub interrupt_us: u64,
    /// Until the image was written.
    pub save_us: u64,
    /// Until the last of it was handed to the network.
    pub transfer_us: u64,
    /// Until the target had it whole and verified, and the process stood there.
    pub restore_us: u64,
    /// Until nothing that the task had asked for was under way any more.
    pub drain_us: u64,
    /// Until the log said who owns the task.
    pub commit_us: u64,
    /// Chunks for the task that came while it stood and found no room at the source's daemon: their
    /// senders were asked to send them again. All others waited there and followed it.
    pub sent_again: u64,
}

impl MoveReport {
    /// How long the task stood still. Microseconds.
    pub fn freeze_us(&self) -> u64 {
        let image = self.interrupt_us + self.save_us + self.transfer_us + self.restore_us;
        image + self.drain_us + self.commit_us
    }
}

/// A move's source to its target: take this task?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveOffer {
    /// The task.
    pub tid: Tid,
    /// Its incarnation at the source.
    pub incarnation: u32,
    /// The source's number for this offer: one that was taken back may be answered after another.
    pub number: u64,
}

/// The answer to [`MoveOffer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReady {
    /// The task.
    pub tid: Tid,
    /// As offered.
    pub incarnation: u32,
    /// As offered.
    pub number: u64,
    /// By which the connection that brings the image is known, or why there can be none.
    pub ticket: Result<u64, Failed>,
    /// The target's working folder, if its daemon has one.
    pub work_dir: Option<String>,
}

/// The image is whole and verified, and its process stands ready; or why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveLoaded {
    /// The task.
    pub tid: Tid,
    /// As offered.
    pub incarnation: u32,
    /// Whether it is.
    pub result: Result<(), Failed>,
}

/// The release: the source gives up its right to resume the task, and from then on the log decides
/// the owner (`docs/protocol.md`, "Moves").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRelease {
    /// The task.
    pub tid: Tid,
    /// As offered.
    pub incarnation: u32,
    /// What the source's daemon knows of it.
    pub belongings: Belongings,
}

/// What a daemon knows of a task beside the agreed state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belongings {
    /// How many tasks its spawn request asked for.
    pub siblings: u32,
    /// The host whose daemon serves the console of its application, or none.
    pub console: HostId,
    /// What it watches.
    pub watches: Vec<Watched>,
    /// Number of its last request.
    pub asked: u64,
    /// The answer to that, a whole frame; none while it is under way.
    pub answer: Option<Body>,
    /// Whose daemon will send that answer after it ([`TaskAnswer`](super::TaskAnswer)), or none.
    pub awaits: HostId,
    /// Number of the last notify that it was told.
    pub told: u64,
    /// Those that it has not acknowledged, whole frames.
    pub untaken: Vec<Body>,
    /// The hosts of the machine, as far as it was or will be told.
    pub hosts: Vec<HostId>,
    /// It is saved by what its program gives, so that it can go on on any host.
    pub portable: bool,
    /// Its image in the store, if it is suspended and stays so.
    #[serde(default)]
    pub suspended: Option<Part>,
    /// The working folder of its host, if the daemon there has one.
    #[serde(default)]
    pub work_dir: Option<String>,
}

/// The source takes its offer back: the task stays there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveAbort {
    /// The task.
    pub tid: Tid,
    /// As offered.
    pub incarnation: u32,
}

/// A coordinator to the owner of a task: move it. Answered with [`MoveReported`]: a repeated order
/// with the phase that the move is in, or with its end. Does nothing if another term is agreed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveOrder {
    /// The term of the coordinator.
    pub term: u32,
    /// Whose daemon asked for it.
    pub asker: HostId,
    /// That daemon's number for it.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// Its incarnation at the owner: one whose log does not know it yet waits until it does.
    pub incarnation: u32,
    /// Where to.
    pub to: HostId,
    /// How.
    pub way: MoveWay,
}

/// A coordinator to the owner of a task: take that move back, if it can be. Does nothing if another
/// term is agreed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveCancel {
    /// The term of the coordinator.
    pub term: u32,
    /// Whose daemon asked for it.
    pub asker: HostId,
    /// That daemon's number for it.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// Why, for people.
    pub why: String,
}

/// The phases of a move in their order: those of a checkpoint (TotalCheckpoint), and copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MovePhase {
    /// The target is asked whether it is prepared; the task runs.
    Initialisation,
    /// Most of its memory goes to the target, in rounds; the task runs.
    Copying,
    /// The task is brought to a stand.
    Interruption,
    /// No frame reaches the task any more.
    Draining,
    /// The rest of its image goes to the target, until it is whole there.
    Saving,
    /// The log decides where it goes on, and there it does.
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

/// How a move stands, as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveState {
    /// It is in that phase; those before are over.
    In(MovePhase),
    /// It is over. The asker was told.
    Ended(Result<MoveReport, Failed>),
}

/// The owner of a task to the coordinator of its application: how a move stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReported {
    /// Whose daemon asked for it.
    pub asker: HostId,
    /// That daemon's number for it.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// How it stands.
    pub state: MoveState,
}

/// A coordinator to who asked for a move: it has come to that phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveProgress {
    /// As asked.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// The phase.
    pub phase: MovePhase,
}

/// The source of a move to who asked for it: so much of the image is under way. Comes about once a
/// second; one that is lost is not missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveSent {
    /// As asked.
    pub request: u64,
    /// The task.
    pub tid: Tid,
    /// How much.
    pub sent: Sent,
}

/// How much of the image of a task has left its host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Bytes that the process that sends has taken so far, with all that was sent more than once
    /// because the task has written it meanwhile.
    pub bytes: u64,
    /// Bytes of memory that the task has now.
    pub memory: u64,
}
