//! Every limit of the protocol and of the daemon's tables, in one place.
//!
//! Limits that a user may set are defaults here, named `*_DEFAULT`.

use std::time::Duration;

/// Payload of one chunk, the unit of numbering, credit, retention and acknowledgement. Bytes.
pub const CHUNK_MAX: usize = 64 * 1024;
/// Body of one frame that is not data: a request, an answer, an entry of the log. Bytes.
pub const CONTROL_MAX: usize = 1024 * 1024;
/// One message of a user. Bytes.
pub const MESSAGE_MAX: u64 = 1 << 30;
/// Bytes that a sender may have unacknowledged towards one receiver.
pub const WINDOW_BYTES_DEFAULT: u64 = 1024 * 1024;
/// Chunks that a sender may have unacknowledged towards one receiver, whatever their size.
pub const WINDOW_CHUNKS: u64 = 1024;
/// What a chunk costs in a window besides its payload, so that empty messages are not free. Bytes.
pub const CHUNK_OVERHEAD: u64 = 128;
/// Bytes that a receiver's library keeps of messages not yet received by its program.
pub const INBOX_BYTES_DEFAULT: u64 = 1 << 30;
/// Bytes that a daemon holds for one task or one link that does not read.
pub const QUEUE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes that a daemon holds for all tasks and links together; above it frames of data are
/// dropped (their senders retain them) until the queues have drained.
pub const QUEUES_BYTES_ALL: usize = 512 * 1024 * 1024;
/// Bytes that a daemon keeps of the unacknowledged messages of tasks which have ended.
pub const KEEPER_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes of frames that a daemon holds for all tasks without a connection yet and for all links that
/// are being made.
pub const ABSENT_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of frames that a daemon holds until its log has caught up with their senders'.
pub const HELD_BYTES: usize = 4 * 1024 * 1024;
/// How long the target of a move may take to say that it is prepared.
pub const MOVE_OFFER_TIME: Duration = Duration::from_secs(5);
/// What the open files of a task that moves may hold together, so that the move takes them along:
/// they are read while the task stands still. The others have to be at the target. Bytes.
pub const MOVE_FILES: u64 = 4 * 1024 * 1024;
/// What the open files of a task that it can rewrite, and those that were deleted, may hold together, so
/// that a checkpoint has a copy to roll them back to; of its other files it takes [`MOVE_FILES`]. About
/// what the memory of a small task takes, so that the task does not stand still much longer. Bytes.
pub const CHECKPOINT_FILES: u64 = 64 * 1024 * 1024;
/// The path of a daemon's working folder. Bytes.
pub const WORK_DIR_MAX: usize = 500;
/// How often a daemon looks how far the processes that carry images are, and whether they make
/// headway; so often is who asked for a move told how much of the image was sent.
pub const MOVE_LOOK: Duration = Duration::from_secs(1);
/// So many looks at which a process at the target had something to do and did nothing: it hangs.
pub const MOVE_STALL_LOOKS: u32 = 8;
/// Likewise at the source, which sees the same a little later: whoever is nearer to the fault says so.
pub const MOVE_STALL_LOOKS_SOURCE: u32 = 11;
/// How long the connection of an image may leave data unacknowledged before it counts as broken. A
/// target that has no room for a while is not broken.
pub const MOVE_SILENCE: Duration = Duration::from_secs(12);
/// Bytes of an image that are sent and not acknowledged, about; the system takes twice as much memory
/// for them. It is as much as one processor seals in half a millisecond, which is more than a message
/// takes there and back in a cluster; what waits any longer has left the processors' caches before it
/// is read.
pub const MOVE_SEND_BYTES: usize = 1024 * 1024;
/// How long the memory is kept that a task which stands has written its image into, for its next image:
/// of two checkpoints that are farther apart, fresh memory costs the second one little.
pub const IMAGE_MEMORY_TIME: Duration = Duration::from_secs(120);
/// What a task may have in memory to write its image into memory though nobody has asked for that: it
/// stands for a tenth of a second at most. Bytes.
pub const IMAGE_MEMORY_UNASKED: u64 = 512 * 1024 * 1024;
/// So many images that a task has written into memory, and then a copy of it writes one: it may have
/// ceased to write to most of its memory.
pub const IMAGE_MEMORY_TURNS: u32 = 15;
/// How long there may be no link to the target of a move before the task is taken back.
pub const MOVE_NO_LINK: Duration = Duration::from_secs(5);
/// What a process that carries an image says at its end, as far as it is passed on. Bytes.
pub const MOVE_WORDS_MAX: usize = 1_024;
/// How long the image of a task that moves may take to arrive.
pub const MOVE_TIME: Duration = Duration::from_secs(600);
/// Tasks that leave a host at the same time when it is drained: enough that one's image is written
/// while another's is brought back, few enough that links and disks are not fought over.
pub const DRAIN_MOVES: usize = 4;
/// To how many hosts a task is offered before a drain gives it up.
pub const DRAIN_TRIES: usize = 3;
/// How long a drain waits for a task that is starting, ending or on its way already.
pub const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks whether such a task can be moved now.
pub const DRAIN_LOOK: Duration = Duration::from_millis(100);
/// How long a daemon that drains itself at SIGTERM takes for it, if it is not told: with
/// [`LEAVE_TIME`] less than the 30 s that Slurm waits before it kills (KillWait), the shortest wait
/// of the usual batch systems.
pub const DRAIN_GRACE_DEFAULT: Duration = Duration::from_secs(18);
/// Tasks that the report of a drain names, of those that left and of those that did not. The
/// others are counted.
pub const DRAIN_NAMED_MAX: usize = 1_024;
/// The reason why a task did not leave, as the report of a drain has it. Bytes.
pub const DRAIN_REASON_MAX: usize = 512;
/// After so long without a decision the source of a move proposes that the task stays.
pub const MOVE_DOUBT: Duration = Duration::from_secs(1);
/// How long a coordinator lets a move be prepared before it calls it off; shorter than what the
/// source waits.
pub const PHASE_INITIALISATION: Duration = Duration::from_secs(4);
/// How long a coordinator lets a task be copied, interrupted, drained and saved before it calls the
/// move off; shorter than [`MOVE_TIME`].
pub const PHASE_IMAGE: Duration = Duration::from_secs(590);
/// A coordinator that has not acted on a frame for so long hangs: another takes its place.
pub const COORDINATOR_SILENT: Duration = Duration::from_secs(2);
/// How long the process of a coordinator may take to start.
pub const COORDINATOR_START: Duration = Duration::from_secs(5);
/// Least time between the starts of two coordinators of one application by one daemon.
pub const COORDINATOR_PAUSE: Duration = Duration::from_secs(1);
/// How long who asks for a move waits for a coordinator that takes it up.
pub const COORDINATOR_WAIT: Duration = Duration::from_secs(15);
/// Applications that live and of which checkpoints were wanted.
pub const APPS_SAVED_MAX: usize = 16_384;
/// Applications of one machine that may be suspended at one time.
pub const APPS_SUSPENDED_MAX: usize = 4_096;
/// The longest time for which an application may be suspended, if that has an end.
pub const SUSPENDED_FOR_MAX: Duration = Duration::from_secs(10_000 * 86_400);
/// How often it is looked whether there is room for an application that is suspended, at most.
pub const RESUME_LOOK: Duration = Duration::from_secs(1);
/// How often a checkpoint is begun if a task ends meanwhile, or cannot be saved for a reason that passes.
pub const CHECKPOINT_TRIES: u32 = 20;
/// How long after the wish that is at the latest.
pub const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(10);
/// How long who asks for a move waits while the task cannot be moved for a reason that passes by itself:
/// a child, that it is on its way already. A drain has [`DRAIN_PATIENCE`], and all of its grace time
/// where the daemon was asked to end.
pub const MOVE_PATIENCE: Duration = Duration::from_secs(3);
/// How long after such a reason a move or a checkpoint is tried again: at first, doubled each time up to
/// the second value.
pub const BUSY_PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// The pause before the next try, after so many that failed for reasons that pass.
pub fn busy_pause(tries: u32) -> Duration {
    let (first, most) = BUSY_PAUSE;
    most.min(first * 2u32.saturating_pow(tries.saturating_sub(1)))
}
/// How long tasks stand still for a checkpoint at most; then any of their daemons ends the cut.
pub const CUT_TIME: Duration = Duration::from_secs(600);
/// How long a checkpoint waits for a task that is starting.
pub const CUT_START: Duration = Duration::from_secs(5);
/// How long a checkpoint or a move waits until a portable task comes to a safe point.
pub const SAFE_POINT: Duration = Duration::from_secs(20);
/// What a program gives as its portable state, and what the library adds to it, each. Bytes.
pub const PORTABLE_PART_MAX: u64 = 4 << 30;
/// Least time from the end of a checkpoint that was made by itself to the next one.
pub const CHECKPOINT_EVERY_MIN: Duration = Duration::from_secs(1);
/// Checkpoints of one application that are kept, unless somebody says how many.
pub const CHECKPOINTS_KEPT: u32 = 3;
/// Checkpoints of one application that may be kept.
pub const CHECKPOINTS_KEPT_MAX: u32 = 1_000;
/// How long after the good end of an application its checkpoints are removed.
pub const FINISHED_PAUSE: Duration = Duration::from_secs(2);
/// The longest mean time between failures that is believed.
pub const MTBF_MAX: Duration = Duration::from_secs(10_000 * 86_400);
/// What an application loses while copies of its tasks write their images, beside the time for which the
/// tasks stand: a second for so many bytes on the host that has most, and at most half of that time.
/// Measured with tasks that write to all of their memory (`cargo vmbench --only heat`); others lose less.
pub const CHECKPOINT_LOSS_BYTES: u64 = 3 << 30;
/// What a checkpoint is taken to cost before one was made.
pub const CHECKPOINT_COST: Duration = Duration::from_millis(100);
/// How long it may take until all tasks of an application that is brought back stand.
pub const REVIVE_TIME: Duration = Duration::from_secs(600);
/// Checkpoints of one application that a host names when it is asked which are in its store.
pub const STOCK_MAX: usize = 64;
/// What is wrong with a checkpoint there, as far as it is named.
pub const FLAWS_MAX: usize = 4;
/// How long hosts are waited for that are asked so; all of a checkpoint may be read for it, in
/// [`REVIVE_TIME`].
pub const STOCK_WAIT: Duration = Duration::from_secs(10);
/// Parts of checkpoints that one daemon sends, and that it receives, at the same time.
pub const PARTS_MAX: usize = 8_192;
/// Of the messages of ended tasks that hosts keep for an application, how much a checkpoint holds.
/// Bytes.
pub const KEPT_SAVED_MAX: usize = 512 * 1024;
/// How often an application that goes back by itself may fail to be brought back.
pub const RECOVERIES_MAX: u32 = 5;
/// How long such a failure is waited after.
pub const RECOVERY_PAUSE: Duration = Duration::from_secs(1);
/// An application that is brought back, as a change of the log. Bytes.
pub const REVIVAL_MAX: usize = 512 * 1024;
/// Bytes that a reason in the log may have.
pub const REASON_MAX: usize = 1_024;
/// Moves that wait at a daemon for the coordinator of their application, or orders of coordinators
/// that are ahead of its log.
pub const MOVES_WAITING_MAX: usize = 4_096;
/// How long the owner of a task holds an order to move it that came before the log here knows the end of
/// a checkpoint, and refuses it then.
pub const MOVE_HELD: Duration = Duration::from_secs(2);
/// How often a task that is to leave in a drain may be stopped from it by a checkpoint before that
/// counts as a try ([`DRAIN_TRIES`]).
pub const DRAIN_CUTS: usize = 16;
/// How long a move waits for the end of a checkpoint of its application, and is refused then.
pub const CHECKPOINT_AWAITED: Duration = Duration::from_secs(10);
/// Wishes for checkpoints of one application that wait for the end of the one that is being made.
pub const CHECKPOINTS_WAITING_MAX: usize = 16;
/// Moves that a coordinator drives at one time.
pub const MOVES_DRIVEN_MAX: usize = 4_096;
/// Moves that have ended of which the source's daemon remembers how.
pub const MOVES_ENDED_MAX: usize = 4_096;
/// How long a frame or a request waits for the log to know the task that it is about. A daemon
/// whose log is behind for longer loses its lease.
pub const HELD_TIME: Duration = Duration::from_millis(2_500);
/// Tasks that have ended of which a daemon remembers the last numbers.
pub const ENDED_MAX: usize = 16_384;
/// Last numbers that a daemon remembers of all of them together.
pub const ENDED_PAIRS_MAX: usize = 16 * ENDED_MAX;

