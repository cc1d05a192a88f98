//! The end of a run, after the last line.
//!
//! A task that left in order is out of the machine before its process has ended and its output was
//! read to the end. So when a run's master ends, lines of tasks that ended before it may still be
//! on their way. The daemon of the console asks every host that bore tasks of the application
//! ([`FlushAsk`]); each answers when the processes of those that have left are gone. The answer
//! comes after their lines, as the channel between two daemons keeps its order. Then the console is
//! told ([`RunEnd`]).
//!
//! The other way round, the daemon of a master that moves asks that of its console, which answers at once
//! (`streams`). That question bears the number of the move; a run's has none.
//!
//! Tasks that live on are not waited for, and nothing is waited for longer than
//! [`limits::FLUSH_WAIT`]: a process may live on after it left.

use crate::daemon::{Daemon, LocalTask, context::Timer, departure::is_alone};
use crate::{Output, agreed};
use std::collections::BTreeSet;
use vm_wire::{
    HostId, Message, Tid,
    agreed::ExitStatus,
    console::RunEnd,
    limits,
    peer::{FlushAsk, Flushed, Order},
};

/// The number of the question of a run that ends.
const NO_MOVE: u64 = 0;

/// A run whose master has ended.
#[derive(Debug)]
pub(in crate::daemon) struct RunEnding {
    status: ExitStatus,
    /// The hosts from which lines may still come.
    awaited: BTreeSet<HostId>,
}

impl Daemon {
    /// The process of a task ended: if it is the master of a run, so does the run.
    pub(in crate::daemon) fn end_run(&mut self, tid: Tid, status: ExitStatus) {
        let Some(run) = self.runs.get(&tid).filter(|run| run.ending.is_none()) else {
            return;
        };
        let mut awaited = run.hosts.clone();
        let question = Order::FlushAsk(FlushAsk {
            app: tid,
            number: NO_MOVE,
        });
        awaited.retain(|host| match *host == self.cx.me {
            true => self.is_unfinished(tid),
            false => {
                self.cx.agreement.state().is_present(*host) && self.cx.send_order(*host, &question)
            }
        });
        if let Some(run) = self.runs.get_mut(&tid) {
            run.ending = Some(RunEnding { status, awaited });
        }
        self.cx
            .set_timer(self.cx.now + limits::FLUSH_WAIT, Timer::Flush(tid));
        self.finish_run_if_flushed(tid);
    }

    /// Whether a process of the application is here whose task has left, or is leaving.
    fn is_unfinished(&self, app: Tid) -> bool {
        let left = |task: &LocalTask| task.process && (task.exiting || task.ended);
        let mut tasks = self.tasks.values();
        tasks.any(|task| task.app == app && left(task))
    }

    /// Another daemon has a run that ends, or a master that moves and whose console is here: that waits for
    /// nobody.
    pub(in crate::daemon) fn on_flush_ask(&mut self, host: HostId, ask: FlushAsk) {
        if ask.number == NO_MOVE && self.is_unfinished(ask.app) {
            self.flushes.entry(ask.app).or_default().insert(host);
        } else {
            self.tell_flushed(host, ask.app, ask.number);
        }
    }

    fn tell_flushed(&mut self, host: HostId, app: Tid, number: u64) {
        self.cx
            .send_order(host, &Order::Flushed(Flushed { app, number }));
    }

    /// A process of the application has ended here.
    pub(in crate::daemon) fn review_flush(&mut self, app: Tid) {
        let asked = self.flushes.contains_key(&app) || self.runs.contains_key(&app);
        if !asked || self.is_unfinished(app) {
            return;
        }
        for host in self.flushes.remove(&app).unwrap_or_default() {
            self.tell_flushed(host, app, NO_MOVE);
        }
        self.on_last_lines(self.cx.me, app);
    }

    /// A host has sent, or has, all that it was asked about.
    pub(in crate::daemon) fn on_flushed(&mut self, host: HostId, flushed: &Flushed) {
        match flushed.number {
            NO_MOVE => self.on_last_lines(host, flushed.app),
            _ => self.on_delivered(host, flushed),
        }
    }

    /// No lines of tasks that left come from that host any more.
    fn on_last_lines(&mut self, host: HostId, app: Tid) {
        if let Some(run) = self.runs.get_mut(&app)
            && let Some(ending) = &mut run.ending
        {
            ending.awaited.remove(&host);
            self.finish_run_if_flushed(app);
        }
    }

    /// A host is lost: no lines come from there, and none are wanted there.
    pub(in crate::daemon) fn lose_flushes_of(&mut self, host: HostId) {
        for app in self.runs.keys().copied().collect::<Vec<_>>() {
            self.on_last_lines(host, app);
        }
        self.flushes.retain(|_, hosts| {
            hosts.remove(&host);
            !hosts.is_empty()
        });
    }

    pub(in crate::daemon) fn on_flush_over(&mut self, app: Tid) {
        if let Some(run) = self.runs.get_mut(&app)
            && let Some(ending) = &mut run.ending
        {
            ending.awaited.clear();
            self.finish_run_if_flushed(app);
        }
    }

    fn finish_run_if_flushed(&mut self, app: Tid) {
        if let Some(run) = self.runs.get_mut(&app)
            && let Some(ending) = &run.ending
            && ending.awaited.is_empty()
            && !std::mem::replace(&mut run.told, true)
        {
            let status = Some(ending.status);
            let end = RunEnd { status }.frame();
            self.cx.emit(Output::Console(run.conn, end));
        }
    }

    /// This daemon ends: the consoles of runs are told what has become of those. One whose run is lost
    /// with a daemon that fails sees the connection close.
    pub(in crate::daemon) fn end_all_runs(&mut self, fails: bool) {
        for app in self.runs.keys().copied().collect::<Vec<_>>() {
            let Some(run) = self.runs.get(&app).filter(|run| !run.told) else {
                continue;
            };
            let conn = run.conn;
            let state = self.cx.agreement.state();
            let elsewhere = |task: &agreed::Task| task.host != self.cx.me;
            // A machine that ends kills its tasks without a word in the log.
            let goes_on = !state.halted()
                && (state.living_task(app).is_some_and(elsewhere)
                    || (state.recovering(app).is_some() && !is_alone(state, self.cx.me)));
            let status = match &run.ending {
                Some(ending) => Some(ending.status),
                None if state.suspended(app).is_some() => {
                    let name = format!("{}-{}", app.machine(), app.show(app.machine()));
                    let text = format!(
                        "this host leaves the machine while {name} is suspended; its checkpoint is in \
                         the store: the same command with --resume-or-start, or 'vm restart {name}', \
                         brings it back"
                    );
                    self.tell_run(app, &text);
                    Some(ExitStatus::Suspended)
                }
                None if fails => continue,
                None if goes_on => None,
                None => Some(ExitStatus::HostLost),
            };
            if let Some(run) = self.runs.get_mut(&app) {
                run.told = true;
            }
            self.cx
                .emit(Output::Console(conn, RunEnd { status }.frame()));
        }
    }
}
