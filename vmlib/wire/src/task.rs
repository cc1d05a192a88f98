//! What a task's library and its daemon say to each other, on the task's data socket.
//!
//! A task's first frame is [`Enrol`]; the daemon answers with [`Welcome`] (the descriptor of the
//! interrupt socket travels with it) or [`Failed`]. After that the task sends requests, each with
//! a number in the header that goes up; the answer carries the same number. A request that was
//! not answered is asked again with its number, and is carried out once. Notifies carry number 0.

use crate::{
    agreed::{ExitStatus, HostFacts},
    checkpoint::{CheckpointReport, RestartReport},
    codec::Message,
    frame::Op,
    id::{HostId, MachineId, Tid},
    peer::{DrainReport, MoveReport, MoveWay},
    version::Offer,
};
use serde::{Deserialize, Serialize};

/// Ties a struct to its opcode.
macro_rules! message {
    ($($name:ident)*) => { $(impl Message for $name { const OP: Op = Op::$name; })* };
}
pub(crate) use message;

message! {
    Enrol Welcome Failed Done Spawn Spawned Exit Signal Watch Await Ended HostEvent KeptBy
    GroupChange GroupAsk GroupView Located HostsAsk Hosts Siblings Tids
    MoveTask Moved CheckTask Checked DrainHost Drained SaveApp Saved
    SuspendApp ResumeApp Resumed
}

/// Environment variable: path of the daemon's socket.
pub const ENV_SOCKET: &str = "VM_SOCKET";
/// Environment variable: the token by which a spawned process proves which task it is.
pub const ENV_TOKEN: &str = "VM_TOKEN";

/// The first frame of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrol {
    /// Versions that the library speaks.
    pub offer: Offer,
    /// What [`ENV_TOKEN`] held; `None` for a program started from a shell, a new master.
    pub token: Option<u64>,
    /// The program's name, for people.
    pub program: String,
}

/// The answer to [`Enrol`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The chosen version.
    pub version: u16,
    /// The machine.
    pub machine: MachineId,
    /// Where the task runs.
    pub host: HostId,
    /// Who it is.
    pub tid: Tid,
    /// Who spawned it; [`Tid::NONE`] for a master.
    pub parent: Tid,
    /// Its application, the master's tid.
    pub app: Tid,
    /// Which of the tasks of its spawn request it is, from 0.
    pub index: u32,
    /// Epoch of the entry that created it.
    pub epoch: u32,
    /// Generation of its application.
    pub generation: u32,
    /// Its incarnation.
    pub incarnation: u32,
    /// Unacknowledged bytes that it may have towards one receiver.
    pub window_bytes: u64,
    /// Bytes of messages that it may keep unread.
    pub inbox_bytes: u64,
}

/// What kind of failure, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailKind {
    /// No living host of that name.
    NoSuchHost,
    /// No living task of that id.
    NoSuchTask,
    /// No group of that name.
    NoSuchGroup,
    /// The task is no member of the group.
    NotMember,
    /// The program, or its working directory, was not found.
    NoSuchProgram,
    /// A limit was reached.
    Limit,
    /// The request is malformed.
    BadRequest,
    /// No version in common.
    Version,
    /// Not allowed in this state or for this caller.
    Refused,
    /// Not now, for a reason that passes by itself; try again.
    Busy,
    /// The host was lost meanwhile.
    HostLost,
    /// The operating system said no.
    System,
    /// The program is there, and this host cannot execute it.
    NotExecutable,
}

/// The answer to a request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Failed {
    /// For programs.
    pub kind: FailKind,
    /// For people: what failed, why, and what to do.
    pub text: String,
}

impl Failed {
    /// Puts the two together.
    pub fn new(kind: FailKind, text: impl Into<String>) -> Self {
        Failed {
            kind,
            text: text.into(),
        }
    }
}

/// The answer to a request that has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// Where new tasks go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Spread by free cores.
    #[default]
    Any,
    /// All on the host of that name.
    Host(String),
    /// In turn over the hosts of these names.
    Hosts(Vec<String>),
}

/// Start tasks; answered with [`Spawned`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// A path, or a name that is looked up in the target daemon's program path.
    pub program: String,
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// Set in addition to the daemon's environment.
    pub env: Vec<(String, String)>,
    /// Working directory; the asker's if `None` and it exists on the target.
    pub dir: Option<String>,
    /// How many.
    pub count: u32,
    /// Where.
    pub place: Place,
}

/// The answer to [`Spawn`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// The tasks that were started, in the order of their index.
    pub tids: Vec<Tid>,
    /// Hosts where some could not be started, and why.
    pub failures: Vec<(String, Failed)>,
}

/// Leave the machine. What is retained came before it in data frames with
/// [`crate::Header::KEEP`]. Answered with [`Done`] when the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The status to report to those who watch.
    pub status: i32,
    /// The last chunk number sent to each peer, for notify in order.
    pub last: Vec<(Tid, u64)>,
}

