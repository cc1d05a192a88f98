//! Requests for moves from consoles, tasks and drains, at the daemon on whose host they were made.

use super::requests::{Driven, MoveAsked, Progress};
use crate::{
    daemon::{Daemon, context::Timer, requester::Requester},
    placement,
};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    HostId, Tid,
    console::Answer,
    limits,
    peer::{MoveAsk, MoveEnd, MoveProgress, MoveWay, Order},
    task::{FailKind, Failed},
};

impl Daemon {
    /// Begins the move of a task, requested on this host. The reply comes at the end of the move.
    pub(in crate::daemon) fn ask_move(
        &mut self,
        requester: Requester,
        tid: Tid,
        name: Option<&str>,
        way: MoveWay,
    ) -> Result<(), Failed> {
        let state = self.cx.agreement.state();
        let Some(task) = state.living_task(tid) else {
            return Err(self.cx.no_such_task(tid));
        };
        let owner = task.host;
        if task.suspended {
            let name = tid.show(self.cx.machine);
            let text =
                format!("task {name} is suspended: 'vm resume {name} HOST' resumes it there");
            return Err(Failed::new(FailKind::Refused, text));
        }
        let way = MoveWay {
            suspended: false,
            ..way
        };
        let to = match name {
            Some(name) => state
                .host_called(name)
                .ok_or_else(|| placement::no_such_host(state, name))?,
            None => self.choose_target(owner, &BTreeSet::new())?,
        };
        self.want_move(requester, tid, owner, to, way);
        Ok(())
    }

    /// Requests a move of a living task from the coordinator of its application.
    pub(in crate::daemon) fn want_move(
        &mut self,
        requester: Requester,
        tid: Tid,
        from: HostId,
        to: HostId,
        way: MoveWay,
    ) {
        let (request, now) = (self.note_asked(requester, from, Some(tid)), self.cx.now);
        let known = self.cx.agreement.state().living_task(tid);
        let incarnation = known.map_or(0, |task| task.incarnation);
        let generation = self.cx.living_generation_of(tid);
        if let Some(asked) = self.migration.requests.get_mut(&request) {
            asked.driven = Some(Driven {
                ask: MoveAsk {
                    request,
                    tid,
                    from,
                    incarnation,
                    generation,
                    to,
                    way,
                },
                progress: Progress::Asked(now),
                sent: None,
            });
        }
        self.ask_coordinator(request);
    }

    /// Numbers a request to which the daemon of `host` will reply.
    pub(in crate::daemon) fn note_asked(
        &mut self,
        requester: Requester,
        host: HostId,
        tid: Option<Tid>,
    ) -> u64 {
        let request = self.cx.next_request;
        self.cx.next_request += 1;
        let asked = MoveAsked {
            requester,
            since: self.cx.now,
            tries: 1,
            host,
            tid,
            driven: None,
        };
        self.migration.requests.insert(request, asked);
        request
    }

    /// Sends a move request of this host to the coordinator, for the first time or again. Not
    /// during the pause after a refusal: the request may name the host that the task has left.
    pub(in crate::daemon) fn ask_coordinator(&mut self, number: u64) {
        let now = self.cx.now;
        let state = self.cx.agreement.state();
        let asked = self.migration.requests.get_mut(&number);
        let driven = asked.and_then(|asked| asked.driven.as_mut());
        let Some(driven) = driven else {
            return;
        };
        if matches!(driven.progress, Progress::Pausing | Progress::Ended(_)) {
            return;
        }
        driven.progress = Progress::Asked(now);
        let ask = driven.ask.clone();
        let app = state.task(ask.tid).map(|task| task.app);
        self.cx
            .set_timer(now + limits::COORDINATOR_WAIT, Timer::Asked(number));
        match app.and_then(|app| self.cx.where_to_ask(app)) {
            Some(host) if host == self.cx.me => self.on_move_ask(host, &ask),
            Some(host) => {
                self.cx.send_order(host, &Order::MoveAsk(ask));
            }
            None => {}
        }
    }

