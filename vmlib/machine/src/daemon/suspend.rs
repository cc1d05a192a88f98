//! Applications that are suspended, and resumed.
//!
//! What that means is in the log ([`crate::agreed`]). To suspend is to make a checkpoint with which the
//! application ends (`checkpoint/requests.rs`); to resume is to restart it from exactly that one (`revive`). What
//! is here: who may want it, who does it when nobody asks, when the time for it is over, and what the
//! console of the application is told, which waits meanwhile.

use super::{Daemon, asked::MoveAsker, context::Timer, revive::Restart};
use crate::{Output, Time, Unsuspended};
use vm_wire::{
    HostId, Tid,
    agreed::{Change, ExitStatus},
    checkpoint::{Stop, Suspend},
    console::{Answer, SuspendedRow},
    limits,
    task::{FailKind, Failed},
};

/// A checkpoint, as it is called in the store.
fn shown((generation, epoch): (u32, u32)) -> String {
    format!("g{generation}-e{epoch}")
}

impl Daemon {
    /// Somebody here wants an application suspended. The answer comes when it has ended, or runs on.
    pub(super) fn ask_suspend(
        &mut self,
        asker: MoveAsker,
        app: Tid,
        for_ms: u64,
    ) -> Result<(), Failed> {
        let state = self.cx.agreement.state();
        let name = app.show(self.cx.machine);
        if state.suspended(app).is_some() {
            let text =
                format!("application {name} is suspended: 'vm resume {name}' brings it back");
            return Err(Failed::new(FailKind::Refused, text));
        }
        if let Some(task) = state.living_task(app).filter(|task| task.app != app) {
            let whole = task.app.show(self.cx.machine);
            let refuse = |text: String| Err(Failed::new(FailKind::Refused, text));
            if matches!(asker, MoveAsker::Task { .. }) {
                return refuse(format!(
                    "{name} is a task of application {whole}: a task suspends whole applications \
                     only; suspend that one, or have a person suspend the task (vm suspend {name})"
                ));
            }
            if for_ms != 0 {
                return refuse(format!(
                    "{name} is a task of application {whole}: a single task is suspended until it is \
                     resumed; ask without a time (--for)"
                ));
            }
            return self.ask_suspend_task(asker, app);
        }
        // Its master may have ended: any task of it will do.
        let Some(any) = state.tasks_of(app).next() else {
            return Err(self.cx.no_such_task(app));
        };
        if u128::from(for_ms) > limits::SUSPENDED_FOR_MAX.as_millis() {
            let days = limits::SUSPENDED_FOR_MAX.as_secs() / 86_400;
            let text =
                format!("an application is suspended for at most {days} days, or without end");
            return Err(Failed::new(FailKind::BadRequest, text));
        }
        let suspend = Suspend {
            asked_ms: self.cx.clock_ms(),
            for_ms,
            drained: HostId::NONE,
        };
        self.suspend(asker, any, suspend)
    }

    /// The application of a task that cannot leave this host, which drains, is suspended.
    pub(super) fn suspend_drained(&mut self, asker: MoveAsker, tid: Tid) -> Result<(), Failed> {
        let how = Suspend {
            asked_ms: self.cx.clock_ms(),
            for_ms: self.cx.config.suspended_for_ms,
            drained: self.cx.me,
        };
        self.suspend(asker, tid, how)
    }

    fn suspend(&mut self, asker: MoveAsker, any: Tid, how: Suspend) -> Result<(), Failed> {
        if self.cx.agreement.state().suspends_too_many() {
            let text = format!(
                "{} applications are suspended in this machine, more are not possible: resume or end \
                 one (vm ps)",
                limits::APPS_SUSPENDED_MAX
            );
            return Err(Failed::new(FailKind::Limit, text));
        }
        self.ask_checkpoint(asker, any, Some(Stop::Suspend(how)))
    }

