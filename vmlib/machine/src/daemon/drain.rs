//! All tasks of a host leave it.
//!
//! ```text
//! console's daemon        drained host
//! DrainAsk             -> HostDraining into the log
//!                         each task: a move of its own, DRAIN_MOVES at a time
//!                      <- DrainEnd: who went where, who stayed and why
//! ```
//!
//! Once the log says that the host drains, nothing is placed there or moved there any more, so the
//! tasks that are there then are all that will have to leave. The host's daemon asks the coordinators
//! of their applications to move them, each as if a console had asked for it: the target is the
//! living host with most room. A task whose move failed is tried at another host, at
//! [`limits::DRAIN_TRIES`] hosts in all; one that starts, ends or is on its way already is looked at
//! again. One that cannot be moved stays and is named, and the others leave nevertheless.
//!
//! The host goes on draining until that is taken back, or it leaves. Whoever asks meanwhile waits
//! for the same end; whoever asks later has those tried again that stayed, and is told of all.
//!
//! A daemon may be told to drain its host by itself when it is asked to end
//! ([`DaemonConfig::drain_at_stop`](crate::DaemonConfig)): then it leaves when the drain is over, or
//! the time for it is.

use super::{Daemon, LocalTask, Timer, asked::MoveAsker};
use crate::{Outbox, Output, Time, placement};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_wire::{
    HostId, Tid,
    agreed::Change,
    console::Answer,
    limits,
    peer::{DrainAsk, DrainEnd, DrainReport, MoveEnd, MoveReport, MoveWay, Order},
    task::{FailKind, Failed},
};

/// How this host's drain is going on, or how it went.
#[derive(Debug)]
pub(super) struct Drain {
    /// Daemons that wait for the end, each with its number for it.
    askers: BTreeSet<(HostId, u64)>,
    /// Whether tasks are being moved.
    active: bool,
    /// When this pass over the tasks began, and when the last of them had left or was refused.
    begun: Time,
    ended: Time,
    /// Tasks whose turn has not come.
    waiting: VecDeque<Tid>,
    /// Tasks on their way.
    underway: BTreeSet<Tid>,
    /// Tasks that cannot be moved just now.
    later: BTreeSet<Tid>,
    /// Where each task was to go already, and why it did not.
    tried: BTreeMap<Tid, (BTreeSet<HostId>, Option<Failed>)>,
    /// What became of the others. Bounded by the tasks that were here when the drain began.
    moved: BTreeMap<Tid, MoveReport>,
    refused: BTreeMap<Tid, Failed>,
    /// The daemon was asked to end, and leaves at this time at the latest.
    leave_by: Option<Time>,
}

impl Drain {
    fn new(now: Time) -> Self {
        Drain {
            askers: BTreeSet::new(),
            active: false,
            begun: now,
            ended: now,
            waiting: VecDeque::new(),
            underway: BTreeSet::new(),
            later: BTreeSet::new(),
            tried: BTreeMap::new(),
            moved: BTreeMap::new(),
            refused: BTreeMap::new(),
            leave_by: None,
        }
    }

    fn report(&self, host: HostId) -> DrainReport {
        let named = limits::DRAIN_NAMED_MAX;
        let moved = self.moved.iter().take(named);
        let refused = self.refused.iter().take(named);
        DrainReport {
            host,
            total_us: self.ended.since(self.begun).as_micros() as u64,
            moved_count: self.moved.len() as u32,
            refused_count: self.refused.len() as u32,
            moved: moved.map(|(tid, report)| (*tid, report.clone())).collect(),
            refused: refused.map(|(tid, why)| (*tid, why.clone())).collect(),
        }
    }

