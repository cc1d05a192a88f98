//! When this daemon makes checkpoints without a request, as the policies of applications say.
//!
//! Only the daemon of the host that an application's coordinator is on does so.

use crate::{
    Output, Time,
    daemon::context::{Context, Timer},
};
use std::{collections::BTreeMap, time::Duration};
use vm_wire::{
    Tid,
    agreed::Change,
    checkpoint::{CheckpointReport, Policy},
    limits,
    task::{FailKind, Failed},
};

/// See the module.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Policies {
    /// When the next checkpoint of an application is due.
    due: BTreeMap<Tid, Time>,
}

impl Policies {
    /// Proposes a policy for the application of a task: the application.
    pub fn propose(cx: &mut Context, tid: Tid, policy: Policy) -> Result<Tid, Failed> {
        let Some(task) = cx.agreement.state().living_task(tid) else {
            return Err(cx.no_such_task(tid));
        };
        if let Some(why) = policy.refusal() {
            return Err(Failed::new(FailKind::BadRequest, why));
        }
        let app = task.app;
        cx.agreement.propose(Change::Policy { app, policy });
        Ok(app)
    }

    /// Sets the time of the next checkpoint anew, counted from now: a fact has changed that decides it.
    pub fn review(&mut self, cx: &mut Context, app: Tid) {
        let state = cx.agreement.state();
        let epochs = state.epochs(app);
        let cost = match epochs.cost_us {
            0 => limits::CHECKPOINT_COST,
            micros => Duration::from_micros(micros),
        };
        let every = epochs.policy.interval(cost);
        let mine = state.coordinating_host(app) == Some(cx.me);
        self.due.remove(&app);
        if let Some(every) = every
            && mine
            && !state.is_cut(app)
            && state.reviving(app).is_none()
        {
            let due = cx.now + every;
            self.due.insert(app, due);
            cx.set_timer(due, Timer::Policy(app));
        }
    }

    /// Whether a checkpoint of an application is due. If so, the time of the next one is not set yet.
    pub fn take_due(&mut self, now: Time, app: Tid) -> bool {
        let is_due = self.due.get(&app).is_some_and(|due| *due <= now);
        if is_due {
            self.due.remove(&app);
        }
        is_due
    }

    /// Notes how a checkpoint went that a policy had wanted. The next one is made in any case.
    pub fn report(
        &mut self,
        cx: &mut Context,
        app: Tid,
        result: Result<&CheckpointReport, &Failed>,
    ) {
        if !self.due.contains_key(&app) {
            self.review(cx, app);
        }
        let shown = app.show(cx.machine);
        let text = match result {
            Ok(report) => {
                let next = self.due.get(&app).map(|due| due.since(cx.now));
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
            Err(failed) => format!("no checkpoint of {shown} was made: {failed}"),
        };
        cx.emit(Output::Note(text));
    }
}
