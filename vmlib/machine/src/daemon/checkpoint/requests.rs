//! Wishes for checkpoints, at the daemon where they were made: by consoles, by tasks, or by itself,
//! where an application's policy says so.

use crate::daemon::{Daemon, asked::MoveAsker, context::Timer};
use crate::{Output, Time, Void};
use std::time::Duration;
use vm_wire::{
    HostId, Tid,
    agreed::Change,
    checkpoint::{CheckpointAsk, CheckpointEnd, Policy, Stop},
    console::Answer,
    limits,
    peer::Order,
    task::{FailKind, Failed},
};

/// A wish for a checkpoint, by the number that this daemon gave it.
#[derive(Debug)]
pub(in crate::daemon) struct CheckpointAsked {
    asker: MoveAsker,
    ask: CheckpointAsk,
    /// When it was last asked, and the application's last epoch then.
    asked: (Time, u32),
    /// A cut was under way when it was last looked at: it waits for the end of that, or is that.
    waits: bool,
    /// The log says that it was made and that the application has ended with it.
    ended: bool,
    /// How it went, as long as the log here does not say that the application has ended with it.
    told: Option<CheckpointEnd>,
}

impl Daemon {
    /// Somebody here wants a checkpoint of the application of a task. The answer comes with its end.
    pub(in crate::daemon) fn ask_checkpoint(
        &mut self,
        asker: MoveAsker,
        tid: Tid,
        stop: Option<Stop>,
    ) -> Result<(), Failed> {
        let Some(task) = self.cx.agreement.state().living_task(tid) else {
            return Err(self.cx.no_such_task(tid));
        };
        let app = task.app;
        self.no_task_suspended(app)?;
        let request = self.cx.next_request;
        self.cx.next_request += 1;
        let ask = CheckpointAsk {
            request,
            app,
            generation: self.cx.agreement.state().epochs(app).generation,
            stop,
        };
        let asked = CheckpointAsked {
            asker,
            ask,
            asked: (self.cx.now, 0),
            waits: false,
            ended: false,
            told: None,
        };
        self.asked_checkpoints.insert(request, asked);
        self.send_checkpoint_ask(ask);
        Ok(())
    }

    fn send_checkpoint_ask(&mut self, ask: CheckpointAsk) {
        let (now, epoch) = (self.cx.now, self.cx.agreement.state().epochs(ask.app).epoch);
        if let Some(asked) = self.asked_checkpoints.get_mut(&ask.request) {
            asked.asked = (now, epoch);
        }
        let due = now + limits::COORDINATOR_WAIT;
        self.cx.set_timer(due, Timer::CheckpointAsked(ask.request));
        match self.where_to_ask(ask.app) {
            Some(host) if host == self.cx.me => self.on_checkpoint_ask(host, ask),
            Some(host) => {
                self.cx.send_order(host, &Order::CheckpointAsk(ask));
            }
            None => {}
        }
    }

    /// Perhaps no coordinator has taken up a wish for a checkpoint. One that did has made a cut, or it
    /// waits for the end of another one.
    pub(in crate::daemon) fn on_checkpoint_asked_due(&mut self, request: u64) {
        let state = self.cx.agreement.state();
        let Some(asked) = self.asked_checkpoints.get_mut(&request) else {
            return;
        };
        if asked.told.is_some() && self.cx.now < asked.asked.0 + limits::COORDINATOR_WAIT {
            return;
        }
        if let Some(end) = asked.told.take() {
            return self.answer_checkpoint(end);
        }
        if state.is_cut(asked.ask.app) && !asked.ended {
            asked.asked = (self.cx.now, state.epochs(asked.ask.app).epoch);
            asked.waits = true;
            let due = self.cx.now + limits::COORDINATOR_WAIT;
            return self.cx.set_timer(due, Timer::CheckpointAsked(request));
        }
        if std::mem::take(&mut asked.waits) && !asked.ended {
            // It may be the next one, of which the log does not know yet.
            let ask = asked.ask;
            return self.send_checkpoint_ask(ask);
        }
        let (app, (at, epoch)) = (asked.ask.app, asked.asked);
        let ended = asked.ended;
        let is_idle = self.cx.agreement.state().epochs(app).epoch == epoch;
        // Before it makes a cut it waits for portable tasks.
        let wait = match ended {
            true => limits::COORDINATOR_WAIT,
            false => limits::COORDINATOR_WAIT + limits::SAFE_POINT,
        };
        if is_idle && !ended && self.cx.now < at + wait {
            return self
                .cx
                .set_timer(at + wait, Timer::CheckpointAsked(request));
        }
        if (is_idle || ended) && self.cx.now >= at + wait {
            let result = Err(match ended {
                true => self.end_untold(app),
                false => self.not_taken_up(app),
            });
            let end = CheckpointEnd {
                request,
                app,
                result,
            };
            self.on_checkpoint_end(end);
        }
    }

