//! Suspension and resumption of applications.
//!
//! The log says which applications are suspended ([`crate::agreed`]). A suspension is a checkpoint
//! with which the application ends (`checkpoint`). A resumption is a restart from exactly that
//! checkpoint (`restart`). This subsystem decides whether a request is possible, which host resumes
//! an application without a request, when the time of a suspension is over, and which notes the
//! console of the application shows meanwhile.

use super::{
    context::{Context, Timer},
    effect::Effect,
    requester::Requester,
    restart::Restart,
};
use crate::{Output, Time, Unsuspended};
use vm_wire::{
    HostId, Tid,
    agreed::{Change, ExitStatus},
    checkpoint::Suspend,
    console::{Answer, SuspendedRow},
    limits,
    task::{FailKind, Failed},
};

/// A request to suspend that has passed its checks.
#[derive(Debug)]
pub(super) enum ToSuspend {
    /// This single task, which stays in the machine without a process.
    Task(Tid),
    /// The application of this task, with a checkpoint.
    Application(Tid, Suspend),
}

/// A request to resume that has passed its checks.
#[derive(Debug)]
pub(super) enum ToResume {
    /// A single suspended task.
    Task,
    /// An application, by a restart.
    Application(Restart),
}

/// The suspended applications for which this daemon is responsible.
#[derive(Debug, Default)]
pub(super) struct Suspensions {
    /// When the room for suspended applications was checked last.
    room_looked: Option<Time>,
}

impl Suspensions {
    /// The log has applied that an application is suspended.
    pub fn on_suspended(&mut self, cx: &mut Context, app: Tid) {
        cx.effect(Effect::ForgetSpawns(app));
        cx.effect(Effect::AwaitEndReport(app));
        let Some(it) = cx.agreement.state().suspended(app) else {
            // The application has been resumed already.
            return;
        };
        let name = app.show(cx.machine);
        let saved = it.from;
        let text = match it.how.drained {
            HostId::NONE => format!(
                "{name} is suspended with checkpoint {saved}; 'vm resume {name}' resumes it"
            ),
            drained => format!(
                "{name} is suspended with checkpoint {saved}, because host '{}' drains; it is \
                 resumed when there is room, or by 'vm resume {name}'",
                cx.host_name(drained)
            ),
        };
        if it.how.drained == cx.me {
            cx.emit(Output::Note(text.clone()));
        }
        cx.effect(Effect::TellRun(app, text));
        cx.effect(Effect::ReviewSuspension(app));
    }

    /// A suspended application could not be resumed.
    pub fn on_not_resumed(&mut self, cx: &mut Context, app: Tid, why: &str) {
        let Some(it) = cx.agreement.state().suspended(app) else {
            return;
        };
        if it.failures == limits::RECOVERIES_MAX {
            let name = app.show(cx.machine);
            let text = format!("{name} stays suspended: {why}; try 'vm resume {name}'");
            cx.effect(Effect::TellRun(app, text));
        }
        cx.set_timer(cx.now + limits::RECOVERY_PAUSE, Timer::Suspension(app));
    }

    /// An application is not suspended any more.
    pub fn on_unsuspended(&mut self, cx: &mut Context, app: Tid, why: Unsuspended) {
        let name = app.show(cx.machine);
        let over = format!(
            "the time for which {name} was suspended is over; its checkpoint is in the store: \
             'vm restart {name}' restarts it"
        );
        if matches!(why, Unsuspended::Over) {
            cx.emit(Output::Note(over.clone()));
        }
        let text = match why {
            Unsuspended::Resumed if cx.agreement.state().console_of(app) == cx.me => {
                let hosts = cx.places_of(app).into_keys();
                let names: Vec<String> = hosts.map(|host| cx.host_name(host)).collect();
                let text = format!("{name} is resumed on {}", names.join(", "));
                return cx.effect(Effect::TellRun(app, text));
            }
            Unsuspended::Resumed => format!("{name} runs on at another console"),
            Unsuspended::Over => over,
            Unsuspended::Ended => format!(
                "{name} is suspended no more; its checkpoint is in the store: 'vm restart {name}' \
                 restarts it"
            ),
        };
        cx.effect(Effect::TellRun(app, text));
        cx.effect(Effect::EndRun(app, ExitStatus::Suspended));
    }

    /// Reviews all suspended applications, after a change that may move the responsibility to
    /// another host.
    pub fn review_all(&mut self, cx: &mut Context) {
        let suspended = cx.agreement.state().all_suspended();
        for app in suspended.map(|(app, _)| app).collect::<Vec<_>>() {
            self.review(cx, app);
        }
    }

    /// There may be room for a suspended application: reviews all, at most once per
    /// [`limits::RESUME_LOOK`].
    pub fn room_may_be(&mut self, cx: &mut Context) {
        let state = cx.agreement.state();
        if state.all_suspended().next().is_none() {
            return;
        }
        match self.room_looked {
            Some(looked) if cx.now < looked + limits::RESUME_LOOK => {
                cx.set_timer(looked + limits::RESUME_LOOK, Timer::Room);
            }
            _ => {
                self.room_looked = Some(cx.now);
                self.review_all(cx);
            }
        }
    }

