//! The end of a run, after the last line.
//!
//! A task that left in order is out of the machine before its process has ended and its output was
//! read to the end. When a run's master ends, lines of tasks that ended before it may therefore
//! still be under way. The daemon of the console asks every host that has had tasks of the
//! application ([`FlushAsk`]). Each host replies when the processes of the tasks that have left are
//! gone. The reply arrives after the lines of these processes, because the channel between two
//! daemons keeps its order. Then the daemon notifies the console
//! ([`RunEnd`](vm_wire::console::RunEnd)).
//!
//! In the other direction, the source of a move of a master asks the daemon of the console, which
//! replies at once (`streams`). That request has the number of the move; the request of a run has
//! [`NO_MOVE`].
//!
//! The daemon does not wait for tasks that live on. The limit of its wait is
//! [`limits::FLUSH_WAIT`], because a process may live on after its task has left.

use super::{
    run::{Ending, Run, RunState},
    runs::Runs,
};
use crate::{
    agreed,
    daemon::{
        context::{Context, Timer},
        local_task::LocalTask,
        task_life::End,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    limits,
    peer::{FlushAsk, Flushed, Order},
};

/// The number in the request of a run that ends.
pub(in crate::daemon) const NO_MOVE: u64 = 0;

/// Whether a process on this host belongs to a task of the application that has left, or is
/// leaving.
fn is_unfinished(tasks: &BTreeMap<Tid, LocalTask>, app: Tid) -> bool {
    let left = |task: &LocalTask| task.process.exists() && task.end != End::None;
    let mut tasks = tasks.values();
    tasks.any(|task| task.app == app && left(task))
}

impl Runs {
    /// The process of a task has ended. If it is the master of a run, the run ends.
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

    /// A host sends no more lines of the application's tasks that have left.
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

    /// The time limit for the last lines is over.
    pub fn on_flush_due(&mut self, cx: &mut Context, app: Tid) {
        if let Some(run) = self.runs.get_mut(&app)
            && let RunState::Ending(ending) = &mut run.state
        {
            ending.awaited.clear();
            report_if_flushed(cx, run);
        }
    }

    /// This daemon ends: notifies the consoles of the results of their runs. If the daemon fails, a
    /// console whose run is lost sees its connection close instead.
    pub fn end_all(&mut self, cx: &mut Context, fails: bool) {
        for app in self.masters().collect::<Vec<_>>() {
            let ended = match self.runs.get(&app).map(|run| &run.state) {
                None | Some(RunState::Reported) => continue,
                Some(RunState::Ending(ending)) => Some(ending.status),
                Some(RunState::Running) => None,
            };
            let state = cx.agreement.state();
            let elsewhere = |task: &agreed::Task| task.host != cx.me;
            // A machine that halts kills its tasks without entries in the log.
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
                         resumes it"
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
    /// Another daemon asks for the last lines of a run that ends, or of a master that moves from
    /// there to another host. The reply for a move waits for no process.
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

    /// A process of the application has ended here. Returns whether it was the last one that a
    /// local run or another host waits for.
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

    /// A host is lost: sends no reply there.
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
