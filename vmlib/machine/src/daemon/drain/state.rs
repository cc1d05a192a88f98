//! The state of this host's drain, or its result.
//!
//! ```text
//! no drain -> [Saving] -> Proposed -> Moving -> Idle      Idle -> as `no drain`, at a later request
//! ```
//!
//! A drain that is given up is removed; if the daemon was asked to end, it becomes `Idle`.

use crate::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_wire::{
    HostId, RequestKey, Tid, limits,
    peer::{DrainReport, MoveReport},
    task::{FailKind, Failed},
};

/// The state of this host's drain, or its result.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Drain {
    /// Requests whose replies wait for the end of the drain.
    pub(super) requesters: BTreeSet<RequestKey>,
    /// Whether the applications of tasks that cannot leave are suspended.
    pub(super) suspend: bool,
    /// The daemon was asked to end, and leaves at this time at the latest.
    pub(super) leave_by: Option<Time>,
    pub(super) stage: Stage,
    pub(super) results: Results,
}

/// How far a drain is.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// It was not requested yet, is over, or was given up.
    #[default]
    Idle,
    /// Checkpoints of the applications are made before it begins.
    Saving(Saves),
    /// It is proposed to the log.
    Proposed,
    /// The log has applied it: the tasks leave.
    Moving(Pass),
}

/// The checkpoints that are made before a drain.
#[derive(Debug, Default)]
pub(super) struct Saves {
    /// Applications whose checkpoints are not begun.
    pub(super) waiting: BTreeSet<Tid>,
    /// Applications whose checkpoints are being made.
    pub(super) underway: BTreeSet<Tid>,
    /// Number of failed checkpoints of each application.
    pub(super) failed: BTreeMap<Tid, usize>,
    /// The timer was due: failed checkpoints are tried again.
    pub(super) retries: bool,
}

/// One pass over the tasks of this host.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Tasks whose moves are not requested yet.
    pub(super) waiting: VecDeque<Tid>,
    /// Tasks that are moving, with their targets.
    pub(super) underway: BTreeMap<Tid, HostId>,
    /// Tasks that cannot be moved at present. The timer, or the end of a checkpoint, puts them into
    /// `waiting` again.
    pub(super) later: BTreeSet<Tid>,
    /// The attempts for each task.
    pub(super) attempts: BTreeMap<Tid, Attempts>,
    /// Applications that are being suspended, because a task of them cannot leave.
    pub(super) suspending: BTreeSet<Tid>,
    /// Applications whose suspension failed: number of failures, and the last reason.
    pub(super) not_suspended: BTreeMap<Tid, (usize, Failed)>,
}

/// The attempts to move one task.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// The targets that were tried.
    pub(super) targets: BTreeSet<HostId>,
    /// The reason of the last failure.
    pub(super) failure: Option<Failed>,
    /// How often a checkpoint prevented the move.
    pub(super) cut_short: usize,
    /// Set if the task cannot be moved for a reason that passes.
    pub(super) busy: Option<Busy>,
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

/// The results that the report of a drain contains.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// The last pass that found tasks; `None` before the first.
    pub(super) span: Option<Span>,
    /// Number of checkpoints made before the drain.
    pub(super) saved: u32,
    /// Tasks that have left. Bounded by the number of tasks on this host when the drain began.
    pub(super) moved: BTreeMap<Tid, MoveReport>,
    /// Tasks that stay, with the reasons.
    pub(super) refused: BTreeMap<Tid, Failed>,
    /// Applications that were suspended.
    pub(super) suspended: BTreeSet<Tid>,
}

/// The time that a pass takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// When it began.
    pub(super) begun: Time,
    /// When the last task had left or was refused.
    pub(super) last: Time,
}

impl Drain {
    /// The pass over the tasks, if it is underway.
    pub(super) fn pass(&mut self) -> Option<&mut Pass> {
        match &mut self.stage {
            Stage::Moving(pass) => Some(pass),
            _ => None,
        }
    }

    /// The checkpoints before the drain, if they are being made.
    pub(super) fn saves(&mut self) -> Option<&mut Saves> {
        match &mut self.stage {
            Stage::Saving(saves) => Some(saves),
            _ => None,
        }
    }

    /// Whether a request or the end of the daemon is the reason for a drain that is not over.
    pub(super) fn is_requested(&self) -> bool {
        self.leave_by.is_some() || !matches!(self.stage, Stage::Idle)
    }

    /// Whether the tasks leave.
    pub(super) fn is_moving(&self) -> bool {
        matches!(self.stage, Stage::Moving(_))
    }

