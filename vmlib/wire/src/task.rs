//! Frames between a task's library and its daemon, on the task's data socket.
//!
//! A task's first frame is [`Enrol`]. The daemon replies with [`Welcome`], together with the
//! descriptor of the interrupt socket, or with [`Failed`]. Then the task sends requests. Each
//! request has a number in its header that goes up, and its reply has the same number. The library
//! repeats a request without a reply under its number, and the daemon carries the request out once.
//! Notifications have number 0.

use crate::{
    agreed::{ExitStatus, HostFacts},
    checkpoint::{CheckpointReport, RestartReport},
    codec::message,
    direct::Secret,
    id::{HostId, MachineId, Tid},
    peer::{DrainReport, MoveReport, MoveWay},
    version::Offer,
};
pub use crate::{
    failure::{FailKind, Failed},
    watched::Watched,
};
use serde::{Deserialize, Serialize};

message! {
    Enrol Welcome Failed Done Spawn Spawned Exit Signal Watch Await Ended HostEvent KeptBy
    GroupChange GroupAsk GroupView ContextAsk ContextGiven Located HostsAsk Hosts Siblings Tids
    MoveTask Moved CheckTask Checked DrainHost Drained SaveApp Saved
    SuspendApp ResumeApp Resumed RingAsk RingOpen RingClosed DirectDial DirectOpen
}

/// Environment variable: path of the daemon's socket.
pub const ENV_SOCKET: &str = "VM_SOCKET";
/// Environment variable: the token by which a spawned process proves which task it is.
pub const ENV_TOKEN: &str = "VM_TOKEN";
/// Environment variable: the context in which a spawned program begins, a number. Without it, the
/// program begins in context 0.
pub const ENV_CONTEXT: &str = "VM_CONTEXT";

/// The first frame of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrol {
    /// Versions that the library speaks.
    pub offer: Offer,
    /// The value of [`ENV_TOKEN`]; `None` for a program started from a shell, a new master.
    pub token: Option<u64>,
    /// Name of the program, for users.
    pub program: String,
}

/// Reply to [`Enrol`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version chosen for this connection.
    pub version: u16,
    /// The machine.
    pub machine: MachineId,
    /// The task's host.
    pub host: HostId,
    /// The task's id.
    pub tid: Tid,
    /// The task that spawned it; [`Tid::NONE`] for a master.
    pub parent: Tid,
    /// Its application, the master's tid.
    pub app: Tid,
    /// Its index among the tasks of its spawn request, from 0.
    pub index: u32,
    /// Epoch of the entry that created it.
    pub epoch: u32,
    /// Generation of its application.
    pub generation: u32,
    /// Incarnation of the task.
    pub incarnation: u32,
    /// Unacknowledged bytes that it may have towards one receiver.
    pub window_bytes: u64,
    /// Bytes of messages that it may keep unread.
    pub inbox_bytes: u64,
}

/// Reply to a request without a result.
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

/// Start tasks. The reply is [`Spawned`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// A path, or a name that is looked up in the target daemon's program path.
    pub program: String,
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// Variables in addition to the daemon's environment.
    pub env: Vec<(String, String)>,
    /// Working directory; the requester's if `None` and it exists on the target.
    pub dir: Option<String>,
    /// Number of tasks.
    pub count: u32,
    /// Hosts of the tasks.
    pub place: Place,
}

/// Reply to [`Spawn`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// The tasks that were started, in the order of their index.
    pub tids: Vec<Tid>,
    /// Hosts where tasks could not be started, and why.
    pub failures: Vec<(String, Failed)>,
}

/// Leave the machine. The retained chunks come before it, in data frames with
/// [`crate::Header::KEEP`]. The reply is [`Done`], when the log has the exit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Status for the watchers.
    pub status: i32,
    /// The last chunk number sent to each peer, for notify in order.
    pub last: Vec<(Tid, u64)>,
}

/// Send a signal to a task (kill is SIGKILL). The reply is [`Done`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// The task that gets the signal.
    pub tid: Tid,
    /// Number of the signal.
    pub signal: i32,
}

/// Begin or end a watch. The reply is [`Done`]. The watch of an ended task notifies at once. After
/// a resume the library repeats all its watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The watched task or event.
    pub what: Watched,
    /// `true`: begin; `false`: end.
    pub on: bool,
}

/// A receive waits for messages of one task, and its library requests the notification of that
/// task's end. Not a request: it has no number, and its only reply is [`Ended`]. A library repeats
/// it when it may have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Await {
    /// The task whose messages are awaited.
    pub tid: Tid,
}

/// Notification: a task has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The ended task.
    pub tid: Tid,
    /// Its exit status.
    pub status: ExitStatus,
    /// Number of the last chunk that it sent to the watcher: the library delivers this notification
    /// after it. `None`: not known; deliver after the chunks that have arrived in order, and drop
    /// later ones.
    pub last: Option<u64>,
    /// The host that keeps the messages that the watcher has not taken yet.
    pub keeper: HostId,
    /// `true`: after [`Watch`]; `false`: after [`Await`] alone, and the program is not notified.
    pub watched: bool,
}

/// The messages of ended tasks that a host kept have another keeper, or none: they were lost with
/// the host. Then a notification that waits for a last chunk from that host waits no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBy {
    /// The host that left or is lost.
    pub host: HostId,
    /// The new keeper; `None`: the messages are lost.
    pub by: Option<HostId>,
}

/// Notification: a host has joined, left or is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEvent {
    /// The host.
    pub host: HostId,
    /// Name of the host.
    pub name: String,
    /// `true`: joined; `false`: left or lost.
    pub added: bool,
}

