//! Programs that a console runs as if they were local, and where the output of tasks goes.
//!
//! The master of a run is a child of this daemon; what is typed at the console goes to its standard
//! input, what it writes comes back as it is. What other tasks of its application write comes line
//! by line, from whatever host: the daemons there know the host of the console from the order that
//! bore the task. Output of tasks without a console goes to the log of their host.
//!
//! While a console does not read, tasks here wait as they would for a pipe; what comes from other
//! hosts is dropped and counted ([`vm_wire::limits::OUTPUT_QUEUE_BYTES`] is what the shell holds).

use super::{Daemon, flush::RunEnding, signals::SIGHUP};
use crate::{ConnId, Outbox, Output};
use std::collections::BTreeSet;
use vm_wire::{
    Body, CodecError, Frame, HostId, Message, Op, Tid,
    agreed::ExitStatus,
    console::{self, RunEnd, RunSignal, WindowSize},
    peer::{Order, OutputLines},
};

/// What a console wants of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunAsked {
    /// Its terminal, if the master shall have one.
    pub terminal: Option<WindowSize>,
}

/// A master that a console here runs.
#[derive(Debug)]
pub(super) struct Run {
    pub conn: ConnId,
    /// Bytes that were dropped and not reported yet.
    dropped: u64,
    /// The hosts that bore tasks of the application.
    pub hosts: BTreeSet<HostId>,
    /// What its end waits for, once its master has ended.
    pub ending: Option<RunEnding>,
    /// Whether the console was told of the end.
    pub told: bool,
}

impl Daemon {
    /// The master of a run was launched.
    pub(super) fn begin_run(&mut self, conn: ConnId, tid: Tid, out: &mut Outbox) {
        self.make_console(conn, tid, BTreeSet::new(), out);
        out.push_back(Output::Attach(conn, tid));
    }

    /// A console runs a master, whose application has tasks on these hosts.
    pub(super) fn make_console(
        &mut self,
        conn: ConnId,
        tid: Tid,
        hosts: BTreeSet<HostId>,
        out: &mut Outbox,
    ) {
        let Some(console) = self.consoles.get_mut(&conn) else {
            // The console did not wait for it.
            out.push_back(Output::Signal(tid, SIGHUP));
            return;
        };
        console.run = Some(tid);
        if let Some(before) = self.runs.remove(&tid)
            && !before.told
        {
            // It was stopped, and its last lines were still waited for.
            let status = ExitStatus::Suspended;
            out.push_back(Output::Console(before.conn, RunEnd { status }.frame()));
        }
        let run = Run {
            conn,
            dropped: 0,
            hosts,
            ending: None,
            told: false,
        };
        self.runs.insert(tid, run);
    }

    /// The console of a run is gone.
    pub(super) fn abandon_run(&mut self, conn: ConnId, tid: Tid, out: &mut Outbox) {
        let Some(run) = self.runs.remove(&tid) else {
            return;
        };
        if run.conn != conn {
            // Another console runs the program by now.
            self.runs.insert(tid, run);
            return;
        }
        self.pause_outputs(tid, false, out);
        if run.ending.is_none() {
            self.signal_run(tid, SIGHUP, out);
        }
    }

    /// A console says something about its run.
    pub(super) fn on_run_frame(&mut self, conn: ConnId, frame: &Frame, out: &mut Outbox) {
        let run = self.consoles.get(&conn).and_then(|console| console.run);
        let Some(tid) = run else {
            return self.refuse_console(conn, "this console runs no program", out);
        };
        // The run may have ended while this was on its way.
        let alive = self.tasks.get(&tid).is_some_and(|task| task.process);
        match run_output(tid, frame) {
            Ok(Output::Signal(tid, signal)) => self.signal_run(tid, signal, out),
            Ok(output) if alive => out.push_back(output),
            Ok(_) => {}
            Err(error) => self.refuse_console(conn, &error.to_string(), out),
        }
    }

