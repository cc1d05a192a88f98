//! The steps of a drain.

use super::state::{Drain, Saves, Stage, nowhere, undone};
use crate::{
    Output, Time,
    daemon::{Daemon, context::Timer, local_task::LocalTask, requester::Requester},
    placement,
};
use std::collections::{BTreeSet, VecDeque};
use vm_wire::{
    HostId, RequestKey, Tid,
    agreed::Change,
    console::Answer,
    limits,
    peer::{DrainAsk, DrainEnd, DrainReport, DrainWay, MoveEnd, MoveWay, Order},
    task::{FailKind, Failed},
};

impl Daemon {
    /// Begins the drain of a host, requested on this host. The reply comes at the end of the drain.
    pub(in crate::daemon) fn ask_drain(
        &mut self,
        requester: Requester,
        name: &str,
        way: DrainWay,
    ) -> Result<(), Failed> {
        let state = self.cx.agreement.state();
        let host = state
            .host_called(name)
            .ok_or_else(|| placement::no_such_host(state, name))?;
        let request = self.note_asked(requester, host, None);
        if host == self.cx.me {
            self.on_drain_ask(self.cx.me, DrainAsk { request, way });
        } else {
            self.cx
                .send_order(host, &Order::DrainAsk(DrainAsk { request, way }));
        }
        Ok(())
    }

    /// Undoes the drain of a host, requested on this host.
    pub(in crate::daemon) fn ask_undrain(&mut self, name: &str) -> Result<HostId, Failed> {
        let state = self.cx.agreement.state();
        let host = state
            .host_called(name)
            .ok_or_else(|| placement::no_such_host(state, name))?;
        if !state.is_draining(host) {
            let text = format!("host '{name}' is not draining");
            return Err(Failed::new(FailKind::Refused, text));
        }
        self.cx.agreement.propose(Change::HostResumed(host));
        Ok(host)
    }

    pub(in crate::daemon) fn on_drain_ask(&mut self, from: HostId, ask: DrainAsk) {
        let (now, me, DrainAsk { request, way }) = (self.cx.now, self.cx.me, ask);
        let apps = match way.checkpoint {
            true => self.apps_here(),
            false => BTreeSet::new(),
        };
        let drain = self.drain.get_or_insert_default();
        if way.checkpoint && matches!(drain.stage, Stage::Proposed | Stage::Moving(_)) {
            let name = &self.cx.config.facts.name;
            let text = format!(
                "the drain of host '{name}' has begun, so nothing can be saved before it; ask without \
                 --checkpoint"
            );
            let result = Err(Failed::new(FailKind::Refused, text));
            return self.send_drain_end(from, DrainEnd { request, result });
        }
        drain.requesters.insert(RequestKey::new(from, request));
        drain.suspend = way.suspend || (drain.suspend && drain.is_requested());
        match &mut drain.stage {
            Stage::Moving(pass) if way.suspend => {
                // Tries the tasks that had to stay once more.
                let refused = std::mem::take(&mut drain.results.refused);
                pass.waiting.extend(refused.into_keys());
            }
            Stage::Idle if way.checkpoint => {
                drain.results.saved = 0;
                drain.stage = Stage::Saving(Saves {
                    waiting: apps,
                    ..Saves::default()
                });
            }
            _ => {}
        }
        if !drain.is_saving() {
            self.want_drain();
        } else if self.cx.agreement.state().is_staying(me) {
            // `review_drain` continues.
            self.cx.set_timer(now + limits::DRAIN_LOOK, Timer::Drain);
        }
    }

    /// The applications with tasks on this host.
    fn apps_here(&self) -> BTreeSet<Tid> {
        let state = self.cx.agreement.state();
        let app = |tid: Tid| state.living_task(tid).map(|task| task.app);
        state.tasks_on(self.cx.me).filter_map(app).collect()
    }

    /// The checkpoints that are made before the drain.
    fn saves(&mut self) -> Option<&mut Saves> {
        self.drain.as_mut().and_then(Drain::saves)
    }