    /// Resumes an application, or ends its suspension, if this daemon has to do so now.
    pub fn review(&mut self, cx: &mut Context, app: Tid) {
        let state = cx.agreement.state();
        let mine = state.suspension_host(app) == Some(cx.me);
        let Some(it) = state.suspended(app).filter(|_| mine && !state.halted()) else {
            return;
        };
        let (from, generation) = (it.from, it.generation);
        if let Some(until) = it.until_ms() {
            if until > cx.clock_ms() {
                let since_start = until.saturating_sub(cx.config.clock_ms);
                let due = Time(since_start.saturating_mul(1_000));
                cx.set_timer(due, Timer::Suspension(app));
            } else if state.reviving(app).is_none() {
                let over = true;
                cx.agreement.propose(Change::Unsuspend { app, from, over });
                // Repeats the proposal if it is lost or void.
                return cx.set_timer(cx.now + limits::REQUEST_RETRY, Timer::Suspension(app));
            }
        }
        if cx.agreement.state().resumes_by_itself(app) {
            cx.effect(Effect::Resume {
                app,
                generation,
                from,
            });
        }
    }

    /// A resumption without a user's request has its result.
    pub fn on_resume_answer(
        &mut self,
        cx: &mut Context,
        app: Tid,
        generation: u32,
        answer: &Answer,
    ) {
        let name = app.show(cx.machine);
        let text = match answer {
            Answer::Failed(failed) => {
                cx.effect(Effect::AbandonRestart {
                    app,
                    generation,
                    for_good: false,
                    why: failed.text.clone(),
                });
                format!("{name} cannot be resumed: {failed}")
            }
            _ => format!("{name} is resumed"),
        };
        cx.emit(Output::Note(text));
        cx.effect(Effect::RoomMayBe);
    }

    /// A user ended an application while it was being resumed, and the log applied the resumption
    /// first: the application ends nevertheless.
    pub fn on_not_unsuspended(&mut self, cx: &mut Context, app: Tid) {
        let state = cx.agreement.state();
        let resumes = state.suspended(app).is_some() && state.reviving(app).is_some();
        if resumes && state.suspension_host(app) == Some(cx.me) {
            self.end_suspension(cx, app, "it was ended by a signal");
        }
    }

    /// Ends a suspended application, as a user requested.
    pub fn end_suspension(&mut self, cx: &mut Context, app: Tid, why: &str) {
        let state = cx.agreement.state();
        if state.reviving(app).is_some() {
            let generation = state.epochs(app).generation;
            cx.effect(Effect::AbandonRestart {
                app,
                generation,
                for_good: true,
                why: why.to_owned(),
            });
        } else if let Some(from) = state.suspended(app).map(|it| it.from) {
            let over = false;
            cx.agreement.propose(Change::Unsuspend { app, from, over });
        }
    }
}

/// Checks a request on this host to suspend an application or a single task.
pub(super) fn check_suspend(
    cx: &Context,
    requester: Requester,
    app: Tid,
    for_ms: u64,
) -> Result<ToSuspend, Failed> {
    let state = cx.agreement.state();
    let name = app.show(cx.machine);
    if state.suspended(app).is_some() {
        let text = format!("application {name} is suspended: 'vm resume {name}' resumes it");
        return Err(Failed::new(FailKind::Refused, text));
    }
    if let Some(task) = state.living_task(app).filter(|task| task.app != app) {
        let whole = task.app.show(cx.machine);
        let refuse = |text: String| Err(Failed::new(FailKind::Refused, text));
        if matches!(requester, Requester::Task { .. }) {
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
        return Ok(ToSuspend::Task(app));
    }
    // The master may have ended, so any task of the application serves.
    let Some(any) = state.tasks_of(app).next() else {
        return Err(cx.no_such_task(app));
    };
    if u128::from(for_ms) > limits::SUSPENDED_FOR_MAX.as_millis() {
        let days = limits::SUSPENDED_FOR_MAX.as_secs() / 86_400;
        let text = format!("an application is suspended for at most {days} days, or without end");
        return Err(Failed::new(FailKind::BadRequest, text));
    }
    let suspend = Suspend {
        asked_ms: cx.clock_ms(),
        for_ms,
        drained: HostId::NONE,
    };
    check_room(cx).map(|()| ToSuspend::Application(any, suspend))
}

/// Checks the suspension of the application of a task that cannot leave this host during its drain.
pub(super) fn check_suspend_drained(cx: &Context) -> Result<Suspend, Failed> {
    let how = Suspend {
        asked_ms: cx.clock_ms(),
        for_ms: cx.config.suspended_for_ms,
        drained: cx.me,
    };
    check_room(cx).map(|()| how)
}

/// Fails if no further application can be suspended.
fn check_room(cx: &Context) -> Result<(), Failed> {
    if cx.agreement.state().suspends_too_many() {
        let text = format!(
            "{} applications are suspended in this machine, more are not possible: resume or end \
             one (vm ps)",
            limits::APPS_SUSPENDED_MAX
        );
        return Err(Failed::new(FailKind::Limit, text));
    }
    Ok(())
}

/// Checks a request on this host to resume an application or a single task.
pub(super) fn check_resume(
    cx: &Context,
    requester: Requester,
    app: Tid,
    host: Option<&str>,
) -> Result<ToResume, Failed> {
    let state = cx.agreement.state();
    let name = app.show(cx.machine);
    let by_task = matches!(requester, Requester::Task { .. });
    if !by_task && state.living_task(app).is_some_and(|task| task.suspended) {
        return Ok(ToResume::Task);
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
    Ok(ToResume::Application(Restart::suspended(
        app,
        suspension.from,
    )))
}

/// The suspended applications, as consoles show them.
pub(super) fn rows(cx: &Context) -> Vec<SuspendedRow> {
    let state = cx.agreement.state();
    let rows = state.all_suspended().map(|(app, it)| SuspendedRow {
        app,
        program: it.program.to_string(),
        tasks: it.tasks,
        from: it.from,
        since_ms: it.how.asked_ms,
        until_ms: it.until_ms().unwrap_or(0),
        drained: (it.how.drained != HostId::NONE).then(|| cx.host_name(it.how.drained)),
        resuming: state.reviving(app).is_some(),
    });
    rows.collect()
}