    /// Ends a move request that no coordinator has accepted within `limits::COORDINATOR_WAIT`.
    pub(in crate::daemon) fn on_asked_due(&mut self, number: u64) {
        let asked = self.migration.requests.get(&number);
        if let Some(driven) = asked.and_then(|asked| asked.driven.as_ref())
            && let Progress::Asked(since) = driven.progress
            && self.cx.now >= since + limits::COORDINATOR_WAIT
        {
            let tid = driven.ask.tid;
            let task = self.cx.agreement.state().task(tid);
            let failed = self.not_taken_up(task.map_or(tid, |task| task.app));
            self.end_asked(number, tid, failed);
        }
    }

    /// Ends a move request of this host that was not carried out.
    pub(in crate::daemon) fn end_asked(&mut self, request: u64, tid: Tid, failed: Failed) {
        let end = MoveEnd {
            request,
            tid,
            result: Err(failed),
        };
        self.on_move_end(end);
    }

    /// Ends the move requests of this host that `which` selects, because their tasks have ended.
    pub(in crate::daemon) fn end_moves(&mut self, which: impl Fn(&Driven) -> bool) {
        let asked = self.migration.requests.iter();
        let driven = asked.filter_map(|(number, asked)| Some((*number, asked.driven.as_ref()?)));
        let over = driven.filter(|(_, driven)| which(driven));
        let over: Vec<(u64, Tid)> = over.map(|(number, it)| (number, it.ask.tid)).collect();
        for (number, tid) in over {
            self.end_asked(number, tid, self.cx.no_such_task(tid));
        }
    }

    pub(in crate::daemon) fn on_move_progress(&mut self, progress: &MoveProgress) {
        let asked = self.migration.requests.get_mut(&progress.request);
        if let Some(driven) = asked.and_then(|asked| asked.driven.as_mut())
            && !matches!(driven.progress, Progress::Ended(_))
        {
            driven.progress = Progress::Accepted(progress.phase);
        }
    }

    /// Replies to the requester of that request.
    pub(in crate::daemon) fn answer_asked(&mut self, request: u64, answer: &Answer) {
        if let Some(asked) = self.migration.requests.remove(&request) {
            self.reply_to(asked.requester, answer);
        }
    }

    pub(in crate::daemon) fn reply_to(&mut self, requester: Requester, answer: &Answer) {
        match requester {
            Requester::Console(conn, number) => {
                self.consoles.reply(&mut self.cx, conn, number, answer);
            }
            Requester::Task {
                tid,
                generation,
                request,
            } => self.answer_far_task(tid, generation, request, answer),
            // The moves of a drain end in `on_move_end`.
            Requester::Drain => {}
            Requester::Policy(app) => self.on_policy_answer(app, answer),
            Requester::Recovery(app, generation) => {
                self.restarts
                    .on_recovery_answer(&mut self.cx, app, generation, answer);
            }
            Requester::DrainSave(app) => self.on_drain_saved(app, answer),
            Requester::DrainSuspend(app) => self.on_drain_suspended(app, answer),
            Requester::Resume(app, generation) => {
                self.suspensions
                    .on_resume_answer(&mut self.cx, app, generation, answer);
            }
        }
    }

    /// The host with the most room per processor among the living hosts of the same architecture
    /// that are not in `except`. Tasks that are moving from here to a host, or that a drain moves
    /// there, count as tasks of that host.
    pub(in crate::daemon) fn choose_target(
        &self,
        from: HostId,
        except: &BTreeSet<HostId>,
    ) -> Result<HostId, Failed> {
        let mut coming: BTreeMap<HostId, u64> = BTreeMap::new();
        for moving in self.migration.leaving.values() {
            *coming.entry(moving.to).or_default() += 1;
        }
        let asked = self.migration.requests.values();
        for driven in asked
            .filter(|asked| asked.requester == Requester::Drain)
            .filter_map(|asked| asked.driven.as_ref())
        {
            if !self.migration.leaving.contains_key(&driven.ask.tid) {
                *coming.entry(driven.ask.to).or_default() += 1;
            }
        }
        placement::best_target(self.cx.agreement.state(), from, except, &coming)
    }

