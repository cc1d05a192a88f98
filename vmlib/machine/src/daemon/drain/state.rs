//! The state of this host's drain, or its result.

use crate::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_wire::{
    HostId, RequestKey, Tid, limits,
    peer::{DrainReport, DrainWay, MoveReport},
    task::{FailKind, Failed},
};

/// The state of this host's drain, or its result.
#[derive(Debug)]
pub(in crate::daemon) struct Drain {
    /// Requests whose replies wait for the end of the drain.
    pub(super) askers: BTreeSet<RequestKey>,
    /// Options of the drain.
    pub(super) way: DrainWay,
    /// Whether the drain still makes checkpoints of applications before it begins.
    pub(super) saves: bool,
    /// Applications whose checkpoints are not begun.
    pub(super) to_save: BTreeSet<Tid>,
    /// Applications whose checkpoints are being made.
    pub(super) saving: BTreeSet<Tid>,
    /// Number of failed checkpoints of each application.
    pub(super) not_saved: BTreeMap<Tid, usize>,
    /// Number of checkpoints made.
    pub(super) saved: u32,
    /// The timer was due: failed checkpoints are tried again.
    pub(super) looks: bool,
    /// Whether tasks are being moved.
    pub(super) active: bool,
    /// When this pass over the tasks began.
    pub(super) begun: Time,
    /// When the last task of this pass had left or was refused.
    pub(super) ended: Time,
    /// Tasks whose moves are not requested yet.
    pub(super) waiting: VecDeque<Tid>,
    /// Tasks that are moving, with their targets.
    pub(super) underway: BTreeMap<Tid, HostId>,
    /// Tasks that cannot be moved at present. The timer, or the end of a checkpoint, puts them into
    /// `waiting` again.
    pub(super) later: BTreeSet<Tid>,
    /// For each task, the targets that were tried, and the reason of the last failure.
    pub(super) tried: BTreeMap<Tid, (BTreeSet<HostId>, Option<Failed>)>,
    /// For each task, how often a checkpoint prevented its move.
    pub(super) cut_short: BTreeMap<Tid, usize>,
    /// Tasks that cannot be moved for reasons that pass.
    pub(super) busy: BTreeMap<Tid, Busy>,
    /// Tasks that have left. Bounded by the number of tasks on this host when the drain began.
    pub(super) moved: BTreeMap<Tid, MoveReport>,
    /// Tasks that stay, with the reasons.
    pub(super) refused: BTreeMap<Tid, Failed>,
    /// Applications that are being suspended.
    pub(super) suspending: BTreeSet<Tid>,
    /// Applications that were suspended.
    pub(super) suspended: BTreeSet<Tid>,
    /// Applications whose suspension failed: number of failures, and the last reason.
    pub(super) not_suspended: BTreeMap<Tid, (usize, Failed)>,
    /// The daemon was asked to end, and leaves at this time at the latest.
    pub(super) leave_by: Option<Time>,
}

/// A task that cannot be moved for a reason that passes.
#[derive(Debug)]
pub(super) struct Busy {
    /// When it could not be moved for the first time.
    pub(super) since: Time,
    /// Number of attempts.
    pub(super) tries: u32,
    /// Time of the next attempt.
    pub(super) again: Time,
}

impl Drain {
    pub(super) fn new(now: Time) -> Self {
        Drain {
            askers: BTreeSet::new(),
            way: DrainWay::default(),
            saves: false,
            to_save: BTreeSet::new(),
            saving: BTreeSet::new(),
            not_saved: BTreeMap::new(),
            saved: 0,
            looks: false,
            active: false,
            begun: now,
            ended: now,
            waiting: VecDeque::new(),
            underway: BTreeMap::new(),
            later: BTreeSet::new(),
            tried: BTreeMap::new(),
            cut_short: BTreeMap::new(),
            busy: BTreeMap::new(),
            moved: BTreeMap::new(),
            refused: BTreeMap::new(),
            suspending: BTreeSet::new(),
            suspended: BTreeSet::new(),
            not_suspended: BTreeMap::new(),
            leave_by: None,
        }
    }

    pub(super) fn report(&self, host: HostId) -> DrainReport {
        let named = limits::DRAIN_NAMED_MAX;
        let moved = self.moved.iter().take(named);
        let refused = self.refused.iter().take(named);
        DrainReport {
            host,
            total_us: self.ended.since(self.begun).as_micros() as u64,
            moved_count: self.moved.len() as u32,
            refused_count: self.refused.len() as u32,
            saved_count: self.saved,
            moved: moved.map(|(tid, report)| (*tid, report.clone())).collect(),
            refused: refused.map(|(tid, why)| (*tid, why.clone())).collect(),
            suspended: self.suspended.iter().take(named).copied().collect(),
        }
    }

    /// Whether the drain still waits for a task that cannot be moved for a reason that passes. The
    /// limit is [`limits::DRAIN_PATIENCE`]. If the daemon was asked to end, the limit is its
    /// remaining time; or, if suspension is to be tried afterwards, at most half of it.
    pub(super) fn waits_for(&mut self, now: Time, tid: Tid) -> bool {
        let busy = self.busy.entry(tid).or_insert(Busy {
            since: now,
            tries: 0,
            again: now,
        });
        let patience = busy.since + limits::DRAIN_PATIENCE;
        let until = match self.leave_by {
            Some(by) if self.way.suspend => patience.min(self.begun + by.since(self.begun) / 2),
            Some(by) => by,
            None => patience,
        };
        now < until
    }

    /// Like [`Drain::waits_for`], after a failed attempt: the next attempt follows after a pause.
    pub(super) fn tries_again(&mut self, now: Time, tid: Tid) -> bool {
        let waits = self.waits_for(now, tid);
        if let Some(busy) = self.busy.get_mut(&tid) {
            busy.tries += 1;
            busy.again = now + limits::busy_pause(busy.tries);
        }
        waits
    }

    /// A task stays. `shown` is its tid as users see it.
    pub(super) fn refuse(&mut self, now: Time, tid: Tid, shown: &str, mut why: Failed) {
        if let Some(text) = why
            .text
            .strip_prefix(&format!("task {shown} cannot be moved: "))
        {
            why.text = text.to_owned();
        }
        let mut end = why.text.len().min(limits::DRAIN_REASON_MAX);
        while !why.text.is_char_boundary(end) {
            end -= 1;
        }
        why.text.truncate(end);
        self.ended = now;
        self.refused.insert(tid, why);
    }
}

/// The failure of a drain without another host that takes tasks.
pub(super) fn nowhere() -> Failed {
    let text = "there is no other host that takes tasks, so its tasks run on where they are; add \
                one (vm add), or have one that drains take tasks again (vm drain --undo)";
    Failed::new(FailKind::Refused, text)
}

/// The failure of a drain that a user has undone.
pub(super) fn taken_back() -> Failed {
    let text = "the drain was taken back; the other tasks run on where they are";
    Failed::new(FailKind::Refused, text)
}