    /// Begins the checkpoints that have to be made before the host drains. An application with
    /// another checkpoint under way waits for its end.
    fn review_saves(&mut self) {
        let waiting = self.saves().map(|saves| saves.waiting.clone());
        for app in waiting.unwrap_or_default() {
            let any = self.cx.agreement.state().tasks_of(app).next();
            let is_cut = self.cx.agreement.state().is_cut(app);
            let Some(saves) = self.saves() else {
                return;
            };
            // A failed checkpoint is tried again when the timer is due.
            let failed = saves.failed.contains_key(&app) && !saves.retries;
            if is_cut || failed || saves.underway.len() >= limits::DRAIN_MOVES {
                continue;
            }
            saves.waiting.remove(&app);
            let Some(tid) = any else {
                // The application has ended.
                continue;
            };
            saves.underway.insert(app);
            let requester = Requester::DrainSave(app);
            if let Err(failed) = self.ask_checkpoint(requester, tid, None) {
                self.on_drain_saved(app, &Answer::Failed(failed));
            }
        }
        let Some(saves) = self.saves() else {
            return;
        };
        saves.retries = false;
        if saves.waiting.is_empty() && saves.underway.is_empty() {
            self.want_drain();
        }
    }

    /// The checkpoint of an application before the drain has its result.
    pub(in crate::daemon) fn on_drain_saved(&mut self, app: Tid, answer: &Answer) {
        let Some(drain) = &mut self.drain else {
            return;
        };
        let Some(saves) = drain.saves().filter(|saves| saves.underway.contains(&app)) else {
            return;
        };
        saves.underway.remove(&app);
        match answer {
            // The application has ended.
            Answer::Failed(failed) if failed.kind == FailKind::NoSuchTask => {}
            Answer::Failed(failed) => {
                // The coordinator may not have finished an earlier checkpoint yet.
                let tries = saves.failed.entry(app).or_default();
                *tries += 1;
                if *tries < limits::DRAIN_TRIES {
                    saves.waiting.insert(app);
                    return;
                }
                let shown = app.show(self.cx.machine);
                let text = format!(
                    "application {shown} cannot be saved, so the drain was not begun: {failed}; ask \
                     without --checkpoint to have its tasks leave all the same"
                );
                self.give_up_drain(Failed::new(failed.kind, text));
            }
            _ => drain.results.saved += 1,
        }
    }

    /// Proposes the drain to the log. Begins the pass if the host drains already; gives up if no
    /// drain is possible.
    fn want_drain(&mut self) {
        let (state, me) = (self.cx.agreement.state(), self.cx.me);
        if self.drain.as_ref().is_some_and(Drain::is_moving) {
            return;
        }
        let suspend = self.drain.as_ref().is_some_and(|drain| drain.suspend);
        if state.is_draining(me) {
            self.begin_drain();
        } else if !state.is_living(me) || self.departure.is_underway() {
            let text = placement::takes_no_tasks(state, me);
            self.give_up_drain(Failed::new(FailKind::Refused, text));
        } else if !suspend && !state.hosts().any(|(id, _)| id != me && state.is_living(id)) {
            self.give_up_drain(nowhere());
        } else {
            let host = me;
            self.drain.get_or_insert_default().stage = Stage::Proposed;
            self.cx
                .agreement
                .propose(Change::HostDraining { host, suspend });
        }
    }

    pub(in crate::daemon) fn on_host_draining(&mut self, host: HostId) {
        if host == self.cx.me {
            self.begin_drain();
        }
    }

    /// The log has voided the drain: no other host takes tasks any more, or this host drains
    /// already.
    pub(in crate::daemon) fn on_not_draining(&mut self, host: HostId) {
        if host != self.cx.me || self.drain.is_none() {
            return;
        }
        match self.cx.agreement.state().is_draining(host) {
            true => self.begin_drain(),
            false => self.give_up_drain(nowhere()),
        }
    }

    /// A host takes tasks again. Moves that are under way continue.
    pub(in crate::daemon) fn on_host_resumed(&mut self, host: HostId) {
        self.consoles.on_host_resumed(&mut self.cx, host);
        if host == self.cx.me {
            self.give_up_drain(undone());
        }
    }

    /// If a requested drain has no proposal pending, it has begun or was undone. This daemon may
    /// have received a snapshot that contains both.
    fn sweep_lost_drain(&mut self) {
        let waits =
            |drain: &Drain| matches!(drain.stage, Stage::Proposed) && !drain.requesters.is_empty();
        let settled = self.cx.decisions.is_empty() && !self.cx.agreement.is_pending();
        if !self.drain.as_ref().is_some_and(waits) || !settled {
            return;
        }
        match self.cx.agreement.state().is_draining(self.cx.me) {
            true => self.begin_drain(),
            false => self.give_up_drain(undone()),
        }
    }