    /// Whether checkpoints are made before the drain.
    pub(super) fn is_saving(&self) -> bool {
        matches!(self.stage, Stage::Saving(_))
    }

    /// Begins a pass over these tasks.
    pub(super) fn begin_pass(&mut self, now: Time, tasks: VecDeque<Tid>) {
        self.results.refused.clear();
        if !tasks.is_empty() {
            self.results.span = Some(Span {
                begun: now,
                last: now,
            });
        }
        self.stage = Stage::Moving(Pass {
            waiting: tasks,
            ..Pass::default()
        });
    }

    /// Ends the pass, if no task waits or moves any more.
    pub(super) fn end_pass(&mut self) -> bool {
        let ends = self.pass().is_some_and(|pass| pass.is_complete());
        if ends {
            self.stage = Stage::Idle;
        }
        ends
    }

    /// Whether the drain still waits for a task that cannot be moved for a reason that passes. The
    /// limit is [`limits::DRAIN_PATIENCE`]. If the daemon was asked to end, the limit is its
    /// remaining time; or, if suspension is to be tried afterwards, at most half of it.
    pub(super) fn waits_for(&mut self, now: Time, tid: Tid) -> bool {
        let (leave_by, suspend) = (self.leave_by, self.suspend);
        let begun = self.results.span.map_or(now, |span| span.begun);
        let Some(pass) = self.pass() else {
            return false;
        };
        let busy = pass.busy(now, tid);
        let patience = busy.since + limits::DRAIN_PATIENCE;
        let until = match leave_by {
            Some(by) if suspend => patience.min(begun + by.since(begun) / 2),
            Some(by) => by,
            None => patience,
        };
        now < until
    }

    /// Like [`Drain::waits_for`], after a failed attempt: the next attempt follows after a pause.
    pub(super) fn tries_again(&mut self, now: Time, tid: Tid) -> bool {
        let waits = self.waits_for(now, tid);
        if let Some(pass) = self.pass() {
            let busy = pass.busy(now, tid);
            busy.tries += 1;
            busy.again = now + limits::busy_pause(busy.tries);
        }
        waits
    }
}

impl Pass {
    fn is_complete(&self) -> bool {
        self.underway.is_empty()
            && self.waiting.is_empty()
            && self.later.is_empty()
            && self.suspending.is_empty()
    }

    /// The next task to move, if one more may move now.
    pub(super) fn next(&mut self) -> Option<Tid> {
        match self.underway.len() < limits::DRAIN_MOVES {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// The tasks that could not be moved are tried again.
    pub(super) fn retry(&mut self) {
        self.waiting.extend(std::mem::take(&mut self.later));
    }

    pub(super) fn attempts(&mut self, tid: Tid) -> &mut Attempts {
        self.attempts.entry(tid).or_default()
    }

    fn busy(&mut self, now: Time, tid: Tid) -> &mut Busy {
        self.attempts(tid).busy.get_or_insert(Busy {
            since: now,
            tries: 0,
            again: now,
        })
    }

    /// Whether the pause after a failed attempt for a task is not over.
    pub(super) fn pauses(&self, now: Time, tid: Tid) -> bool {
        let busy = self.attempts.get(&tid).and_then(|it| it.busy.as_ref());
        busy.is_some_and(|busy| now < busy.again)
    }
}

impl Results {
    pub(super) fn report(&self, host: HostId) -> DrainReport {
        let named = limits::DRAIN_NAMED_MAX;
        let moved = self.moved.iter().take(named);
        let refused = self.refused.iter().take(named);
        let total = self.span.map(|span| span.last.since(span.begun));
        DrainReport {
            host,
            total_us: total.unwrap_or_default().as_micros() as u64,
            moved_count: self.moved.len() as u32,
            refused_count: self.refused.len() as u32,
            saved_count: self.saved,
            moved: moved.map(|(tid, report)| (*tid, report.clone())).collect(),
            refused: refused.map(|(tid, why)| (*tid, why.clone())).collect(),
            suspended: self.suspended.iter().take(named).copied().collect(),
        }
    }

    /// A task has left, stays, or was suspended with its application.
    pub(super) fn note_progress(&mut self, now: Time) {
        if let Some(span) = &mut self.span {
            span.last = now;
        }
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
        self.note_progress(now);
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
pub(super) fn undone() -> Failed {
    let text = "the drain was undone; the other tasks run on where they are";
    Failed::new(FailKind::Refused, text)
}