    /// An application has ended with a checkpoint. The daemon of its coordinator tells who wanted that
    /// how it went, unless it is lost.
    pub(in crate::daemon) fn await_end_report(&mut self, app: Tid) {
        let due = self.cx.now + limits::COORDINATOR_WAIT;
        let mut requests = Vec::new();
        for (request, asked) in &mut self.asked_checkpoints {
            if asked.ask.app == app {
                (asked.asked.0, asked.ended) = (self.cx.now, true);
                requests.push(*request);
            }
        }
        for request in requests {
            self.cx.set_timer(due, Timer::CheckpointAsked(request));
        }
    }

    fn end_untold(&self, app: Tid) -> Failed {
        let (ended, shows) = match self.cx.agreement.state().suspended(app) {
            Some(_) => ("was suspended", "vm ps"),
            None => ("has ended with a checkpoint", "vm checkpoints"),
        };
        let text = format!(
            "application {} {ended}, but who could tell how that went is lost: '{shows}' shows it",
            app.show(self.cx.machine)
        );
        Failed::new(FailKind::HostLost, text)
    }

    /// Somebody wants a checkpoint made by the coordinator here.
    pub(in crate::daemon) fn on_checkpoint_ask(&mut self, asker: HostId, ask: CheckpointAsk) {
        let state = self.cx.agreement.state();
        let is_over = ask.generation < state.epochs(ask.app).generation;
        if is_over || state.tasks_of(ask.app).next().is_none() {
            let end = CheckpointEnd {
                request: ask.request,
                app: ask.app,
                result: Err(self.cx.no_such_task(ask.app)),
            };
            return self.send_checkpoint_end(asker, end);
        }
        let key = (asker, ask.request);
        let of = (ask.app, ask.generation);
        self.ask_or_wait(of, key, Order::CheckpointAsk(ask));
    }

    /// Tells who asked what came of it.
    pub(in crate::daemon) fn send_checkpoint_end(&mut self, asker: HostId, end: CheckpointEnd) {
        if asker == self.cx.me {
            self.on_checkpoint_end(end);
        } else {
            self.cx.send_order(asker, &Order::CheckpointEnd(end));
        }
    }

    /// An application has another coordinator: it knows nothing of what the last one was asked. What
    /// was asked in an earlier life of it is over.
    pub(in crate::daemon) fn ask_checkpoints_again(&mut self, app: Tid) {
        let life = self.cx.agreement.state().epochs(app).generation;
        let is_over = |asked: &CheckpointAsked| asked.ask.generation != life && !asked.ended;
        self.end_checkpoints(app, is_over);
        let asked = self.asked_checkpoints.values();
        let asks: Vec<CheckpointAsk> = asked
            .filter(|asked| asked.ask.app == app && !asked.ended)
            .map(|asked| asked.ask)
            .collect();
        for ask in asks {
            self.send_checkpoint_ask(ask);
        }
    }