    /// This host leaves, whether its tasks have left or not.
    pub(in crate::daemon) fn end_drain_at_leave(&mut self) {
        let leave_by = self.drain.as_ref().and_then(|drain| drain.leave_by);
        let left = self.cx.agreement.state().task_count(self.cx.me);
        if leave_by.is_some_and(|by| self.cx.now >= by) && left > 0 {
            let what = match left {
                1 => "1 task has not left and ends now".to_owned(),
                _ => format!("{left} tasks have not left and end now"),
            };
            let text = format!("the time for the drain is over (--grace): {what}");
            self.cx.emit(Output::Note(text));
        }
        let text = "the host is leaving the machine, and its other tasks end";
        self.give_up_drain(Failed::new(FailKind::Refused, text));
    }

    /// A user asked this daemon to end, and the daemon drains its host first.
    pub(in crate::daemon) fn drain_at_stop(&mut self, leave_by: Time) {
        let drain = self.drain.get_or_insert_default();
        drain.leave_by = Some(leave_by);
        drain.suspend |= self.cx.config.suspend_at_stop;
        if drain.is_saving() {
            // There is no time for checkpoints before the drain.
            drain.stage = Stage::Idle;
        }
        self.cx.set_timer(leave_by, Timer::Drain);
        self.want_drain();
    }

    /// Whether this daemon was asked to end, and drains its host first.
    pub(in crate::daemon) fn is_stopping(&self) -> bool {
        let drain = self.drain.as_ref();
        drain.is_some_and(|drain| drain.leave_by.is_some())
    }

    /// The host drains: begins the pass over its tasks, unless it has begun.
    fn begin_drain(&mut self) {
        let (now, me) = (self.cx.now, self.cx.me);
        let drain = self.drain.get_or_insert_default();
        if drain.is_moving() {
            return;
        }
        let tasks: VecDeque<Tid> = self.cx.agreement.state().tasks_on(me).collect();
        if !tasks.is_empty() {
            self.cx.set_timer(now + limits::DRAIN_LOOK, Timer::Drain);
        }
        drain.begin_pass(now, tasks);
    }

    /// Continues this host's drain as far as possible.
    pub(in crate::daemon) fn review_drain(&mut self) {
        if self.drain.is_none() {
            return;
        }
        self.sweep_lost_drain();
        self.review_saves();
        while let Some(tid) = self.next_to_drain() {
            self.drain_task(tid);
        }
        let me = self.cx.me;
        let Some(drain) = &mut self.drain else {
            return;
        };
        if !drain.end_pass() {
            return;
        }
        let results = &drain.results;
        let report = results.report(me);
        let (went, stay) = (report.moved_count, report.refused_count);
        let suspended = match results.suspended.len() {
            0 => String::new(),
            1 => "; 1 application was suspended".to_owned(),
            count => format!("; {count} applications were suspended"),
        };
        let text = format!("drained: {went} tasks have left, {stay} have not{suspended}");
        self.cx.emit(Output::Note(text));
        for (tid, why) in &results.refused {
            let shown = tid.show(self.cx.machine);
            self.cx.emit(Output::Note(format!("{shown} stays: {why}")));
        }
        self.answer_drain(Ok(report));
        self.leave_if_stopping();
    }

    fn next_to_drain(&mut self) -> Option<Tid> {
        self.drain.as_mut()?.pass()?.next()
    }