    /// Somebody here wants an application resumed. The answer comes when it runs, or does not.
    pub(super) fn ask_resume(
        &mut self,
        asker: MoveAsker,
        app: Tid,
        host: Option<&str>,
    ) -> Result<(), Failed> {
        let state = self.cx.agreement.state();
        let name = app.show(self.cx.machine);
        let by_task = matches!(asker, MoveAsker::Task { .. });
        if !by_task && state.living_task(app).is_some_and(|task| task.suspended) {
            return self.ask_resume_task(asker, app, host);
        }
        if host.is_some() {
            let text = format!(
                "{name} is no single task that is suspended, so no host is chosen for it ('vm ps' shows \
                 what is suspended)"
            );
            return Err(Failed::new(FailKind::Refused, text));
        }
        let Some(suspension) = state.suspended(app) else {
            let text = match state.living_task(app) {
                Some(_) => format!("{name} is not suspended: it runs"),
                None => format!(
                    "application {name} is not suspended; 'vm checkpoints' shows what can be restarted"
                ),
            };
            return Err(Failed::new(FailKind::Refused, text));
        };
        if state.reviving(app).is_some() {
            let text = format!("application {name} is just being resumed");
            return Err(Failed::new(FailKind::Refused, text));
        }
        let wish = Restart::suspended(app, suspension.from);
        self.ask_restart(asker, wish)
    }

    /// The applications that are suspended, as people see them.
    pub(super) fn suspended_rows(&self) -> Vec<SuspendedRow> {
        let state = self.cx.agreement.state();
        let rows = state.all_suspended().map(|(app, it)| SuspendedRow {
            app,
            program: it.program.to_string(),
            tasks: it.tasks,
            from: it.from,
            since_ms: it.how.asked_ms,
            until_ms: it.until_ms().unwrap_or(0),
            drained: (it.how.drained != HostId::NONE).then(|| self.cx.host_name(it.how.drained)),
            resuming: state.reviving(app).is_some(),
        });
        rows.collect()
    }

    /// An application was suspended.
    pub(super) fn on_suspended(&mut self, app: Tid) {
        self.forget_spawns_of(app);
        self.await_end_report(app);
        let Some(it) = self.cx.agreement.state().suspended(app) else {
            // It runs again already.
            return;
        };
        let name = app.show(self.cx.machine);
        let saved = shown(it.from);
        let text = match it.how.drained {
            HostId::NONE => format!(
                "{name} is suspended with checkpoint {saved}; 'vm resume {name}' brings it back"
            ),
            drained => format!(
                "{name} is suspended with checkpoint {saved}, because host '{}' drains; it is \
                 resumed when there is room, or by 'vm resume {name}'",
                self.cx.host_name(drained)
            ),
        };
        if it.how.drained == self.cx.me {
            self.cx.emit(Output::Note(text.clone()));
        }
        self.tell_run(app, &text);
        self.review_suspension(app);
    }

    /// An application that is suspended could not be resumed.
    pub(super) fn on_not_resumed(&mut self, app: Tid, why: &str) {
        let Some(it) = self.cx.agreement.state().suspended(app) else {
            return;
        };
        if it.failures == limits::RECOVERIES_MAX {
            let name = app.show(self.cx.machine);
            let text = format!("{name} stays suspended: {why}; try 'vm resume {name}'");
            self.tell_run(app, &text);
        }
        self.cx
            .set_timer(self.cx.now + limits::RECOVERY_PAUSE, Timer::Suspension(app));
    }

    /// An application is suspended no more.
    pub(super) fn on_unsuspended(&mut self, app: Tid, why: Unsuspended) {
        self.room_may_be();
        let name = app.show(self.cx.machine);
        let over = format!(
            "the time for which {name} was suspended is over; its checkpoint is in the store: \
             'vm restart {name}' brings it back"
        );
        if matches!(why, Unsuspended::Over) {
            self.cx.emit(Output::Note(over.clone()));
        }
        if !self.runs.contains_key(&app) {
            return;
        }
        let text = match why {
            Unsuspended::Resumed if self.cx.agreement.state().console_of(app) == self.cx.me => {
                let hosts = self.places_of(app).into_keys();
                let names: Vec<String> = hosts.map(|host| self.cx.host_name(host)).collect();
                let text = format!("{name} is resumed on {}", names.join(", "));
                return self.tell_run(app, &text);
            }
            Unsuspended::Resumed => format!("{name} goes on at another console"),
            Unsuspended::Over => over,
            Unsuspended::Ended => format!(
                "{name} is suspended no more; its checkpoint is in the store: 'vm restart {name}' \
                 brings it back"
            ),
        };
        self.tell_run(app, &text);
        self.end_run(app, ExitStatus::Suspended);
    }

