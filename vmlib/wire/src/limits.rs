//! The limits of the protocol, and of the daemon's tables and times. The store and the bucket have
//! limits of their own in their crates; a constant that matters to one file only is in that file.
//!
//! Limits that a user may set are defaults here, named `*_DEFAULT`.

use std::time::Duration;

/// Payload of one chunk, the unit of numbering, credit, retention and acknowledgement. Bytes.
pub const CHUNK_MAX: usize = 64 * 1024;
/// Body of one frame that is not data: a request, a reply, an entry of the log. Bytes.
pub const CONTROL_MAX: usize = 1024 * 1024;
/// One message of a program. Bytes.
pub const MESSAGE_MAX: u64 = 1 << 30;
/// Unacknowledged bytes that a sender may have towards one receiver.
pub const WINDOW_BYTES_DEFAULT: u64 = 1024 * 1024;
/// Unacknowledged chunks that a sender may have towards one receiver, of any size.
pub const WINDOW_CHUNKS: u64 = 1024;
/// Bytes that a chunk counts in a window besides its payload, so that empty messages are not free.
pub const CHUNK_OVERHEAD: u64 = 128;
/// Bytes of messages that a receiver's library keeps until its program receives them.
pub const INBOX_BYTES_DEFAULT: u64 = 1 << 30;
/// Memory of one ring. Bytes.
pub const RING_BYTES: usize = 392 * 1024;
/// Rings and direct connections of one task: peers with which it exchanges messages past the daemon.
pub const RINGS_PER_TASK: usize = 64;
/// Rings of one host. Their memory is 784 MiB together.
pub const RINGS_PER_HOST: usize = 2048;
/// A task looks so often whether it uses its rings and direct connections. It closes one that it has
/// not used between two looks.
pub const RING_IDLE: Duration = Duration::from_secs(4);
/// Direct connections that one daemon expects for its tasks at one time.
pub const DIRECTS_AWAITED: usize = 1024;
/// Time for which a daemon expects a direct connection, and for which it waits for another daemon to
/// expect one.
pub const DIRECT_AWAITED: Duration = Duration::from_secs(5);
/// Time for a task to make a direct connection; shorter than [`DIRECT_AWAITED`].
pub const DIRECT_DIAL: Duration = Duration::from_secs(2);
/// Time for which a daemon expects no direct connection from a host whose tasks could not make one.
pub const DIRECT_PAUSE: Duration = Duration::from_secs(60);
/// Bytes that a daemon queues for one task or one link that does not read.
pub const QUEUE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes that a daemon queues for all tasks and links together. Above this limit data frames are
/// dropped (their senders retain them) until the queues have drained.
pub const QUEUES_BYTES_ALL: usize = 512 * 1024 * 1024;
/// Bytes of unacknowledged messages of ended tasks that one daemon keeps.
pub const KEEPER_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes of frames that a daemon holds for all tasks that have not enrolled or are frozen, and for
/// all links that are being made.
pub const ABSENT_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of frames that a daemon holds until its log has caught up with their senders'.
pub const HELD_BYTES: usize = 4 * 1024 * 1024;
/// Time until the target of a move has to reply to the offer.
pub const MOVE_OFFER_TIME: Duration = Duration::from_secs(5);
/// Content of open files that a move sends with the task. It is read during the freeze. Longer
/// files have to exist at the target. Bytes.
pub const MOVE_FILES: u64 = 4 * 1024 * 1024;
/// Content of open files that a task can rewrite, and of deleted ones, in a checkpoint, so that
/// these files can be rolled back; of other files a checkpoint has [`MOVE_FILES`]. About the memory
/// of a small task, so that the freeze is not much longer. Bytes.
pub const CHECKPOINT_FILES: u64 = 64 * 1024 * 1024;
/// Path of a daemon's working folder. Bytes.
pub const WORK_DIR_MAX: usize = 500;
/// How often a daemon checks the progress of its transfer processes, and reports the progress to
/// the requester of the move.
pub const MOVE_LOOK: Duration = Duration::from_secs(1);
/// Checks in a row at which a transfer process at the target had work and did none: it hangs.
pub const MOVE_STALL_LOOKS: u32 = 8;
/// The same at the source. Larger than at the target, so that the daemon nearer to the fault
/// reports it.
pub const MOVE_STALL_LOOKS_SOURCE: u32 = 11;
/// Time for which data on the connection of an image may be unacknowledged before the connection
/// counts as broken. Longer than a shortage of memory at the target lasts.
pub const MOVE_SILENCE: Duration = Duration::from_secs(12);
/// Unacknowledged bytes of an image on its connection, about; the system takes twice as much memory
/// for them. One processor seals as much in half a millisecond, which is longer than a round trip
/// in a cluster; data that waits longer has left the processor's cache before it is read.
pub const MOVE_SEND_BYTES: usize = 1024 * 1024;
/// Time for which the memory that a task has written its image into is kept for the task's next
/// image. Fresh memory costs little when checkpoints are farther apart.
pub const IMAGE_MEMORY_TIME: Duration = Duration::from_secs(120);
/// Largest memory of a task that may write its image into memory without `--blocking`: the freeze
/// lasts a tenth of a second at most. Bytes.
pub const IMAGE_MEMORY_UNASKED: u64 = 512 * 1024 * 1024;
/// Images that a task writes into memory before a copy of the task writes one, to see whether the
/// task still writes to most of its memory.
pub const IMAGE_MEMORY_TURNS: u32 = 15;
/// Time without a link to the target of a move, before the move is cancelled.
pub const MOVE_NO_LINK: Duration = Duration::from_secs(5);
/// Final report of a transfer process, as far as it is passed on. Bytes.
pub const MOVE_WORDS_MAX: usize = 1_024;
/// Time for the image of a moving task to arrive.
pub const MOVE_TIME: Duration = Duration::from_secs(600);
/// Tasks that move at the same time in a drain: enough that one image is written while another is
/// restored, few enough that they do not compete for links and disks. The same limit holds for
/// the checkpoints and suspensions of a drain.
pub const DRAIN_MOVES: usize = 4;
/// Hosts to which a drain offers one task; also attempts at the checkpoint, or at the suspension, of
/// one application.
pub const DRAIN_TRIES: usize = 3;
/// Time for which a drain waits for a task that is starting, ending or moving already, or has a child
/// process.
pub const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// How often a drain checks whether such a task can be moved.
pub const DRAIN_LOOK: Duration = Duration::from_millis(100);
/// Time for the drain of a daemon at SIGTERM, unless `--grace` says otherwise. With [`LEAVE_TIME`]
/// less than the 30 s that Slurm waits before it kills (KillWait), the shortest wait of the usual
/// batch systems.
pub const DRAIN_GRACE_DEFAULT: Duration = Duration::from_secs(18);
/// Tasks that the report of a drain names, of those that left and of those that stayed. The others
/// are counted.
pub const DRAIN_NAMED_MAX: usize = 1_024;
/// Reason why a task did not leave, in the report of a drain. Bytes.
pub const DRAIN_REASON_MAX: usize = 512;
/// Time without a decision after which the source of a move proposes that the task stays.
pub const MOVE_DOUBT: Duration = Duration::from_secs(1);
/// Time for the initialisation of a move, before the coordinator aborts the move; shorter than
/// [`MOVE_OFFER_TIME`].
pub const PHASE_INITIALISATION: Duration = Duration::from_secs(4);
/// Time for copying, interruption, draining and saving together, before the coordinator aborts the
/// move; shorter than [`MOVE_TIME`].
pub const PHASE_IMAGE: Duration = Duration::from_secs(590);
/// Time for a coordinator to act on a frame; a slower coordinator hangs, and is replaced.
pub const COORDINATOR_SILENT: Duration = Duration::from_secs(2);
/// Time for the process of a coordinator to start.
pub const COORDINATOR_START: Duration = Duration::from_secs(5);
/// Least time between the starts of two coordinators of one application by one daemon.
pub const COORDINATOR_PAUSE: Duration = Duration::from_secs(1);
/// Time for which the requester of a move waits for a coordinator that takes the request up.
pub const COORDINATOR_WAIT: Duration = Duration::from_secs(15);
/// Living applications for which checkpoints were requested.
pub const APPS_SAVED_MAX: usize = 16_384;
/// Suspended applications of one machine at one time.
pub const APPS_SUSPENDED_MAX: usize = 4_096;
/// Longest suspension that has an end.
pub const SUSPENDED_FOR_MAX: Duration = Duration::from_secs(10_000 * 86_400);
/// Least time between two checks whether there is room for a suspended application.
pub const RESUME_LOOK: Duration = Duration::from_secs(1);
/// Attempts at a checkpoint, if a task ends meanwhile or cannot be saved for a reason that passes.
pub const CHECKPOINT_TRIES: u32 = 20;
/// Time from the request of a checkpoint to the start of its last attempt.
pub const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(10);
/// Time for which a move is tried again while the task cannot be moved for a reason that passes by
/// itself: a child process, a move that is under way. A drain has [`DRAIN_PATIENCE`], and all of
/// its grace time at SIGTERM.
pub const MOVE_PATIENCE: Duration = Duration::from_secs(3);
/// Pause before a move or a checkpoint is tried again after such a reason: the first one, doubled
/// each time up to the second value.
pub const BUSY_PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// The pause before the next attempt, after `tries` attempts that failed for reasons that pass.
pub fn busy_pause(tries: u32) -> Duration {
    let (first, most) = BUSY_PAUSE;
    most.min(first * 2u32.saturating_pow(tries.saturating_sub(1)))
}
/// Longest freeze for a checkpoint; then any daemon of the tasks ends the cut.
pub const CUT_TIME: Duration = Duration::from_secs(600);
/// Time for which a checkpoint waits for a task that is starting.
pub const CUT_START: Duration = Duration::from_secs(5);
/// Time for which a checkpoint or a move waits until a portable task comes to a safe point.
pub const SAFE_POINT: Duration = Duration::from_secs(20);
/// The state that a portable task supplies, and the state that the library adds, each. Bytes.
pub const PORTABLE_PART_MAX: u64 = 4 << 30;
/// Least time from the end of a checkpoint of a policy to the next one.
pub const CHECKPOINT_EVERY_MIN: Duration = Duration::from_secs(1);
/// Checkpoints of one application that are kept, unless its policy says otherwise.
pub const CHECKPOINTS_KEPT: u32 = 3;
/// Most checkpoints of one application that a policy may keep.
pub const CHECKPOINTS_KEPT_MAX: u32 = 1_000;
/// Time from the good end of an application to the removal of its checkpoints.
pub const FINISHED_PAUSE: Duration = Duration::from_secs(2);
/// Longest mean time between failures that a policy may state.
pub const MTBF_MAX: Duration = Duration::from_secs(10_000 * 86_400);
/// Cost of a checkpoint beside its freeze time, while copies of the tasks write their images: a
/// second for that many bytes on the host with most, and at most half of the writing time. Measured
/// with tasks that write to all of their memory (`cargo vmbench --only heat`); others lose less.
pub const CHECKPOINT_LOSS_BYTES: u64 = 3 << 30;
/// Assumed cost of a checkpoint before the first one.
pub const CHECKPOINT_COST: Duration = Duration::from_millis(100);
/// Time from the start of a restart until all tasks are restored.
pub const REVIVE_TIME: Duration = Duration::from_secs(600);
/// Checkpoints of one application in the store inventory of a host.
pub const STOCK_MAX: usize = 64;
/// Faults of one checkpoint that a store inventory names.
pub const FLAWS_MAX: usize = 4;
/// Time for which store inventories of hosts are waited for. If hosts read all of a checkpoint,
/// [`REVIVE_TIME`].
pub const STOCK_WAIT: Duration = Duration::from_secs(10);
/// Parts of checkpoints that one daemon sends, and that it receives, at the same time.
pub const PARTS_MAX: usize = 8_192;
/// Messages of ended tasks, kept by all hosts for one application, in a checkpoint. Bytes.
pub const KEPT_SAVED_MAX: usize = 512 * 1024;
/// Attempts at the recovery of an application.
pub const RECOVERIES_MAX: u32 = 5;
/// Pause after a failed attempt.
pub const RECOVERY_PAUSE: Duration = Duration::from_secs(1);
/// A restart as a change of the log. Bytes.
pub const REVIVAL_MAX: usize = 512 * 1024;
/// A reason in the log. Bytes.
pub const REASON_MAX: usize = 1_024;
/// Moves that wait at one daemon for the coordinator of their application, and orders of
/// coordinators that are ahead of the daemon's log.
pub const MOVES_WAITING_MAX: usize = 4_096;
/// Time for which an owner holds an order to move a task whose application still has a cut by the
/// owner's log; then it refuses the order.
pub const MOVE_HELD: Duration = Duration::from_secs(2);
/// Times that a checkpoint may stop one task from leaving in a drain before that counts as an
/// attempt ([`DRAIN_TRIES`]).
pub const DRAIN_CUTS: usize = 16;
/// Time for which a move waits for the end of a checkpoint of its application; then it is refused.
pub const CHECKPOINT_AWAITED: Duration = Duration::from_secs(10);
/// Requests for checkpoints of one application that wait for the end of the current one.
pub const CHECKPOINTS_WAITING_MAX: usize = 16;
/// Moves that a coordinator drives at one time.
pub const MOVES_DRIVEN_MAX: usize = 4_096;
/// Ended moves whose results the source's daemon remembers.
pub const MOVES_ENDED_MAX: usize = 4_096;
/// Time for which a frame or a request waits until the log knows its task. A daemon whose log is
/// behind for longer loses its lease.
pub const HELD_TIME: Duration = Duration::from_millis(2_500);
/// Ended tasks whose last numbers one daemon remembers.
pub const ENDED_MAX: usize = 16_384;
/// Last numbers that one daemon remembers for all ended tasks together.
pub const ENDED_PAIRS_MAX: usize = 16 * ENDED_MAX;

