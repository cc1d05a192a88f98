//! One task of this host.

use super::{
    absent::Absent,
    task_life::{End, Launch, Process},
    task_request::Waiting,
};
use std::collections::{BTreeSet, VecDeque};
use vm_wire::{Frame, HostId, Tid, agreed::ExitStatus, limits, peer::Belongings, task::Watched};

/// A task of this host: its process is starting, runs or has ended here, or the task is suspended
/// here.
#[derive(Debug)]
pub(super) struct LocalTask {
    pub app: Tid,
    /// Number of tasks in its spawn request, itself included.
    pub siblings: usize,
    /// The host of the console of its application; [`HostId::NONE`] without a console.
    pub console: HostId,
    /// The token with which it enrols; `None` after it has enrolled.
    pub token: Option<u64>,
    /// Process id; 0 while it is unknown.
    pub pid: u32,
    /// The start of its process by this daemon.
    pub launch: Launch,
    /// Its process, or what is there without one.
    pub process: Process,
    /// Its end, from the proposal to the log on.
    pub end: End,
    /// The last signal that a task or console sent to it.
    pub signalled: Option<i32>,
    /// Whether it is frozen, or about to freeze, for a move or a cut, or suspended.
    pub frozen: bool,
    /// Whether its process is stopped by a signal.
    pub stopped: bool,
    /// Where it can be frozen. Until it gets there after an order to freeze, it runs on.
    pub stops: Stops,
    /// Whether an increment of it could not be copied to a second host. Its images are complete
    /// from then on.
    pub stored_in_full: bool,
    /// Whether the keeper had no room for one of its last chunks.
    pub not_kept: bool,
    /// Frames that arrived before it enrolled, or while it was frozen.
    pub absent: Absent,
    /// The tasks and events that it watches.
    pub watches: BTreeSet<Watched>,
    /// Number of the last notification that was sent to it.
    pub told: u64,
    /// Notifications that it has not acknowledged. They are sent again after a move.
    pub untaken: VecDeque<Frame>,
    /// Number of its last request.
    pub asked: u64,
    /// The reply to its last request; `None` while there is none.
    pub answer: Option<Frame>,
    /// The event for which the reply waits.
    pub waiting: Option<Waiting>,
}

/// Where a task can be frozen to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stops {
    /// At any instruction. The task is saved as an image of its process.
    Anywhere,
    /// Only in calls of the library, because its program has callbacks around saves. The task is
    /// saved as an image of its process.
    InCalls,
    /// Only at safe points of its program, which supplies its state there.
    AtSafePoints,
}

impl Stops {
    /// For a task that has arrived. If it can be frozen only in calls, its library reports that
    /// again.
    pub fn arrived(portable: bool) -> Self {
        match portable {
            true => Stops::AtSafePoints,
            false => Stops::Anywhere,
        }
    }

    /// Whether the program supplies the saved state, so that the task can be restored on a host of
    /// any architecture.
    pub fn is_portable(self) -> bool {
        self == Stops::AtSafePoints
    }

    /// Whether the task freezes as soon as it gets the order.
    pub fn at_once(self) -> bool {
        self == Stops::Anywhere
    }

    /// The reason why a task is not saved or moved if it reached no point where it can be frozen in
    /// time.
    pub fn why_late(self) -> String {
        let time = limits::SAFE_POINT;
        match self {
            Stops::AtSafePoints => format!(
                "its program is portable and came to no safe point within {time:?}: it has to call \
                 Task::safe_point more often, and wait with Task::recv_at"
            ),
            Stops::InCalls | Stops::Anywhere => format!(
                "its program has callbacks around saves (Task::around_saves) and came to no call of \
                 the library within {time:?}: it has to make one more often, Task::try_recv for example"
            ),
        }
    }
}

impl LocalTask {
    /// Takes over the state that the source, or a checkpoint, has of the task beside its image.
    pub fn take_up(&mut self, belongings: Belongings) {
        self.siblings = belongings.siblings as usize;
        self.asked = belongings.asked;
        let answer = belongings.answer.as_ref();
        self.answer = answer.and_then(|bytes| Frame::of_body(bytes));
        if belongings.awaits != HostId::NONE {
            self.waiting = Some(Waiting::Elsewhere(belongings.awaits));
        }
        self.told = belongings.told;
        self.stops = Stops::arrived(belongings.portable);
        let untaken = belongings.untaken.iter();
        self.untaken = untaken.filter_map(|bytes| Frame::of_body(bytes)).collect();
        self.watches = belongings.watches.into_iter().collect();
    }

    /// Whether the task has a data socket or is suspended, and no end of it was proposed.
    pub fn is_settled(&self) -> bool {
        self.process.takes_notices() && self.end == End::None
    }

    /// Whether the task is suspended: it has an image in the store, and no process.
    pub fn is_suspended(&self) -> bool {
        matches!(self.process, Process::Suspended(_))
    }

    /// Whether the task ended by a signal that no task or console sent through the machine.
    pub fn was_killed(&self, status: ExitStatus) -> bool {
        matches!(status, ExitStatus::Signal(signal) if self.signalled != Some(signal))
    }

    /// A task that is born on this host.
    pub fn new(app: Tid, console: HostId, token: Option<u64>) -> Self {
        LocalTask {
            app,
            siblings: 1,
            console,
            token,
            pid: 0,
            launch: Launch::NotBegun,
            process: Process::Unconnected,
            end: End::None,
            signalled: None,
            frozen: false,
            stopped: false,
            stops: Stops::Anywhere,
            stored_in_full: false,
            not_kept: false,
            absent: Absent::default(),
            watches: BTreeSet::new(),
            told: 0,
            untaken: VecDeque::new(),
            asked: 0,
            answer: None,
            waiting: None,
        }
    }
}