    /// Something changed that decides who looks after the applications that are suspended.
    pub(super) fn review_suspensions(&mut self) {
        let suspended = self.cx.agreement.state().all_suspended();
        for app in suspended.map(|(app, _)| app).collect::<Vec<_>>() {
            self.review_suspension(app);
        }
    }

    /// There may be room for an application that is suspended: it is looked whether there is, but not
    /// for each task that ends.
    pub(super) fn room_may_be(&mut self) {
        let state = self.cx.agreement.state();
        if state.all_suspended().next().is_none() {
            return;
        }
        match self.room_looked {
            Some(looked) if self.cx.now < looked + limits::RESUME_LOOK => {
                self.cx.set_timer(looked + limits::RESUME_LOOK, Timer::Room);
            }
            _ => {
                self.room_looked = Some(self.cx.now);
                self.review_suspensions();
            }
        }
    }

    /// Resumes an application, or ends its suspension, if that is for this daemon to do, and now.
    pub(super) fn review_suspension(&mut self, app: Tid) {
        let state = self.cx.agreement.state();
        let mine = state.suspension_host(app) == Some(self.cx.me);
        let Some(it) = state.suspended(app).filter(|_| mine && !state.halted()) else {
            return;
        };
        let (from, generation) = (it.from, it.generation);
        if let Some(until) = it.until_ms() {
            if until > self.cx.clock_ms() {
                let since_start = until.saturating_sub(self.cx.config.clock_ms);
                let due = Time(since_start.saturating_mul(1_000));
                self.cx.set_timer(due, Timer::Suspension(app));
            } else if state.reviving(app).is_none() {
                let over = true;
                self.cx
                    .agreement
                    .propose(Change::Unsuspend { app, from, over });
                // If it was lost, or void.
                return self
                    .cx
                    .set_timer(self.cx.now + limits::REQUEST_RETRY, Timer::Suspension(app));
            }
        }
        if !self.resumes_now(app) {
            return;
        }
        let asker = MoveAsker::Resume(app, generation);
        if let Err(failed) = self.ask_restart(asker, Restart::suspended(app, from)) {
            self.abandon(app, generation, &failed.text);
        }
    }

    /// What came of a resumption that nobody asked for.
    pub(super) fn on_resume_answer(&mut self, app: Tid, generation: u32, answer: &Answer) {
        let name = app.show(self.cx.machine);
        let text = match answer {
            Answer::Failed(failed) => {
                self.abandon(app, generation, &failed.text);
                format!("{name} cannot be resumed: {failed}")
            }
            _ => format!("{name} is resumed"),
        };
        self.cx.emit(Output::Note(text));
        self.room_may_be();
    }

    /// Somebody ended an application that was just being resumed, as the log knew before the daemon
    /// did that was asked: it ends nevertheless.
    pub(super) fn on_not_unsuspended(&mut self, app: Tid) {
        let state = self.cx.agreement.state();
        let resumes = state.suspended(app).is_some() && state.reviving(app).is_some();
        if resumes && state.suspension_host(app) == Some(self.cx.me) {
            self.end_suspension(app, "it was ended by a signal");
        }
    }

    /// Somebody ends an application that is suspended.
    pub(super) fn end_suspension(&mut self, app: Tid, why: &str) {
        let state = self.cx.agreement.state();
        if state.reviving(app).is_some() {
            let generation = state.epochs(app).generation;
            self.propose_abandon(app, generation, true, why);
        } else if let Some(from) = state.suspended(app).map(|it| it.from) {
            let over = false;
            self.cx
                .agreement
                .propose(Change::Unsuspend { app, from, over });
        }
    }

    /// Whether this daemon is to resume an application now: one at a time.
    fn resumes_now(&self, app: Tid) -> bool {
        let state = self.cx.agreement.state();
        state.resumes_by_itself(app) && !self.is_restart_asked(app) && !self.resumes_one()
    }
}