    /// How a wish of this daemon went. If its application has ended with it, who wanted that is told
    /// when the log here says so, too: what he asks of this daemon next may depend on it.
    pub(in crate::daemon) fn on_checkpoint_end(&mut self, end: CheckpointEnd) {
        let state = self.cx.agreement.state();
        if let Some(asked) = self.asked_checkpoints.get_mut(&end.request)
            && asked.ask.stop.is_some()
            && end.result.is_ok()
            && state.epochs(end.app).generation == asked.ask.generation
            && state.tasks_of(end.app).next().is_some()
        {
            let due = self.cx.now + limits::COORDINATOR_WAIT;
            let timer = Timer::CheckpointAsked(end.request);
            (asked.asked.0, asked.told) = (self.cx.now, Some(end));
            return self.cx.set_timer(due, timer);
        }
        self.answer_checkpoint(end);
    }

    fn answer_checkpoint(&mut self, end: CheckpointEnd) {
        if let Some(asked) = self.asked_checkpoints.remove(&end.request) {
            let answer = end.result.map_or_else(Answer::Failed, Answer::Checkpointed);
            self.answer_asker(asked.asker, &answer);
        }
    }

    /// An application has ended, and with it its coordinator. If it was stopped with a checkpoint,
    /// that one's daemon tells.
    pub(in crate::daemon) fn forget_checkpoints(&mut self, app: Tid) {
        if self.cx.agreement.state().recovering(app).is_none() {
            self.restarts.forget(app);
        }
        if self.cx.agreement.state().was_stopped(app) {
            self.end_checkpoints(app, |asked| asked.told.is_some());
            return self.await_end_report(app);
        }
        self.end_checkpoints(app, |_| true);
    }

    /// All of an application has ended, and well: its checkpoints go, but not at once. Who ends tasks by a
    /// signal may be about to end their daemons too, and that is no good end.
    pub(in crate::daemon) fn on_finished(&mut self, app: Tid, host: HostId) {
        if host == self.cx.me || self.cx.has_own_stores() {
            self.finished.insert(app);
            self.cx
                .set_timer(self.cx.now + limits::FINISHED_PAUSE, Timer::Finished(app));
        }
    }

    /// Some time has passed since, or the machine ends in order. Unless it was brought back meanwhile.
    pub(in crate::daemon) fn clear_finished(&mut self, app: Tid) {
        let lives = self.cx.agreement.state().tasks_of(app).next().is_some();
        if self.finished.remove(&app) && !lives {
            self.cx.emit(Output::ForgetStored(app));
            let shown = app.show(self.cx.machine);
            let text = format!("{shown} has ended well: its checkpoints are removed");
            self.cx.emit(Output::Note(text));
        }
    }

    /// The application of these wishes has ended.
    fn end_checkpoints(&mut self, app: Tid, which: impl Fn(&CheckpointAsked) -> bool) {
        let of_app = |_: &u64, asked: &mut CheckpointAsked| asked.ask.app == app && which(asked);
        let gone: Vec<_> = self.asked_checkpoints.extract_if(.., of_app).collect();
        for (_, asked) in gone {
            let result = asked.told.map(|end| end.result);
            let result = result.unwrap_or_else(|| Err(self.cx.no_such_task(app)));
            let answer = result.map_or_else(Answer::Failed, Answer::Checkpointed);
            self.answer_asker(asked.asker, &answer);
        }
    }

    /// Somebody here wants checkpoints of the application of a task to be made so. The answer says
    /// whose.
    pub(in crate::daemon) fn set_policy(
        &mut self,
        tid: Tid,
        policy: Policy,
    ) -> Result<Tid, Failed> {
        let Some(task) = self.cx.agreement.state().living_task(tid) else {
            return Err(self.cx.no_such_task(tid));
        };
        if let Some(why) = policy.refusal() {
            return Err(Failed::new(FailKind::BadRequest, why));
        }
        let app = task.app;
        self.cx.agreement.propose(Change::Policy { app, policy });
        Ok(app)
    }

