//! Applications that go back to their last checkpoint by themselves, when a host is lost, or a task is
//! killed.
//!
//! What that means is in the log ([`crate::agreed`]): its tasks have ended there, and their processes
//! are killed here. One daemon, of the lowest host, then brings the application back as if a person
//! had asked for it (`revive`). If it cannot - there is no room, or the checkpoint is not on its disk -
//! another one tries, after a moment. The console stays, and is told what happens.

use super::{Daemon, asked::MoveAsker, context::Timer, exit::SIGKILL, revive::Restart};
use crate::{Lost, Output, Reviving, Time};
use std::time::Duration;
use vm_wire::{Tid, agreed::ExitStatus, console::Answer, limits};

/// When an application was last brought back.
#[derive(Debug)]
pub(super) struct Again {
    pub at: Time,
    /// It was not a person who wanted that.
    pub by_itself: bool,
}

impl Daemon {
    /// An application goes back, or could not be brought back and is tried again.
    pub(super) fn on_rolled_back(&mut self, app: Tid) {
        self.forget_spawns_of(app);
        self.review_coordinator(app);
        let recovering = self.cx.agreement.state().recovering(app);
        let Some((lost, failures)) = recovering.map(|it| (it.lost, it.failures)) else {
            return;
        };
        let is_new = !self.recoveries.contains_key(&app);
        if is_new {
            self.recoveries.insert(app, self.cx.now);
            let (lost, shown) = (self.what_is_lost(lost), app.show(self.cx.machine));
            let text = format!("{lost} is lost: {shown} goes back to its last checkpoint");
            self.tell_run(app, &text);
        }
        match failures {
            0 => self.review_recovery(app),
            _ => self
                .cx
                .set_timer(self.cx.now + limits::RECOVERY_PAUSE, Timer::Recover(app)),
        }
    }

    /// Something changed that decides who brings applications back.
    pub(super) fn review_recoveries(&mut self) {
        for app in self
            .cx
            .agreement
            .state()
            .all_recovering()
            .collect::<Vec<_>>()
        {
            self.review_recovery(app);
        }
    }

    /// Brings an application back, if that is for this daemon to do.
    pub(super) fn review_recovery(&mut self, app: Tid) {
        let state = self.cx.agreement.state();
        let mine = state.recovering_host(app) == Some(self.cx.me);
        if !mine || self.is_restart_asked(app) || state.reviving(app).is_some() || state.halted() {
            return;
        }
        let generation = state.epochs(app).generation;
        let failures = state.recovering(app).map_or(0, |it| it.failures);
        let asker = MoveAsker::Recovery(app, generation);
        if let Err(failed) = self.ask_restart(asker, Restart::of(app, failures)) {
            self.abandon(app, generation, &failed.text);
        }
    }

    /// What came of it.
    pub(super) fn on_recovery_answer(&mut self, app: Tid, generation: u32, answer: &Answer) {
        if let Answer::Failed(failed) = answer {
            self.abandon(app, generation, &failed.text);
        }
    }

    /// Somebody ends an application that goes back.
    pub(super) fn end_recovery(&mut self, app: Tid, why: &str) {
        let generation = self.cx.agreement.state().epochs(app).generation;
        self.propose_abandon(app, generation, true, why);
    }

    /// Somebody ended an application that was just being brought back, as the log knew before the daemon
    /// did that was asked: it ends nevertheless, also if it is back. What a person has restarted since
    /// is not meant.
    pub(super) fn on_not_abandoned(&mut self, app: Tid) {
        const WHY: &str = "it was ended by a signal";
        let state = self.cx.agreement.state();
        let master = state.living_task(app).map(|master| master.host);
        let is_back = self.again.get(&app).is_some_and(|again| again.by_itself);
        if state.recovering(app).is_some() {
            if state.recovering_host(app) == Some(self.cx.me) {
                self.end_recovery(app, WHY);
            }
        } else if is_back && master == Some(self.cx.me) {
            self.signal_process(app, SIGKILL);
        }
    }

    /// An application is back.
    pub(super) fn on_recovered(&mut self, app: Tid, how: Option<&Reviving>) {
        let Some(began) = self.recoveries.remove(&app) else {
            return;
        };
        let Some((reviving, lost)) = how.and_then(|how| Some((how, how.lost?))) else {
            return;
        };
        let hosts = self.places_of(app).into_keys();
        let names: Vec<String> = hosts.map(|host| self.cx.host_name(host)).collect();
        // What had been lost before with another host is not lost once more.
        let ran = self.again.get(&app).map(|again| began.since(again.at));
        let age = Duration::from_millis(reviving.age_ms);
        let lost_work = ran.map_or(age, |ran| ran.min(age));
        let text = format!(
            "{} runs again on {} after {:.1?}; of its work {:.1} s were lost with {}",
            app.show(self.cx.machine),
            names.join(", "),
            self.cx.now.since(began),
            lost_work.as_secs_f64(),
            self.what_is_lost(lost),
        );
        if reviving.asker.0 == self.cx.me {
            self.cx.emit(Output::Note(text.clone()));
        }
        self.tell_run(app, &text);
    }

    fn what_is_lost(&self, lost: Lost) -> String {
        match lost {
            Lost::Host(host) => format!("host '{}'", self.cx.host_name(host)),
            Lost::Task(tid) => format!("task {}", tid.show(self.cx.machine)),
        }
    }

    /// An application that went back cannot be brought back.
    pub(super) fn on_given_up(&mut self, app: Tid, why: &str) {
        self.recoveries.remove(&app);
        let shown = app.show(self.cx.machine);
        let text =
            format!("{shown} cannot go on: {why}; 'vm checkpoints' shows what is in the store");
        self.cx.emit(Output::Note(text.clone()));
        self.tell_run(app, &text);
        self.end_run(app, ExitStatus::RolledBack);
        self.forget_application(app);
    }

    /// Tells the console of an application, if that is here.
    pub(super) fn tell_run(&mut self, app: Tid, text: &str) {
        if self.runs.contains_key(&app) {
            let line = format!("vm: {text}\n").into_bytes();
            self.show(app, app, 2, line, 0);
        }
    }
}