    /// A task here wrote something.
    pub(super) fn on_task_output(
        &mut self,
        tid: Tid,
        stream: u8,
        bytes: Vec<u8>,
        out: &mut Outbox,
    ) {
        let task = self.tasks.get_mut(&tid);
        let Some(task) = task.filter(|task| task.image.is_none()) else {
            self.on_restorer_said(tid, stream, &bytes);
            return out.push_back(Output::LogOutput(tid, stream, bytes));
        };
        let (app, console) = (task.app, task.console);
        if console == HostId::NONE {
            return out.push_back(Output::LogOutput(tid, stream, bytes));
        }
        if console == self.me {
            self.show(app, tid, stream, bytes, 0, out);
            // It may have been started since the others were told.
            if self.is_console_full(app) {
                out.push_back(Output::PauseOutput(tid));
            }
            return;
        }
        let len = bytes.len() as u64;
        let dropped = std::mem::take(&mut task.dropped);
        let lines = OutputLines {
            tid,
            stream,
            bytes: Body::from(bytes),
            dropped,
        };
        if !self.send_news(console, &Order::OutputLines(lines)) {
            self.counters.output_dropped += len;
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.dropped = dropped + len;
            }
        }
    }

    /// A task elsewhere, whose console is here, wrote something.
    pub(super) fn on_output_lines(&mut self, lines: OutputLines, out: &mut Outbox) {
        let OutputLines {
            tid,
            stream,
            bytes,
            dropped,
        } = lines;
        let task = self.agreement.state().task(tid);
        let app = task.map_or(Tid::NONE, |task| task.app);
        if self.is_console_full(app)
            && let Some(run) = self.runs.get_mut(&app)
        {
            let len = bytes.len() as u64;
            run.dropped += dropped + len;
            self.counters.output_dropped += len;
        } else {
            self.show(app, tid, stream, bytes.into_vec(), dropped, out);
        }
    }

    /// Whether the console of an application is here and does not read.
    fn is_console_full(&self, app: Tid) -> bool {
        let run = self.runs.get(&app);
        let console = run.and_then(|run| self.consoles.get(&run.conn));
        console.is_some_and(|console| console.full)
    }

    pub(super) fn show(
        &mut self,
        app: Tid,
        tid: Tid,
        stream: u8,
        bytes: Vec<u8>,
        dropped: u64,
        out: &mut Outbox,
    ) {
        let Some(run) = self.runs.get_mut(&app) else {
            return out.push_back(Output::LogOutput(tid, stream, bytes));
        };
        let output = console::Output {
            tid,
            stream,
            bytes: Body::from(bytes),
            dropped: dropped + std::mem::take(&mut run.dropped),
        };
        out.push_back(Output::Console(run.conn, output.frame()));
    }

    /// A console does not read, or reads again.
    pub(super) fn on_console_full(&mut self, conn: ConnId, full: bool, out: &mut Outbox) {
        if let Some(console) = self.consoles.get_mut(&conn) {
            console.full = full;
            if let Some(app) = console.run {
                self.pause_outputs(app, full, out);
            }
        }
    }

    fn pause_outputs(&mut self, app: Tid, pause: bool, out: &mut Outbox) {
        for (tid, task) in &self.tasks {
            if task.app == app && task.console == self.me && task.process {
                out.push_back(match pause {
                    true => Output::PauseOutput(*tid),
                    false => Output::ResumeOutput(*tid),
                });
            }
        }
    }

    /// The host of a console is lost: the tasks that wrote there write to the log here.
    pub(super) fn lose_console_host(&mut self, host: HostId) {
        for task in self.tasks.values_mut() {
            if task.console == host {
                task.console = HostId::NONE;
            }
        }
    }
}

/// What a frame of a console means for the master that it runs.
fn run_output(tid: Tid, frame: &Frame) -> Result<Output, CodecError> {
    Ok(match frame.header.op {
        Op::Input => {
            let bytes = console::Input::read(frame)?.bytes.into_vec();
            Output::StandardInput(tid, bytes)
        }
        Op::WindowSize => Output::Resize(tid, WindowSize::read(frame)?),
        _ => match RunSignal::read(frame)?.signal {
            signal @ 1..=64 => Output::Signal(tid, signal),
            signal => {
                let cause = format!("{signal} is no signal");
                return Err(CodecError { op: None, cause });
            }
        },
    })
}