    /// Requests the move of a task, or decides that it waits or stays.
    fn drain_task(&mut self, tid: Tid) {
        let (now, me) = (self.cx.now, self.cx.me);
        let state = self.cx.agreement.state();
        let living = state.living_task(tid).filter(|task| task.host == me);
        let (Some(app), Some(drain)) = (living.map(|task| task.app), &mut self.drain) else {
            return;
        };
        // No task of an application moves while a checkpoint of it is made.
        let moves = self.migration.leaving.contains_key(&tid) || self.checkpoints.cuts.has(app);
        let ready = self.tasks.get(&tid).is_some_and(LocalTask::is_settled);
        let is_suspended = drain.results.suspended.contains(&app);
        let Some(pass) = drain.pass() else {
            return;
        };
        // The local log may not have applied the end of a suspended application yet.
        let is_suspended = is_suspended || pass.suspending.contains(&app);
        let waits = is_suspended || moves || pass.pauses(now, tid);
        if waits || (!ready && drain.waits_for(now, tid)) {
            return self.drain_later(tid);
        }
        let to = self.drain_target(tid);
        let suspended = self.is_suspended(tid);
        let Some(drain) = &mut self.drain else {
            return;
        };
        match to {
            Ok(to) => {
                if let Some(pass) = drain.pass() {
                    pass.underway.insert(tid, to);
                    pass.attempts(tid).targets.insert(to);
                }
                let way = MoveWay {
                    suspended,
                    ..MoveWay::default()
                };
                self.want_move(Requester::Drain, tid, me, to, way);
            }
            Err(failed) if failed.kind == FailKind::Busy && drain.waits_for(now, tid) => {
                self.drain_later(tid);
            }
            // No checkpoint is made of an application with a suspended task.
            Err(failed) if drain.suspend && !suspended => self.suspend_at_drain(app, tid, failed),
            Err(failed) => {
                let shown = tid.show(self.cx.machine).to_string();
                drain.results.refuse(now, tid, &shown, failed);
            }
        }
    }

    /// A task is tried again when the timer is due, or when a checkpoint has ended.
    fn drain_later(&mut self, tid: Tid) {
        if let Some(pass) = self.drain.as_mut().and_then(Drain::pass) {
            pass.later.insert(tid);
        }
    }

    /// The target for a task that has to leave; or the reason why the task stays.
    fn drain_target(&mut self, tid: Tid) -> Result<HostId, Failed> {
        let attempts = self.drain.as_mut().and_then(Drain::pass);
        let attempts = attempts.and_then(|pass| pass.attempts.get(&tid));
        let (tried, last) = attempts
            .map(|it| (it.targets.clone(), it.failure.clone()))
            .unwrap_or_default();
        let to = match last {
            Some(failed) if tried.len() >= limits::DRAIN_TRIES => Err(failed),
            last => {
                let to = self.choose_target(self.cx.me, &tried);
                to.map_err(|nowhere| last.unwrap_or(nowhere))
            }
        };
        // A move that every target would refuse is not tried.
        to.and_then(|to| match self.objections(tid).into_iter().next() {
            Some(reason) => Err(Failed::new(reason.kind(), reason.text)),
            None if self.is_suspended(tid) => self.check_hand_on(tid).map(|()| to),
            None => Ok(to),
        })
    }

    /// Suspends the application of a task that cannot leave, if possible.
    fn suspend_at_drain(&mut self, app: Tid, tid: Tid, why: Failed) {
        let now = self.cx.now;
        let is_cut = self.cx.agreement.state().is_cut(app);
        let Some(drain) = &mut self.drain else {
            return;
        };
        let Some(pass) = drain.pass() else {
            return;
        };
        let tries = pass.not_suspended.get(&app);
        if let Some((_, failed)) = tries.filter(|(tries, _)| *tries >= limits::DRAIN_TRIES) {
            let text = format!("{why}; and its application cannot be suspended: {failed}");
            let failed = Failed::new(failed.kind, text);
            let shown = tid.show(self.cx.machine).to_string();
            return drain.results.refuse(now, tid, &shown, failed);
        }
        pass.later.insert(tid);
        if is_cut || pass.suspending.len() >= limits::DRAIN_MOVES {
            return;
        }
        pass.suspending.insert(app);
        if let Err(failed) = self.suspend_drained(Requester::DrainSuspend(app), tid) {
            self.on_drain_suspended(app, &Answer::Failed(failed));
        }
    }

    /// The suspension of an application, because of a task that cannot leave, has its result.
    pub(in crate::daemon) fn on_drain_suspended(&mut self, app: Tid, answer: &Answer) {
        let now = self.cx.now;
        let Some(Drain {
            stage: Stage::Moving(pass),
            results,
            ..
        }) = &mut self.drain
        else {
            return;
        };
        if !pass.suspending.remove(&app) {
            return;
        }
        results.note_progress(now);
        match answer {
            Answer::Failed(failed) => {
                let none = || (0, failed.clone());
                let (tries, last) = pass.not_suspended.entry(app).or_insert_with(none);
                (*tries, *last) = (*tries + 1, failed.clone());
            }
            _ => {
                results.suspended.insert(app);
            }
        }
    }