/// Join or leave a group. The reply is [`GroupView`], after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupChange {
    /// The group's name.
    pub group: String,
    /// `true`: join; `false`: leave.
    pub join: bool,
}

/// Request for the members of a group. The reply is [`GroupView`], once the daemon's log has
/// reached `version` of the group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAsk {
    /// The group's name.
    pub group: String,
    /// Least version for the reply; 0 for the version known now.
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

/// Request for a new context. The reply is [`ContextGiven`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextAsk {}

/// Reply to [`ContextAsk`]. Each reply has another context, also one to a repeated request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextGiven {
    /// The context: 1 to [`limits::CONTEXTS_MAX`](crate::limits::CONTEXTS_MAX).
    pub context: u32,
}

/// The hosts of peers, whose channels start anew: announce, then send again from the first chunk
/// not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The peer; `None`: every peer on `host` (a link to it was made again).
    pub peer: Option<Tid>,
    /// Its host; [`HostId::NONE`]: it has ended, drop the chunks retained for it.
    pub host: HostId,
    /// Its incarnation on that host.
    pub incarnation: u32,
}

/// Request for the hosts. The reply is [`Hosts`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsAsk {}

/// The living hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// Number, facts and living tasks of each host.
    pub hosts: Vec<(HostId, HostFacts, u32)>,
}

/// Request for the tasks of the requester's own spawn request. The reply is [`Tids`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Siblings {}

/// Tasks, in the order of their index; ended tasks included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tids {
    /// The tasks.
    pub tids: Vec<Tid>,
}

/// Move a task, perhaps the requester itself. The reply is [`Moved`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTask {
    /// The task.
    pub tid: Tid,
    /// Name of the target; `None`: the machine chooses.
    pub to: Option<String>,
    /// Options of the move.
    pub way: MoveWay,
}

/// Reply to [`MoveTask`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The report of the move.
    pub report: MoveReport,
}

/// Test whether a task can be moved. The reply is [`Checked`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckTask {
    /// The task.
    pub tid: Tid,
}

/// Reply to [`CheckTask`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Each reason why it cannot be moved; none if it can.
    pub reasons: Vec<String>,
}

/// Drain a host, perhaps the requester's own. The reply is [`Drained`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainHost {
    /// Name of the host.
    pub host: String,
}

/// Reply to [`DrainHost`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// The report of the drain.
    pub report: DrainReport,
}

/// Make a checkpoint of the requester's application. The reply is [`Saved`]. In the checkpoint, the
/// requester has sent this request and has no reply yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveApp {}

/// Reply to [`SaveApp`] and [`SuspendApp`]: the checkpoint is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The report of the checkpoint.
    pub report: CheckpointReport,
}

/// Suspend an application. The reply is [`Saved`]. If the application is the requester's own, the
/// requester is in the checkpoint without a reply, and gets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendApp {
    /// Tid of the master.
    pub app: Tid,
    /// Length of the suspension; 0: until a request resumes it. Milliseconds.
    pub for_ms: u64,
}

/// Resume a suspended application. The reply is [`Resumed`], when all its tasks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeApp {
    /// Tid of the master.
    pub app: Tid,
}

/// Reply to [`ResumeApp`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The report of the restart.
    pub report: RestartReport,
}

/// Open a route past the daemon to another task: a ring to a task of this host, a direct connection to
/// a task of another host. The daemon opens it or does nothing; the task asks again later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingAsk {
    /// The other task.
    pub peer: Tid,
}

/// A ring is open. With the frame come three descriptors: the memory of the ring, the eventfd that
/// wakes this task, and the eventfd that wakes the peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingOpen {
    /// The other task.
    pub peer: Tid,
    /// The number of the ring: the daemon counts from a random number.
    pub id: u64,
    /// Which of the two ends this task is: 0 or 1.
    pub end: u8,
    /// Process id of the peer, from which long messages are read.
    pub pid: u32,
}

/// A ring or a direct connection is closed, because one of its tasks is frozen to be moved or has
/// ended, or because the link between their hosts is lost. Also from a task that cannot use it, or has
/// not used it for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingClosed {
    /// The other task.
    pub peer: Tid,
    /// The number of the ring or of the direct connection.
    pub id: u64,
    /// Why it is closed.
    pub why: RouteEnd,
}

/// Why a ring or a direct connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouteEnd {
    /// The daemon has closed it.
    Closed,
    /// A task cannot use it, has not used it for long, or finds that it has ended.
    GivenUp,
    /// The task that dials could not make the direct connection: the host of the peer cannot be reached,
    /// or no frame of the peer came.
    NotMade,
}

/// Make a direct connection to a task of another host, as the end that dials ([`crate::direct`]). A task
/// that cannot make it says [`RingClosed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectDial {
    /// The other task.
    pub peer: Tid,
    /// The number of the connection.
    pub id: u64,
    /// `address:port` of the peer's daemon, which hands the connection to the peer.
    pub addr: String,
    /// The secret of the connection.
    pub secret: Secret,
    /// Whether the frames are sealed.
    pub sealed: bool,
}

/// A direct connection from a task of another host has come. With the frame comes its descriptor; the
/// opening is read and proved. This task is the end that accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectOpen {
    /// The other task.
    pub peer: Tid,
    /// The number of the connection.
    pub id: u64,
    /// The secret of the connection.
    pub secret: Secret,
    /// Whether the frames are sealed.
    pub sealed: bool,
}