    /// A task stays; `shown` is its tid as people write it.
    fn refuse(&mut self, now: Time, tid: Tid, shown: &str, mut why: Failed) {
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

/// There is no other host that could take a task.
fn nowhere() -> Failed {
    let text = "there is no other host that takes tasks, so its tasks run on where they are; add \
                one (vm add)";
    Failed::new(FailKind::Refused, text)
}

impl Daemon {
    /// Somebody here wants the tasks of a host to leave. The answer comes with the end of it.
    pub(super) fn ask_drain(
        &mut self,
        asker: MoveAsker,
        name: &str,
        out: &mut Outbox,
    ) -> Result<(), Failed> {
        let state = self.agreement.state();
        let host = state
            .host_called(name)
            .ok_or_else(|| placement::no_such_host(state, name))?;
        let request = self.note_asked(asker, host, None);
        if host == self.me {
            self.on_drain_ask(self.me, request, out);
        } else {
            self.send_order(host, &Order::DrainAsk(DrainAsk { request }));
        }
        Ok(())
    }

    /// Somebody here wants a host to take tasks again.
    pub(super) fn ask_undrain(&mut self, name: &str) -> Result<HostId, Failed> {
        let state = self.agreement.state();
        let host = state
            .host_called(name)
            .ok_or_else(|| placement::no_such_host(state, name))?;
        if !state.is_draining(host) {
            let text = format!("host '{name}' is not draining");
            return Err(Failed::new(FailKind::Refused, text));
        }
        self.agreement.propose(Change::HostResumed(host));
        Ok(host)
    }

    pub(super) fn on_drain_ask(&mut self, from: HostId, request: u64, out: &mut Outbox) {
        let now = self.now;
        let drain = self.drain.get_or_insert_with(|| Drain::new(now));
        drain.askers.insert((from, request));
        self.want_drain(out);
    }

    /// Begins the drain of this host, unless it has begun.
    fn want_drain(&mut self, out: &mut Outbox) {
        let (state, me) = (self.agreement.state(), self.me);
        if self.drain.as_ref().is_some_and(|drain| drain.active) {
            return;
        }
        if state.is_draining(me) {
            self.begin_drain();
        } else if !state.is_living(me) || self.departure.is_some() {
            let text = placement::takes_no_tasks(state, me);
            self.give_up_drain(Failed::new(FailKind::Refused, text), out);
        } else if !state.hosts().any(|(id, _)| id != me && state.is_living(id)) {
            self.give_up_drain(nowhere(), out);
        } else {
            self.agreement.propose(Change::HostDraining(me));
        }
    }

    pub(super) fn on_host_draining(&mut self, host: HostId) {
        if host == self.me {
            self.begin_drain();
        }
    }

    /// The log did not take it: another host began to drain, or this one did by another's wish.
    pub(super) fn on_not_draining(&mut self, host: HostId, out: &mut Outbox) {
        if host != self.me || self.drain.is_none() {
            return;
        }
        match self.agreement.state().is_draining(host) {
            true => self.begin_drain(),
            false => self.give_up_drain(nowhere(), out),
        }
    }

    /// The host takes tasks again. Who is on his way goes on.
    pub(super) fn on_host_resumed(&mut self, host: HostId, out: &mut Outbox) {
        self.answer_resumed(host, out);
        if host == self.me {
            let text = "the drain was taken back; the other tasks run on where they are";
            self.give_up_drain(Failed::new(FailKind::Refused, text), out);
        }
    }

    /// This host leaves, whether its tasks have left or not.
    pub(super) fn end_drain_at_leave(&mut self, out: &mut Outbox) {
        let leave_by = self.drain.as_ref().and_then(|drain| drain.leave_by);
        let left = self.agreement.state().task_count(self.me);
        if leave_by.is_some_and(|by| self.now >= by) && left > 0 {
            let what = match left {
                1 => "1 task has not left and ends now".to_owned(),
                _ => format!("{left} tasks have not left and end now"),
            };
            let text = format!("the time for the drain is over (--grace): {what}");
            out.push_back(Output::Note(text));
        }
        let text = "the host is leaving the machine, and its other tasks end";
        self.give_up_drain(Failed::new(FailKind::Refused, text), out);
    }

    /// The user asked this daemon to end, which is to drain its host first.
    pub(super) fn drain_at_stop(&mut self, leave_by: Time, out: &mut Outbox) {
        let now = self.now;
        let drain = self.drain.get_or_insert_with(|| Drain::new(now));
        drain.leave_by = Some(leave_by);
        self.set_timer(leave_by, Timer::Drain);
        self.want_drain(out);
    }

    /// Whether this daemon was asked to end, and drains its host first.
    pub(super) fn is_stopping(&self) -> bool {
        let drain = self.drain.as_ref();
        drain.is_some_and(|drain| drain.leave_by.is_some())
    }

    fn begin_drain(&mut self) {
        let (now, me) = (self.now, self.me);
        let drain = self.drain.get_or_insert_with(|| Drain::new(now));
        if drain.active {
            return;
        }
        drain.active = true;
        drain.waiting = self.agreement.state().tasks_on(me).collect();
        drain.refused.clear();
        drain.tried.clear();
        if !drain.waiting.is_empty() {
            (drain.begun, drain.ended) = (now, now);
            self.set_timer(now + limits::DRAIN_LOOK, Timer::Drain);
        }
    }

    /// Does the next steps of this host's drain.
    pub(super) fn review_drain(&mut self, out: &mut Outbox) {
        while let Some(drain) = self.drain.as_mut().filter(|drain| drain.active)
            && drain.underway.len() < limits::DRAIN_MOVES
            && let Some(tid) = drain.waiting.pop_front()
        {
            self.drain_task(tid, out);
        }
        let me = self.me;
        let Some(drain) = self.drain.as_mut().filter(|drain| drain.active) else {
            return;
        };
        if drain.underway.is_empty() && drain.waiting.is_empty() && drain.later.is_empty() {
            drain.active = false;
            let report = drain.report(me);
            let (went, stay) = (report.moved_count, report.refused_count);
            let text = format!("drained: {went} tasks have left, {stay} have not");
            out.push_back(Output::Note(text));
            for (tid, why) in &drain.refused {
                let shown = tid.show(self.machine);
                out.push_back(Output::Note(format!("{shown} stays: {why}")));
            }
            self.answer_drain(Ok(report), out);
            self.leave_if_stopping();
        }
    }

    /// A task's turn to leave.
    fn drain_task(&mut self, tid: Tid, out: &mut Outbox) {
        let (now, me) = (self.now, self.me);
        let state = self.agreement.state();
        let Some(drain) = &mut self.drain else {
            return;
        };
        if state.living_task(tid).is_none_or(|task| task.host != me) {
            return;
        }
        let moves = self.leaving.contains_key(&tid);
        let ready = self.tasks.get(&tid).is_some_and(LocalTask::is_settled);
        if moves || (!ready && now < drain.begun + limits::DRAIN_PATIENCE) {
            drain.later.insert(tid);
            return;
        }
        let (tried, last) = drain.tried.entry(tid).or_default().clone();
        let to = match last {
            Some(failed) if tried.len() >= limits::DRAIN_TRIES => Err(failed),
            last => {
                let to = self.choose_target(me, &tried);
                to.map_err(|nowhere| last.unwrap_or(nowhere))
            }
        };
        // What would be refused wherever to is not tried.
        let to = to.and_then(|to| match self.objections(tid).into_iter().next() {
            Some(reason) => Err(Failed::new(FailKind::Refused, reason)),
            None => Ok(to),
        });
        let Some(drain) = &mut self.drain else {
            return;
        };
        match to {
            Ok(to) => {
                drain.underway.insert(tid);
                drain.tried.entry(tid).or_default().0.insert(to);
                self.want_move(MoveAsker::Drain, tid, me, to, MoveWay::default(), out);
            }
            Err(failed) => {
                let shown = tid.show(self.machine).to_string();
                drain.refuse(now, tid, &shown, failed);
            }
        }
    }

    /// A task that was to leave has left, or not.
    pub(super) fn on_drain_move_end(&mut self, end: MoveEnd) {
        let now = self.now;
        let Some(drain) = &mut self.drain else {
            return;
        };
        let tid = end.tid;
        if !drain.underway.remove(&tid) {
            return;
        }
        match end.result {
            Ok(report) => {
                drain.ended = now;
                drain.moved.insert(tid, report);
            }
            // It has ended, and the log will know soon.
            Err(failed) if failed.kind == FailKind::NoSuchTask => {
                drain.later.insert(tid);
            }
            Err(failed) => {
                drain.tried.entry(tid).or_default().1 = Some(failed);
                drain.waiting.push_back(tid);
            }
        }
    }

    /// Looks again at the tasks that could not be moved, and at the clock.
    pub(super) fn on_drain_due(&mut self) {
        let now = self.now;
        let Some(drain) = &mut self.drain else {
            return;
        };
        if drain.leave_by.is_some_and(|by| now >= by) {
            return self.leave_if_stopping();
        }
        if drain.active {
            drain.waiting.extend(std::mem::take(&mut drain.later));
            self.set_timer(now + limits::DRAIN_LOOK, Timer::Drain);
        }
    }

    fn leave_if_stopping(&mut self) {
        if self.is_stopping() && self.agreement.state().is_staying(self.me) {
            self.agreement.propose(Change::HostLeaving(self.me));
        }
    }

    /// There is no drain, or none any more.
    fn give_up_drain(&mut self, failed: Failed, out: &mut Outbox) {
        if self.drain.is_none() {
            return;
        }
        self.answer_drain(Err(failed), out);
        self.leave_if_stopping();
        let stopping = self.is_stopping();
        self.drain = self.drain.take().filter(|_| stopping).map(|mut drain| {
            drain.active = false;
            drain
        });
    }

    fn answer_drain(&mut self, result: Result<DrainReport, Failed>, out: &mut Outbox) {
        let Some(drain) = &mut self.drain else {
            return;
        };
        for (host, request) in std::mem::take(&mut drain.askers) {
            let result = result.clone();
            let end = DrainEnd { request, result };
            if host == self.me {
                self.on_drain_end(end, out);
            } else if self.agreement.state().may_be_present(host) {
                self.send_order(host, &Order::DrainEnd(end));
            }
        }
    }

    pub(super) fn on_drain_end(&mut self, end: DrainEnd, out: &mut Outbox) {
        let answer = end.result.map_or_else(Answer::Failed, Answer::Drained);
        self.answer_asked(end.request, &answer, out);
    }
}