/// How long a receiver may keep an acknowledgement back for want of a message to carry it.
pub const ACK_IDLE: Duration = Duration::from_millis(5);
/// A request that was not answered is asked again after this time.
pub const REQUEST_RETRY: Duration = Duration::from_millis(1000);

/// Hosts of one machine, over its whole life.
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
/// Hosts that have left or died of which the agreed state remembers the facts.
pub const DEPARTED_MAX: usize = 256;
/// A name of a host, group or program. Bytes.
pub const NAME_MAX: usize = 255;
/// A path or address. Bytes.
pub const PATH_MAX: usize = 4_096;
/// Watches of one task.
pub const WATCHES_MAX: usize = 65_536;
/// Tasks of which one task awaits messages, and wants to know when they have ended.
pub const AWAITED_MAX: usize = 1_024;
/// How long a receive from one task waits before its library asks the daemon to tell when that has
/// ended: a program whose messages come sooner never asks.
pub const AWAIT_ASK: Duration = Duration::from_millis(500);
/// Consoles of one daemon at one time.
pub const CONSOLES_MAX: usize = 256;
/// Connections that have not yet proved who they are: of addresses where no host is known, of those
/// where one is, and of those that were sealed with the secret, so many of each.
pub const STRANGERS_MAX: usize = 128;
/// How long a connection from the network may take to prove who it is.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(1);
/// How long a task or console that has connected may take to say what it is.
pub const LOCAL_HELLO_TIME: Duration = Duration::from_secs(5);
/// Connections from the network that wait to be accepted.
pub const BACKLOG: i32 = 1_024;
/// Of the connections that are cut off or refused in [`OFFENCES_TIME`], so many are logged; the others
/// are counted.
pub const OFFENCES_TOLD: u32 = 10;
/// See [`OFFENCES_TOLD`].
pub const OFFENCES_TIME: Duration = Duration::from_secs(60);
/// How long a daemon that was let into a machine makes links to the other hosts, before it says that
/// it cannot, and leaves. Longer than it takes to notice that one of them is lost.
pub const LINK_TIME: Duration = Duration::from_secs(10);
/// To so many hosts, those of the lowest numbers, it makes links at its start.
pub const LINKED_AT_START: usize = 16;
/// Requests of one console that are under way.
pub const CONSOLE_REQUESTS_MAX: usize = 64;
/// How long the listing of tasks waits for other hosts to say what theirs use.
pub const USAGE_WAIT: Duration = Duration::from_millis(500);
/// How long after the start of a process a listing waits for it: half of [`USAGE_WAIT`], so that its
/// host can still answer for the others if it does not begin.
pub const START_WAIT: Duration = Duration::from_millis(250);
/// How long the end of a run waits for the last lines of tasks that ended before it.
pub const FLUSH_WAIT: Duration = Duration::from_millis(500);
/// How long tasks have between SIGTERM and SIGKILL when their host leaves.
pub const END_GRACE: Duration = Duration::from_millis(2_000);
/// How long a leaving host tries to hand over what it keeps, then leaves nevertheless.
pub const LEAVE_TIME: Duration = Duration::from_secs(10);
/// A signal that asks a daemon to end counts as another one, which has it end at once, only so long
/// after the last one that counted: batch systems and terminals send several at one time.
pub const STOP_AGAIN: Duration = Duration::from_secs(1);
/// How long a halted daemon at least goes on telling the others that the machine was halted.
pub const HALT_LINGER: Duration = Duration::from_millis(500);
/// How long a halted daemon waits for its tasks to end and the others to know, then ends.
pub const HALT_TIME: Duration = Duration::from_millis(3_000);
/// How long a daemon waits before it makes a broken link again, doubled up to the second value.
pub const RECONNECT: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(1_000));
/// A link between two hosts of the machine that could not be made for so long is said to be down: to the
/// other hosts, in `vm conf` and to the consoles of applications with tasks on both. Later than a host is
/// declared dead.
pub const LINK_DOWN: Duration = Duration::from_secs(6);
/// One captured line of output; longer ones are cut into several. Bytes.
pub const LINE_MAX: usize = 8 * 1024;
/// Output of one application that waits for its console; beyond it lines are dropped and counted.
pub const OUTPUT_QUEUE_BYTES: usize = 4 * 1024 * 1024;