    pub(in crate::daemon) fn on_policy(&mut self, app: Tid) {
        let policy = self.cx.agreement.state().epochs(app).policy;
        let (consoles, cx) = (&mut self.consoles, &mut self.cx);
        consoles.on_policy(cx, (app, policy), &Answer::Done);
        self.review_policy(app);
    }

    /// The application ended before that was agreed, or the machine keeps that of no more of them.
    pub(in crate::daemon) fn on_no_policy(&mut self, app: Tid, policy: Policy, why: Void) {
        let failed = match why {
            // Of a host that is lost, which wanted the same.
            Void::Proposer => return,
            Void::NoTask(_) => self.cx.no_such_task(app),
            why => Failed::new(FailKind::Refused, why.to_string()),
        };
        let (consoles, cx) = (&mut self.consoles, &mut self.cx);
        consoles.on_policy(cx, (app, policy), &Answer::Failed(failed));
    }

    /// Something changed that decides when this daemon makes the next checkpoint by itself: only that
    /// of the host whose coordinator it is does, and counts from the last one, or from now.
    pub(in crate::daemon) fn review_policy(&mut self, app: Tid) {
        let state = self.cx.agreement.state();
        let epochs = state.epochs(app);
        let cost = match epochs.cost_us {
            0 => limits::CHECKPOINT_COST,
            micros => Duration::from_micros(micros),
        };
        let every = epochs.policy.interval(cost);
        let mine = state.coordinating_host(app) == Some(self.cx.me);
        self.policies.remove(&app);
        if let Some(every) = every
            && mine
            && !state.is_cut(app)
            && state.reviving(app).is_none()
        {
            let due = self.cx.now + every;
            self.policies.insert(app, due);
            self.cx.set_timer(due, Timer::Policy(app));
        }
    }

    /// It may be time for one. Not while another is made, with whose end the time is counted anew, nor
    /// while the last one is not over: wishes would queue up behind each other for ever.
    pub(in crate::daemon) fn on_policy_due(&mut self, app: Tid) {
        if self.policies.get(&app).is_none_or(|due| *due > self.cx.now) {
            return;
        }
        self.policies.remove(&app);
        let mut asked = self.asked_checkpoints.values();
        let is_wanted = asked.any(|asked| asked.asker == MoveAsker::Policy(app));
        if is_wanted || self.cx.agreement.state().is_cut(app) {
            return;
        }
        // Its master may have ended: any task of it will do.
        let any = self.cx.agreement.state().tasks_of(app).next();
        if let Some(tid) = any
            && let Err(failed) = self.ask_checkpoint(MoveAsker::Policy(app), tid, None)
        {
            self.on_policy_answer(app, &Answer::Failed(failed));
        }
    }

    /// One that was made by itself, or was not. The next one is made all the same.
    pub(in crate::daemon) fn on_policy_answer(&mut self, app: Tid, answer: &Answer) {
        let shown = app.show(self.cx.machine);
        let text = match answer {
            Answer::Checkpointed(report) => {
                if !self.policies.contains_key(&app) {
                    self.review_policy(app);
                }
                let next = self.policies.get(&app).map(|due| due.since(self.cx.now));
                format!(
                    "checkpoint g{}-e{} of {shown}: {} tasks, {:.1} MB in {:.1} ms; they stood still \
                     for {:.1} ms; the next one in {:.0}s",
                    report.generation,
                    report.epoch,
                    report.tasks,
                    report.bytes as f64 / 1e6,
                    report.total_us as f64 / 1e3,
                    report.freeze_us as f64 / 1e3,
                    next.unwrap_or_default().as_secs_f64(),
                )
            }
            Answer::Failed(failed) => {
                if !self.policies.contains_key(&app) {
                    self.review_policy(app);
                }
                format!("no checkpoint of {shown} was made: {failed}")
            }
            _ => return,
        };
        self.cx.emit(Output::Note(text));
    }
}