/// Time for which a receiver may delay an acknowledgement that has no message to carry it.
pub const ACK_IDLE: Duration = Duration::from_millis(5);
/// Time without a reply after which a request is repeated.
pub const REQUEST_RETRY: Duration = Duration::from_millis(1000);

/// Hosts of one machine, over its lifetime.
pub const HOSTS_MAX: usize = 65_535;
/// Hosts of one machine at one time.
pub const HOSTS_LIVE_MAX: usize = 1_024;
/// Tasks alive on one host.
pub const TASKS_MAX_DEFAULT: usize = 4_096;
/// Tasks alive in one machine.
pub const TASKS_LIVE_MAX: usize = 131_072;
/// Tasks of one spawn request.
pub const SPAWN_COUNT_MAX: u32 = 4_096;
/// Arguments and environment of one spawn request. Bytes.
pub const SPAWN_TEXT_MAX: usize = 512 * 1024;
/// Groups of one machine.
pub const GROUPS_MAX: usize = 4_096;
/// Members of one group.
pub const GROUP_MEMBERS_MAX: usize = 65_536;
/// Members of all groups of one machine together.
pub const MEMBERSHIPS_MAX: usize = 524_288;
/// Contexts of one machine, over its lifetime. The numbers above are those of groups.
pub const CONTEXTS_MAX: u32 = (1 << 31) - 1;
/// Hosts that have left or are lost whose facts the agreed state remembers.
pub const DEPARTED_MAX: usize = 256;
/// A name of a host, group or program. Bytes.
pub const NAME_MAX: usize = 255;
/// A path or address. Bytes.
pub const PATH_MAX: usize = 4_096;
/// Watches of one task.
pub const WATCHES_MAX: usize = 65_536;
/// Sends and receives of one task that were started and are not complete.
pub const OPEN_REQUESTS_MAX: usize = 4_096;
/// Handlers of one task.
pub const HANDLERS_MAX: usize = 256;
/// Tasks of whose ends one task is informed because it waits for their messages.
pub const AWAITED_MAX: usize = 1_024;
/// Time that a receive from one task waits before its library requests the notification of that
/// task's end. A program whose messages come sooner causes no request.
pub const AWAIT_ASK: Duration = Duration::from_millis(500);
/// Consoles of one daemon at one time.
pub const CONSOLES_MAX: usize = 256;
/// Unauthenticated connections from the network: of addresses without a known host, of addresses
/// with one, and of those sealed with the secret, that many of each.
pub const STRANGERS_MAX: usize = 128;
/// Time for a connection from the network to prove the secret.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(1);
/// Time for a task or console to send its first frame after it has connected.
pub const LOCAL_HELLO_TIME: Duration = Duration::from_secs(5);
/// Connections from the network that wait to be accepted.
pub const BACKLOG: i32 = 1_024;
/// Connections cut off or refused in [`OFFENCES_TIME`] that are logged; the others are counted.
pub const OFFENCES_TOLD: u32 = 10;
/// Period of [`OFFENCES_TOLD`].
pub const OFFENCES_TIME: Duration = Duration::from_secs(60);
/// Time for a daemon that has joined to make links to the other hosts, before it reports the
/// missing link and leaves. Longer than the detection of a lost host.
pub const LINK_TIME: Duration = Duration::from_secs(10);
/// Hosts, of the lowest numbers, to which a daemon makes links at its start.
pub const LINKED_AT_START: usize = 16;
/// Requests of one console that are under way.
pub const CONSOLE_REQUESTS_MAX: usize = 64;
/// Time for which the listing of tasks waits for the usage from other hosts.
pub const USAGE_WAIT: Duration = Duration::from_millis(500);
/// Time for which a listing waits for a process that was just started: half of [`USAGE_WAIT`], so
/// that its host can still reply for the other tasks if the process does not begin.
pub const START_WAIT: Duration = Duration::from_millis(250);
/// Time for which the end of a run waits for the last lines of tasks that ended before it.
pub const FLUSH_WAIT: Duration = Duration::from_millis(500);
/// Time between SIGTERM and SIGKILL for tasks whose host leaves.
pub const END_GRACE: Duration = Duration::from_millis(2_000);
/// Time for a leaving host to hand over the messages that it keeps; then it leaves nevertheless.
pub const LEAVE_TIME: Duration = Duration::from_secs(10);
/// A signal that requests the end of a daemon counts as a second one, which ends the daemon at
/// once, only that long after the last one that counted: batch systems and terminals send several
/// at one time.
pub const STOP_AGAIN: Duration = Duration::from_secs(1);
/// Least time for which a halted daemon informs the others that the machine was halted.
pub const HALT_LINGER: Duration = Duration::from_millis(500);
/// Time for which a halted daemon waits for its tasks to end and for the other daemons to know;
/// then it ends.
pub const HALT_TIME: Duration = Duration::from_millis(3_000);
/// Pause before a daemon makes a broken link again: the first one, doubled each time up to the
/// second value.
pub const RECONNECT: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(1_000));
/// Time without a link between two hosts after which the link is reported as down: to the other
/// hosts, in `vm conf` and to the consoles of applications with tasks on both hosts. Later than a
/// host is declared dead.
pub const LINK_DOWN: Duration = Duration::from_secs(6);
/// One captured line of output; longer ones are cut into several. Bytes.
pub const LINE_MAX: usize = 8 * 1024;
/// Output of one application that waits for its console; beyond it lines are dropped and counted.
pub const OUTPUT_QUEUE_BYTES: usize = 4 * 1024 * 1024;

