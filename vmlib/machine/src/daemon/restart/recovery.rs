//! Recovery: an application restarts from its last checkpoint without a request, after a host was
//! lost or a task was killed.
//!
//! The log says which applications recover ([`crate::agreed`]). Their tasks have ended in the log,
//! and each daemon kills their processes on its host. The daemon of the lowest host then restarts
//! the application as if a user had requested it (`request`). If that daemon cannot (there is no
//! room, or the checkpoint is not on its disk), another daemon tries after a pause. The console of
//! the application stays attached, and shows the progress.

use super::table::{Restart, Restarts};
use crate::{
    Lost, Output, Reviving,
    daemon::{
        context::{Context, Timer},
        effect::Effect,
        requester::Requester,
        signal_numbers::SIGKILL,
    },
};
use std::time::Duration;
use vm_wire::{Tid, agreed::ExitStatus, console::Answer, limits};

impl Restarts {
    /// An application is rolled back for its recovery, or its recovery failed and is tried again.
    pub fn on_rolled_back(&mut self, cx: &mut Context, app: Tid) {
        cx.effect(Effect::ForgetSpawns(app));
        cx.effect(Effect::ReviewCoordinator(app));
        let recovering = cx.agreement.state().recovering(app);
        let Some((lost, failures)) = recovering.map(|it| (it.lost, it.failures)) else {
            return;
        };
        let is_new = !self.recoveries.contains_key(&app);
        if is_new {
            self.recoveries.insert(app, cx.now);
            let (lost, shown) = (name_of(cx, lost), app.show(cx.machine));
            let text = format!("{lost} is lost: {shown} restarts from its last checkpoint");
            cx.effect(Effect::TellRun(app, text));
        }
        match failures {
            0 => self.review_recovery(cx, app),
            _ => cx.set_timer(cx.now + limits::RECOVERY_PAUSE, Timer::Recover(app)),
        }
    }

    /// Reviews all recoveries, after a change that may give one of them to another host.
    pub fn review_recoveries(&mut self, cx: &mut Context) {
        for app in cx.agreement.state().all_recovering().collect::<Vec<_>>() {
            self.review_recovery(cx, app);
        }
    }

    /// Restarts an application, if this daemon has to.
    pub fn review_recovery(&mut self, cx: &mut Context, app: Tid) {
        let state = cx.agreement.state();
        let mine = state.recovering_host(app) == Some(cx.me);
        if !mine || self.is_requested(app) || state.reviving(app).is_some() || state.halted() {
            return;
        }
        let generation = state.epochs(app).generation;
        let failures = state.recovering(app).map_or(0, |it| it.failures);
        let requester = Requester::Recovery(app, generation);
        if let Err(failed) = self.request(cx, requester, Restart::of(app, failures)) {
            self.abandon(cx, app, generation, &failed.text);
        }
    }

    /// The restart of a recovery has its result.
    pub fn on_recovery_answer(
        &mut self,
        cx: &mut Context,
        app: Tid,
        generation: u32,
        answer: &Answer,
    ) {
        if let Answer::Failed(failed) = answer {
            self.abandon(cx, app, generation, &failed.text);
        }
    }

    /// A user ends an application that recovers.
    pub fn end_recovery(&mut self, cx: &mut Context, app: Tid, why: &str) {
        let generation = cx.agreement.state().epochs(app).generation;
        self.propose_abandon(cx, app, generation, true, why);
    }

    /// A user ended an application during its recovery, and the log had completed or failed that
    /// recovery before this change: the application ends nevertheless, even if it runs again. An
    /// application that a user has restarted since then does not end.
    pub fn on_not_abandoned(&mut self, cx: &mut Context, app: Tid) {
        const WHY: &str = "it was ended by a signal";
        let state = cx.agreement.state();
        let master = state.living_task(app).map(|master| master.host);
        let is_back = self.last.get(&app).is_some_and(|again| again.by_itself);
        if state.recovering(app).is_some() {
            if state.recovering_host(app) == Some(cx.me) {
                self.end_recovery(cx, app, WHY);
            }
        } else if is_back && master == Some(cx.me) {
            cx.effect(Effect::SignalProcess(app, SIGKILL));
        }
    }

    /// The recovery of an application has succeeded.
    pub fn on_recovered(&mut self, cx: &mut Context, app: Tid, how: Option<&Reviving>) {
        let Some(began) = self.recoveries.remove(&app) else {
            return;
        };
        let Some((reviving, lost)) = how.and_then(|how| Some((how, how.lost?))) else {
            return;
        };
        let hosts = cx.places_of(app).into_keys();
        let names: Vec<String> = hosts.map(|host| cx.host_name(host)).collect();
        // Work that was lost with an earlier host is not counted twice.
        let ran = self.last.get(&app).map(|again| began.since(again.at));
        let age = Duration::from_millis(reviving.age_ms);
        let lost_work = ran.map_or(age, |ran| ran.min(age));
        let text = format!(
            "{} runs again on {} after {:.1?}; of its work {:.1} s were lost with {}",
            app.show(cx.machine),
            names.join(", "),
            cx.now.since(began),
            lost_work.as_secs_f64(),
            name_of(cx, lost),
        );
        if reviving.requester.host == cx.me {
            cx.emit(Output::Note(text.clone()));
        }
        cx.effect(Effect::TellRun(app, text));
    }

    /// An application cannot be recovered any more.
    pub fn on_given_up(&mut self, cx: &mut Context, app: Tid, why: &str) {
        self.recoveries.remove(&app);
        let shown = app.show(cx.machine);
        let text = format!(
            "{shown} cannot be restarted: {why}; 'vm checkpoints' shows what is in the store"
        );
        cx.emit(Output::Note(text.clone()));
        cx.effect(Effect::TellRun(app, text));
        cx.effect(Effect::EndRun(app, ExitStatus::RolledBack));
        cx.effect(Effect::ForgetApplication(app));
    }
}

/// The lost host or task, for people.
fn name_of(cx: &Context, lost: Lost) -> String {
    match lost {
        Lost::Host(host) => format!("host '{}'", cx.host_name(host)),
        Lost::Task(tid) => format!("task {}", tid.show(cx.machine)),
    }
}