/// Output of a master whose console is on another host that waits to be sent there; beyond it the master
/// waits.
pub const RUN_QUEUE_BYTES: usize = 1024 * 1024;

/// One entry of the log. Bytes.
pub const ENTRY_MAX: usize = 64 * 1024;
/// How long a daemon gathers changes into one entry.
pub const ENTRY_GATHER: Duration = Duration::from_millis(2);
/// Entries that the log keeps before it is compacted into a snapshot.
pub const LOG_ENTRIES_MAX: u64 = 4_096;
/// Bytes of entries that the log keeps before it is compacted likewise.
pub const LOG_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Entries in one frame of the feed. Bytes, but one entry at least.
pub const FEED_BYTES: usize = 256 * 1024;
/// A snapshot of the agreed state. Bytes.
pub const SNAPSHOT_MAX: usize = 72 * 1024 * 1024;

/// Raft's tick.
pub const TICK: Duration = Duration::from_millis(50);
/// The beat of leases.
pub const BEAT: Duration = Duration::from_millis(100);
/// A lease's length, T.
pub const LEASE: Duration = Duration::from_millis(2_500);
/// What the leader waits beyond a lease before it declares a host dead.
pub const LEASE_MARGIN: Duration = Duration::from_millis(500);
/// How long before its lease ends a healthy daemon ends its tasks and says why.
pub const LEASE_SOFT: Duration = Duration::from_millis(200);
/// Least time between two questions of the leader to the voters whether it still leads, each for
/// all leases that were asked for meanwhile.
pub const LEASE_ROUND: Duration = Duration::from_millis(25);
/// A host that sent no beat for this time does not answer.
pub const SILENT: Duration = Duration::from_millis(500);
/// What goes between daemons without an acknowledgement is repeated after this time, if it has
/// not had its effect: an entry proposed, the feed asked for, a link wanted.
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