    pub(in crate::daemon) fn on_move_end(&mut self, end: MoveEnd) {
        let asked = self.migration.requests.get(&end.request);
        if asked.is_some_and(|asked| asked.requester == Requester::Drain) {
            self.migration.requests.remove(&end.request);
            return self.on_drain_move_end(end);
        }
        let answer = match end.result {
            Ok(report) => {
                // After the reply, the requester may request the next move at once. The local log
                // must know the end of this move by then.
                let state = self.cx.agreement.state();
                let known = state.living_task(end.tid).map(|task| task.incarnation);
                let asked = self.migration.requests.get_mut(&end.request);
                let driven = asked.and_then(|asked| asked.driven.as_mut());
                match driven {
                    Some(driven) if known.is_some_and(|known| known <= driven.ask.incarnation) => {
                        driven.progress = Progress::Ended(report);
                        return;
                    }
                    _ => Answer::Moved(report),
                }
            }
            Err(failed) if failed.kind == FailKind::Busy && self.ask_later(end.request) => return,
            Err(failed) => Answer::Failed(failed),
        };
        self.answer_asked(end.request, &answer);
    }

    /// Schedules another attempt of a move that was refused for a reason that passes. The attempt
    /// gets a new number, because the source remembers the result under the old number. `false` if
    /// there is no time left for another attempt.
    fn ask_later(&mut self, request: u64) -> bool {
        let Some(mut asked) = self.migration.requests.remove(&request) else {
            return false;
        };
        let due = self.cx.now + limits::busy_pause(asked.tries);
        let driven = asked.driven.as_mut();
        let Some(driven) = driven.filter(|_| due < asked.since + limits::MOVE_PATIENCE) else {
            self.migration.requests.insert(request, asked);
            return false;
        };
        let number = self.cx.next_request;
        self.cx.next_request += 1;
        (driven.ask.request, driven.progress) = (number, Progress::Pausing);
        asked.tries += 1;
        self.migration.requests.insert(number, asked);
        self.cx.set_timer(due, Timer::AskAgain(number));
        true
    }

    /// The pause after a refusal is over: requests the move again from the host where the task is
    /// now. A task that has ended meanwhile has no coordinator that could reply.
    pub(in crate::daemon) fn on_ask_again(&mut self, number: u64) {
        let Some(asked) = self.migration.requests.get_mut(&number) else {
            return;
        };
        let Some(driven) = &mut asked.driven else {
            return;
        };
        let tid = driven.ask.tid;
        let Some(task) = self.cx.agreement.state().living_task(tid) else {
            return self.end_asked(number, tid, self.cx.no_such_task(tid));
        };
        asked.host = task.host;
        // A task is suspended where it is; see `ask_suspend_task`.
        if driven.ask.way.suspended && driven.ask.to == driven.ask.from {
            driven.ask.to = task.host;
        }
        (driven.ask.from, driven.ask.incarnation) = (task.host, task.incarnation);
        driven.progress = Progress::Asked(self.cx.now);
        self.ask_coordinator(number);
    }

    /// The local log has applied a move or the end of a task: replies to requests whose reports
    /// waited for that.
    pub(in crate::daemon) fn review_ends(&mut self, tid: Tid) {
        let mut ends = Vec::new();
        for (request, asked) in &self.migration.requests {
            if let Some(driven) = &asked.driven
                && driven.ask.tid == tid
                && let Progress::Ended(report) = &driven.progress
            {
                ends.push((*request, report.clone()));
            }
        }
        for (request, report) in ends {
            self.answer_asked(request, &Answer::Moved(report));
        }
    }

    /// The reply to a requester if no coordinator of the application has accepted the request.
    pub(in crate::daemon) fn not_taken_up(&self, app: Tid) -> Failed {
        let host = self.cx.where_to_ask(app);
        let cut_off = host.filter(|host| self.unreachable.cut_off(&self.cx).contains(host));
        let text = match cut_off {
            Some(host) => format!(
                "the coordinator of its application is out of reach: {}",
                self.cx.cannot_reach(host)
            ),
            None => format!(
                "the coordinator of its application has not answered within {:?}; try again",
                limits::COORDINATOR_WAIT
            ),
        };
        Failed::new(FailKind::System, text)
    }
}
