//! One task whose process is, or was, on this host.

use super::{absent::Absent, task_request::Waiting};
use crate::Time;
use std::collections::{BTreeSet, VecDeque};
use vm_wire::{
    Frame, HostId, Tid, agreed::ExitStatus, checkpoint::Part, limits, peer::Belongings,
    task::Watched,
};

/// A task whose process is, or was, on this host.
#[derive(Debug)]
pub(super) struct LocalTask {
    /// Its application.
    pub app: Tid,
    /// How many tasks its spawn request asked for: those that it can expect as siblings.
    pub siblings: usize,
    /// The host whose daemon serves the console of its application, or none.
    pub console: HostId,
    /// What it enrols with; `None` once it has.
    pub token: Option<u64>,
    /// Its process, as far as known; 0 before.
    pub pid: u32,
    /// Since when its process is being started, until that is known to be there.
    pub starting: Option<Time>,
    /// When its process was known to be there, if it was started here.
    pub launched: Option<Time>,
    /// Whether it has a data socket.
    pub connected: bool,
    /// Whether its process is alive, or being started.
    pub process: bool,
    /// Whether its `Exit` is on its way into the log.
    pub exiting: bool,
    /// With which status.
    pub status: Option<ExitStatus>,
    /// The last signal that was sent to it through the machine.
    pub signalled: Option<i32>,
    /// It ended with its application, in this way: that may live again while its process ends.
    pub together: Option<ExitStatus>,
    /// Whether it is leaving in order: what it sends from now on is left to the keeper.
    pub leaving: bool,
    /// Whether its `Exit` was applied.
    pub ended: bool,
    /// Whether it stands still, because it is being moved, or is suspended.
    pub frozen: bool,
    /// If it is suspended alone, its image in the store: it has no process.
    pub image: Option<Part>,
    /// Whether its process is stopped by a signal.
    pub stopped: bool,
    /// Where it can be stopped to be saved: until it has come there, it goes on.
    pub stops: Stops,
    /// Whether an increment of it could not be copied: here its images are stored in full from then on.
    pub stored_in_full: bool,
    /// Whether the keeper had no room for one of its last chunks.
    pub not_kept: bool,
    /// What came for it before it enrolled, or while it stood still.
    pub absent: Absent,
    /// What it watches.
    pub watches: BTreeSet<Watched>,
    /// Number of the last notify that it was told.
    pub told: u64,
    /// Those that it has not acknowledged: they may be lost when it moves.
    pub untaken: VecDeque<Frame>,
    /// Number of its last request.
    pub asked: u64,
    /// The answer to that; `None` while it is under way.
    pub answer: Option<Frame>,
    /// What that waits for.
    pub waiting: Option<Waiting>,
}

/// Where a task can be stopped to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stops {
    /// Wherever it is. It is saved as an image.
    Anywhere,
    /// In its calls of the library alone, because its program has callbacks around saves. It is saved as
    /// an image.
    InCalls,
    /// At safe points of its program, which gives its state there.
    AtSafePoints,
}

impl Stops {
    /// Of a task that has arrived; if it stops in its calls alone, it says so again.
    pub fn arrived(portable: bool) -> Self {
        match portable {
            true => Stops::AtSafePoints,
            false => Stops::Anywhere,
        }
    }

    /// Whether what is saved is what its program gives: it goes on on a host of any architecture.
    pub fn is_portable(self) -> bool {
        self == Stops::AtSafePoints
    }

    /// Whether it stops as soon as it is told to.
    pub fn at_once(self) -> bool {
        self == Stops::Anywhere
    }

    /// Why it is not saved, or not moved: it was told to stop, and did not come to where it can.
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
    /// Takes up what the daemon of its former host, or a checkpoint, knows of it.
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
        self.image = belongings.suspended;
        self.watches = belongings.watches.into_iter().collect();
    }

    /// Whether it runs: neither starts nor ends.
    pub fn is_settled(&self) -> bool {
        self.connected && !self.leaving && !self.exiting
    }

    /// Whether it ended by a signal that nobody sent through the machine.
    pub fn was_killed(&self, status: ExitStatus) -> bool {
        matches!(status, ExitStatus::Signal(signal) if self.signalled != Some(signal))
    }

    /// A task that was just born here.
    pub fn new(app: Tid, console: HostId, token: Option<u64>) -> Self {
        LocalTask {
            app,
            siblings: 1,
            console,
            token,
            pid: 0,
            starting: None,
            launched: None,
            connected: false,
            process: true,
            exiting: false,
            status: None,
            signalled: None,
            together: None,
            leaving: false,
            ended: false,
            frozen: false,
            image: None,
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