/// Send a signal to a task (kill is SIGKILL); answered with [`Done`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// The task.
    pub tid: Tid,
    /// The signal's number.
    pub signal: i32,
}

/// Ask to be notified, or no more; answered with [`Done`]. Asking for a task that has ended
/// notifies at once. After a resume the library asks again for all that it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Of what.
    pub what: Watched,
    /// Begin or end.
    pub on: bool,
}

/// What can be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Watched {
    /// The end of a task.
    Task(Tid),
    /// Hosts that are added.
    HostAdded,
    /// Hosts that are deleted or die.
    HostDeleted,
    /// The end of a task of which messages are awaited ([`Await`]).
    Source(Tid),
}

/// A receive waits for messages of one task: the asker wants to know when that has ended. No request:
/// it has no number, and no answer but [`Ended`]. A library says it again when it may have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Await {
    /// The task.
    pub tid: Tid,
}

/// Notify: a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Who ended.
    pub tid: Tid,
    /// How.
    pub status: ExitStatus,
    /// Number of the last chunk that it sent to the watcher: the library delivers this notify
    /// after it. `None`: not known; deliver after what has arrived in order, drop what comes later.
    pub last: Option<u64>,
    /// The host whose daemon keeps what the watcher has not taken yet.
    pub keeper: HostId,
    /// The watcher asked with [`Watch`]; else with [`Await`] alone, and its program is not told.
    pub watched: bool,
}

/// What a host kept of tasks that ended has another keeper, or none: it died with the host. Then a
/// notify that waits for a last chunk from there waits no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBy {
    /// The host that is gone.
    pub host: HostId,
    /// Who keeps it now.
    pub by: Option<HostId>,
}

/// Notify: a host was added or deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEvent {
    /// The host.
    pub host: HostId,
    /// Its name.
    pub name: String,
    /// Added, or gone.
    pub added: bool,
}

/// Join or leave a group; answered with [`GroupView`] after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupChange {
    /// The group's name.
    pub group: String,
    /// Join, or leave.
    pub join: bool,
}

/// Ask for a group's members; answered with [`GroupView`] once the daemon's log has reached
/// `version` of the group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAsk {
    /// The group's name.
    pub group: String,
    /// The least version that answers; 0 for what is known now.
    pub version: u64,
}

/// A group as of one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// The group's name.
    pub group: String,
    /// Goes up with each join and leave.
    pub version: u64,
    /// Instance number and tid of each member, by instance.
    pub members: Vec<(u32, Tid)>,
}

/// Where peers are and that their channels start anew: announce, then send again from the first
/// chunk not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The peer; `None`: every peer on `host` (a link to it was made again).
    pub peer: Option<Tid>,
    /// Where it is; [`HostId::NONE`]: it has ended, forget what is retained for it.
    pub host: HostId,
    /// Its incarnation there.
    pub incarnation: u32,
}

/// Ask for the hosts; answered with [`Hosts`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsAsk {}

/// The living hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// Number, facts, tasks alive there.
    pub hosts: Vec<(HostId, HostFacts, u32)>,
}

/// Ask for the tasks of the spawn request that bore the asker; answered with [`Tids`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Siblings {}

/// Tasks, in the order of their index; those that have ended too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tids {
    /// The tasks.
    pub tids: Vec<Tid>,
}

/// Move a task, which may be the asker; answered with [`Moved`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTask {
    /// The task.
    pub tid: Tid,
    /// To the host of that name, or to the one that the machine chooses.
    pub to: Option<String>,
    /// How.
    pub way: MoveWay,
}

/// The answer to [`MoveTask`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// How it went.
    pub report: MoveReport,
}

/// Ask whether a task can be moved; answered with [`Checked`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckTask {
    /// The task.
    pub tid: Tid,
}

/// The answer to [`CheckTask`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Each reason why it cannot be moved; none if it can.
    pub reasons: Vec<String>,
}

/// Have all tasks of a host leave, the asker too if it is there; answered with [`Drained`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainHost {
    /// Its name.
    pub host: String,
}

/// The answer to [`DrainHost`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// How it went.
    pub report: DrainReport,
}

/// Make a checkpoint of the asker's application; answered with [`Saved`]. The asker is in it as one
/// that has asked and has no answer yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveApp {}

/// The answer to [`SaveApp`] and [`SuspendApp`]: the checkpoint is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// How it went.
    pub report: CheckpointReport,
}

/// Suspend an application, which may be the asker's: then the asker is in its checkpoint as one that
/// has asked and has no answer yet, and gets none. Answered with [`Saved`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendApp {
    /// Its master.
    pub app: Tid,
    /// For so long; 0: until somebody resumes it. Milliseconds.
    pub for_ms: u64,
}

/// Resume an application that is suspended; answered with [`Resumed`] when all its tasks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeApp {
    /// Its master.
    pub app: Tid,
}

/// The answer to [`ResumeApp`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// How it went.
    pub report: RestartReport,
}