    /// The move of a task of the drain has its result.
    pub(in crate::daemon) fn on_drain_move_end(&mut self, end: MoveEnd) {
        let (now, tid) = (self.cx.now, end.tid);
        let task = self.tasks.get(&tid);
        let is_cut = task.is_some_and(|task| self.checkpoints.cuts.has(task.app));
        let Some(drain) = &mut self.drain else {
            return;
        };
        let busy = matches!(&end.result, Err(failed) if failed.kind == FailKind::Busy);
        let Some(to) = drain.pass().and_then(|pass| pass.underway.remove(&tid)) else {
            return;
        };
        let is_cut = is_cut
            && drain.pass().is_some_and(|pass| {
                let attempts = pass.attempts(tid);
                attempts.cut_short < limits::DRAIN_CUTS
            });
        let waits = busy && !is_cut && drain.tries_again(now, tid);
        let Drain {
            stage: Stage::Moving(pass),
            results,
            ..
        } = drain
        else {
            return;
        };
        match end.result {
            Ok(report) => {
                results.note_progress(now);
                results.moved.insert(tid, report);
            }
            // The task has ended, and the log will apply that soon.
            Err(failed) if failed.kind == FailKind::NoSuchTask => {
                pass.later.insert(tid);
            }
            // The target is not the cause of the failure.
            Err(_) if is_cut => {
                let attempts = pass.attempts(tid);
                attempts.cut_short += 1;
                attempts.targets.remove(&to);
                pass.later.insert(tid);
            }
            Err(_) if waits => {
                pass.attempts(tid).targets.remove(&to);
                pass.later.insert(tid);
            }
            Err(failed) => {
                pass.attempts(tid).failure = Some(failed);
                pass.waiting.push_back(tid);
            }
        }
    }

    /// The timer is due: tries the tasks that could not be moved again, and checks the time limit.
    pub(in crate::daemon) fn on_drain_due(&mut self) {
        let now = self.cx.now;
        let Some(drain) = &mut self.drain else {
            return;
        };
        if drain.leave_by.is_some_and(|by| now >= by) {
            return self.leave_if_stopping();
        }
        match &mut drain.stage {
            Stage::Saving(saves) => saves.retries = true,
            Stage::Moving(pass) => pass.retry(),
            Stage::Idle | Stage::Proposed => return,
        }
        self.cx.set_timer(now + limits::DRAIN_LOOK, Timer::Drain);
    }

    /// A checkpoint has ended: tries the tasks that waited for that.
    pub(in crate::daemon) fn drain_on(&mut self) {
        if let Some(pass) = self.drain.as_mut().and_then(Drain::pass) {
            pass.retry();
        }
    }

    fn leave_if_stopping(&mut self) {
        if self.is_stopping() && self.cx.agreement.state().is_staying(self.cx.me) {
            self.cx.agreement.propose(Change::HostLeaving(self.cx.me));
        }
    }

    /// Ends the drain without success, or prevents it.
    fn give_up_drain(&mut self, failed: Failed) {
        if self.drain.is_none() {
            return;
        }
        self.answer_drain(Err(failed));
        self.leave_if_stopping();
        let stopping = self.is_stopping();
        match &mut self.drain {
            Some(drain) if stopping => drain.stage = Stage::Idle,
            drain => *drain = None,
        }
    }

    fn answer_drain(&mut self, result: Result<DrainReport, Failed>) {
        let Some(drain) = &mut self.drain else {
            return;
        };
        for RequestKey {
            host,
            number: request,
        } in std::mem::take(&mut drain.requesters)
        {
            let result = result.clone();
            self.send_drain_end(host, DrainEnd { request, result });
        }
    }

    fn send_drain_end(&mut self, host: HostId, end: DrainEnd) {
        if host == self.cx.me {
            self.on_drain_end(end);
        } else if self.cx.agreement.state().may_be_present(host) {
            self.cx.send_order(host, &Order::DrainEnd(end));
        }
    }

    pub(in crate::daemon) fn on_drain_end(&mut self, end: DrainEnd) {
        let answer = end.result.map_or_else(Answer::Failed, Answer::Drained);
        self.answer_asked(end.request, &answer);
    }
}
