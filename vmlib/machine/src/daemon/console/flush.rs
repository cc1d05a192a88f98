//! The end of a run, after the last line.
//!
//! A task that left in order is out of the machine before its process has ended and its output was
//! read to the end. So when a run's master ends, lines of tasks that ended before it may still be
//! on their way. The daemon of the console asks every host that bore tasks of the application
//! ([`FlushAsk`]). Each host replies when the processes of those that have left are gone. The reply
//! comes after their lines, as the channel between two daemons keeps its order. Then the console is
//! told ([`RunEnd`](vm_wire::console::RunEnd)).
//!
//! The other way round, the daemon of a master that moves asks the daemon of its console, which
//! replies at once (`streams`). That request bears the number of the move; a run's has none.
//!
//! Tasks that live on are not waited for, and nothing is waited for longer than
//! [`limits::FLUSH_WAIT`]: a process may live on after its task left.

use super::{
    run::{Ending, Run, RunState},
    runs::Runs,
};
use crate::{
    agreed,
    daemon::{
        context::{Context, Timer},
        local_task::LocalTask,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    limits,
    peer::{FlushAsk, Flushed, Order},
};

/// The number of the request of a run that ends.
pub(in crate::daemon) const NO_MOVE: u64 = 0;

/// Whether a process of the application is here whose task has left, or is leaving.
fn is_unfinished(tasks: &BTreeMap<Tid, LocalTask>, app: Tid) -> bool {
    let left = |task: &LocalTask| task.process && (task.exiting || task.ended);
    let mut tasks = tasks.values();
    tasks.any(|task| task.app == app && left(task))
}

impl Runs {
    /// The process of a task ended: if it is the master of a run, so does the run.
    pub fn end(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        tid: Tid,
        status: ExitStatus,
    ) {
        let Some(run) = self.runs.get_mut(&tid) else {
            return;
        };
        if !matches!(run.state, RunState::Running) {
            return;
        }
        let mut awaited = run.hosts.clone();
        let request = Order::FlushAsk(FlushAsk {
            app: tid,
            number: NO_MOVE,
        });
        awaited.retain(|host| match *host == cx.me {
            true => is_unfinished(tasks, tid),
            false => cx.agreement.state().is_present(*host) && cx.send_order(*host, &request),
        });
        run.state = RunState::Ending(Ending { status, awaited });
        cx.set_timer(cx.now + limits::FLUSH_WAIT, Timer::Flush(tid));
        report_if_flushed(cx, run);
    }

    /// No lines of tasks that left come from that host any more.
    pub fn on_last_lines(&mut self, cx: &mut Context, host: HostId, app: Tid) {
        if let Some(run) = self.runs.get_mut(&app)
            && let RunState::Ending(ending) = &mut run.state
        {
            ending.awaited.remove(&host);
            report_if_flushed(cx, run);
        }
    }

    /// A host is lost: no lines come from there.
    pub fn on_host_lost(&mut self, cx: &mut Context, host: HostId) {
        for app in self.masters().collect::<Vec<_>>() {
            self.on_last_lines(cx, host, app);
        }
    }

    /// The last lines have been waited for long enough.
    pub fn on_flush_due(&mut self, cx: &mut Context, app: Tid) {
        if let Some(run) = self.runs.get_mut(&app)
            && let RunState::Ending(ending) = &mut run.state
        {
            ending.awaited.clear();
            report_if_flushed(cx, run);
        }
    }

    /// This daemon ends: the consoles of runs are told what has become of their runs. A console
    /// whose run is lost with a daemon that fails sees the connection close.
    pub fn end_all(&mut self, cx: &mut Context, fails: bool) {
        for app in self.masters().collect::<Vec<_>>() {
            let ended = match self.runs.get(&app).map(|run| &run.state) {
                None | Some(RunState::Reported) => continue,
                Some(RunState::Ending(ending)) => Some(ending.status),
                Some(RunState::Running) => None,
            };
            let state = cx.agreement.state();
            let elsewhere = |task: &agreed::Task| task.host != cx.me;
            // A machine that ends kills its tasks without a word in the log.
            let goes_on = !state.halted()
                && (state.living_task(app).is_some_and(elsewhere)
                    || (state.recovering(app).is_some() && !cx.is_alone()));
            let status = match ended {
                Some(status) => Some(status),
                None if state.suspended(app).is_some() => {
                    let name = format!("{}-{}", app.machine(), app.show(app.machine()));
                    let text = format!(
                        "this host leaves the machine while {name} is suspended; its checkpoint is in \
                         the store: the same command with --resume-or-start, or 'vm restart {name}', \
                         brings it back"
                    );
                    self.tell(cx, app, &text);
                    Some(ExitStatus::Suspended)
                }
                None if fails => continue,
                None if goes_on => None,
                None => Some(ExitStatus::HostLost),
            };
            if let Some(run) = self.runs.get_mut(&app) {
                run.report_end(cx, status);
            }
        }
    }
}

fn report_if_flushed(cx: &mut Context, run: &mut Run) {
    if let RunState::Ending(ending) = &run.state
        && ending.awaited.is_empty()
    {
        let status = Some(ending.status);
        run.report_end(cx, status);
    }
}

/// The hosts that wait for the last lines of an application's tasks here.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    waiting: BTreeMap<Tid, BTreeSet<HostId>>,
}

impl Flushes {
    /// Another daemon has a run that ends, or a master that moves and whose console is here: the
    /// latter waits for no process.
    pub fn on_ask(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        host: HostId,
        ask: FlushAsk,
    ) {
        if ask.number == NO_MOVE && is_unfinished(tasks, ask.app) {
            self.waiting.entry(ask.app).or_default().insert(host);
        } else {
            tell_flushed(cx, host, ask.app, ask.number);
        }
    }

    /// A process of the application has ended here; whether it was the last one that `runs` or
    /// another host waits for.
    pub fn on_process_ended(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        app: Tid,
        is_run_here: bool,
    ) -> bool {
        let awaited = self.waiting.contains_key(&app) || is_run_here;
        if !awaited || is_unfinished(tasks, app) {
            return false;
        }
        for host in self.waiting.remove(&app).unwrap_or_default() {
            tell_flushed(cx, host, app, NO_MOVE);
        }
        true
    }

    /// A host is lost: no lines are wanted there.
    pub fn on_host_lost(&mut self, host: HostId) {
        self.waiting.retain(|_, hosts| {
            hosts.remove(&host);
            !hosts.is_empty()
        });
    }
}

fn tell_flushed(cx: &mut Context, host: HostId, app: Tid, number: u64) {
    cx.send_order(host, &Order::Flushed(Flushed { app, number }));
}