/// Output of a master that waits to be sent to the host of its console; above this limit the master
/// waits.
pub const RUN_QUEUE_BYTES: usize = 1024 * 1024;

/// One entry of the log. Bytes.
pub const ENTRY_MAX: usize = 64 * 1024;
/// Time for which a daemon gathers changes into one entry.
pub const ENTRY_GATHER: Duration = Duration::from_millis(2);
/// Entries that the log keeps before it is compacted into a snapshot.
pub const LOG_ENTRIES_MAX: u64 = 4_096;
/// Bytes of entries that the log keeps before it is compacted into a snapshot.
pub const LOG_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Entries in one frame of the feed. Bytes, but one entry at least.
pub const FEED_BYTES: usize = 256 * 1024;
/// A snapshot of the agreed state. Bytes.
pub const SNAPSHOT_MAX: usize = 72 * 1024 * 1024;

/// Entries in one message of Raft.
pub const RAFT_ENTRIES_MAX: usize = 65_536;
/// Hosts in one list of voters of Raft: five at most, and as many while they change.
pub const RAFT_VOTERS_MAX: usize = 16;
/// A term or an index of Raft: more than a machine can reach, and far from overflow.
pub const RAFT_NUMBER_MAX: u64 = 1 << 48;
/// Period of raft's tick.
pub const TICK: Duration = Duration::from_millis(50);
/// Period of the beats that request leases.
pub const BEAT: Duration = Duration::from_millis(100);
/// Length of a lease.
pub const LEASE: Duration = Duration::from_millis(2_500);
/// Time beyond a lease that the leader waits before it declares a host dead.
pub const LEASE_MARGIN: Duration = Duration::from_millis(500);
/// Time before the end of its lease at which a healthy daemon ends its tasks and prints the reason.
pub const LEASE_SOFT: Duration = Duration::from_millis(200);
/// Least time between two confirmations of the lead by the voters, each for all leases requested
/// meanwhile.
pub const LEASE_ROUND: Duration = Duration::from_millis(25);
/// Time without a beat after which a host counts as silent.
pub const SILENT: Duration = Duration::from_millis(500);
/// Time without an effect after which an unacknowledged message between daemons is repeated: a
/// proposed entry, a request for the feed, the request for a link.
pub const REPEAT: Duration = Duration::from_millis(250);
/// Shortest and longest election timeout. In ticks.
pub const ELECTION_TICKS: (usize, usize) = (12, 17);
/// The loss of a host is noticed within this time.
pub const DETECTION_PROMISE: Duration = Duration::from_secs(5);

/// One round trip between daemons and one commit, as assumed by the inequalities below.
const ROUND_MS: u128 = 100;
// A change of leader must not cost a lease: two beats, an election, its retry, one round.
const _: () = assert!(
    LEASE.as_millis()
        > 2 * BEAT.as_millis() + 2 * ELECTION_TICKS.1 as u128 * TICK.as_millis() + ROUND_MS
);
// A host that is lost is no reason for another one not to arrive.
const _: () = assert!(DETECTION_PROMISE.as_millis() < LINK_TIME.as_millis());
// A connection that proves nothing is given up, and another one made, within a lease.
const _: () = assert!(2 * HANDSHAKE_TIME.as_millis() + ROUND_MS < LEASE.as_millis());
// A dead leader is noticed within the promise: election, lease, margin, commit.
const _: () = assert!(
    ELECTION_TICKS.1 as u128 * TICK.as_millis()
        + LEASE.as_millis()
        + LEASE_MARGIN.as_millis()
        + ROUND_MS
        < DETECTION_PROMISE.as_millis()
);
// A dead host is declared so before its links count as down.
const _: () = assert!(LINK_DOWN.as_millis() > DETECTION_PROMISE.as_millis());
