//! Programs that a console runs as if they were local, and where the output of tasks goes.
//!
//! The master of a run is a child of this daemon; what is typed at the console goes to its standard
//! input, what it writes comes back as it is. What other tasks of its application write comes line
//! by line, from whatever host: the daemons there know the host of the console from the order that
//! bore the task. Output of tasks without a console goes to the log of their host.
//!
//! The streams of a master that has moved are relayed (`streams`); one with a terminal, or whose input a
//! console feeds, stays.
//!
//! While a console does not read, tasks here wait as they would for a pipe; what comes from other
//! hosts is dropped and counted ([`vm_wire::limits::OUTPUT_QUEUE_BYTES`] is what the shell holds).

use super::flush::RunEnding;
use crate::daemon::{Daemon, signals::SIGHUP};
use crate::{ConnId, Output};
use std::collections::BTreeSet;
use vm_wire::{
    Body, CodecError, Frame, HostId, Message, Op, Tid,
    agreed::ExitStatus,
    console::{self, RunEnd, RunSignal, RunStopped, WindowSize},
    peer::{Order, OutputLines},
};

/// What a console wants of a run.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) struct RunAsked {
    /// Its terminal, if the master shall have one.
    pub terminal: Option<WindowSize>,
}

/// A master that a console here runs.
#[derive(Debug)]
pub(in crate::daemon) struct Run {
    pub conn: ConnId,
    /// Whether its master has a terminal, which is the console's.
    pub has_terminal: bool,
    pub input: RunInput,
    /// Bytes that were dropped and not reported yet.
    dropped: u64,
    /// The hosts that bore tasks of the application.
    pub hosts: BTreeSet<HostId>,
    /// What its end waits for, once its master has ended.
    pub ending: Option<RunEnding>,
    /// Whether the console was told of the end.
    pub told: bool,
}

/// What has come for the standard input of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) enum RunInput {
    /// Nothing yet.
    Open,
    /// Something; its master may not have read all of it.
    Fed,
    /// Nothing but its end.
    Empty,
}

impl Run {
    /// Why its master cannot leave the host of its console.
    pub fn ties_master(&self) -> Option<&'static str> {
        match (self.has_terminal, self.input) {
            (true, _) => Some(
                "its terminal is a console of this host; end the run and start the program with 'vm \
                 spawn' or with 'vm run' and '</dev/null >FILE', or 'vm stop --checkpoint' it and 'vm \
                 restart --detach'",
            ),
            (false, RunInput::Open | RunInput::Fed) => Some(
                "its standard input comes from a console of this host; start it with '</dev/null', or \
                 'vm stop --checkpoint' it and 'vm restart' it",
            ),
            (false, RunInput::Empty) => None,
        }
    }
}

impl Daemon {
    /// The master of a run was launched.
    pub(in crate::daemon) fn begin_run(&mut self, conn: ConnId, tid: Tid, asked: RunAsked) {
        self.make_console(conn, tid, BTreeSet::new());
        if let Some(run) = self.runs.get_mut(&tid) {
            run.has_terminal = asked.terminal.is_some();
            run.input = RunInput::Open;
        }
        self.cx.emit(Output::Attach(conn, tid));
    }

    /// The process of a task was stopped by a signal, or goes on: the console of a run whose terminal it
    /// has stops, too.
    pub(in crate::daemon) fn tell_stopped(&mut self, tid: Tid, stopped: bool) {
        if let Some(run) = self.runs.get(&tid).filter(|run| run.has_terminal) {
            self.cx
                .emit(Output::Console(run.conn, RunStopped { stopped }.frame()));
        }
    }

    /// A console runs a master, whose application has tasks on these hosts.
    pub(in crate::daemon) fn make_console(
        &mut self,
        conn: ConnId,
        tid: Tid,
        hosts: BTreeSet<HostId>,
    ) {
        if !self.consoles.set_run(conn, tid) {
            // The console did not wait for it.
            self.cx.emit(Output::Signal(tid, SIGHUP));
            return;
        }
        if let Some(before) = self.runs.remove(&tid)
            && !before.told
        {
            // It was stopped, and its last lines were still waited for.
            let status = Some(ExitStatus::Suspended);
            self.cx
                .emit(Output::Console(before.conn, RunEnd { status }.frame()));
        }
        let run = Run {
            conn,
            has_terminal: false,
            // One that was brought back has none.
            input: RunInput::Empty,
            dropped: 0,
            hosts,
            ending: None,
            told: false,
        };
        self.runs.insert(tid, run);
    }

    /// The console of a run is gone.
    pub(in crate::daemon) fn abandon_run(&mut self, conn: ConnId, tid: Tid) {
        let Some(run) = self.runs.remove(&tid) else {
            return;
        };
        if run.conn != conn {
            // Another console runs the program by now.
            self.runs.insert(tid, run);
            return;
        }
        self.pause_outputs(tid, false);
        if run.ending.is_none() {
            self.signal_run(tid, SIGHUP);
        }
    }

    /// A console says something about its run.
    pub(in crate::daemon) fn on_run_frame(&mut self, conn: ConnId, frame: &Frame) {
        let Some(tid) = self.consoles.run_of(conn) else {
            return self.refuse_console(conn, "this console runs no program");
        };
        // The run may have ended while this was on its way.
        let alive = self.tasks.get(&tid).is_some_and(|task| task.process);
        match run_output(tid, frame) {
            Ok(Output::Signal(tid, signal)) => self.signal_run(tid, signal),
            Ok(Output::StandardInput(tid, bytes)) if alive => {
                if let Some(run) = self.runs.get_mut(&tid) {
                    run.input = match (bytes.is_empty(), run.input) {
                        (true, RunInput::Open) => RunInput::Empty,
                        (true, input) => input,
                        (false, _) => RunInput::Fed,
                    };
                }
                self.cx.emit(Output::StandardInput(tid, bytes));
            }
            Ok(output) if alive => self.cx.emit(output),
            Ok(_) => {}
            Err(error) => self.refuse_console(conn, &error.to_string()),
        }
    }

    /// A task here wrote something.
    pub(in crate::daemon) fn on_task_output(&mut self, tid: Tid, stream: u8, bytes: Vec<u8>) {
        let task = self.tasks.get_mut(&tid);
        let Some(task) = task.filter(|task| task.image.is_none()) else {
            self.on_restorer_said(tid, stream, &bytes);
            return self.cx.emit(Output::LogOutput(tid, stream, bytes));
        };
        let (app, console) = (task.app, task.console);
        if console == HostId::NONE {
            return self.cx.emit(Output::LogOutput(tid, stream, bytes));
        }
        if console == self.cx.me {
            self.show(app, tid, stream, bytes, 0);
            // It may have been started since the others were told.
            if self.is_console_full(app) {
                self.cx.emit(Output::PauseOutput(tid));
            }
            return;
        }
        let Some((stream, bytes)) = self.send_far(tid, (stream, bytes)) else {
            return;
        };
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let len = bytes.len() as u64;
        let dropped = std::mem::take(&mut task.dropped);
        let lines = OutputLines {
            tid,
            stream,
            bytes: Body::from(bytes),
            dropped,
        };
        if !self.cx.send_news(console, &Order::OutputLines(lines)) {
            self.cx.counters.output_dropped += len;
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.dropped = dropped + len;
            }
        }
    }

    /// A task elsewhere, whose console is here, wrote something.
    pub(in crate::daemon) fn on_output_lines(&mut self, lines: OutputLines) {
        let OutputLines {
            tid,
            stream,
            bytes,
            dropped,
        } = lines;
        let task = self.cx.agreement.state().task(tid);
        let app = task.map_or(Tid::NONE, |task| task.app);
        let full = self.is_console_full(app);
        // A master waits as long as its console does not read: what still comes of it is little.
        if full && tid == app {
            // It may have come to its host after that was told.
            self.hold_far(tid, true);
        }
        if tid != app
            && full
            && let Some(run) = self.runs.get_mut(&app)
        {
            let len = bytes.len() as u64;
            run.dropped += dropped + len;
            self.cx.counters.output_dropped += len;
        } else {
            self.show(app, tid, stream, bytes.into_vec(), dropped);
        }
    }

    /// Whether the console of an application is here and does not read.
    pub(in crate::daemon) fn is_console_full(&self, app: Tid) -> bool {
        let run = self.runs.get(&app);
        run.is_some_and(|run| self.consoles.is_full(run.conn))
    }

    pub(in crate::daemon) fn show(
        &mut self,
        app: Tid,
        tid: Tid,
        stream: u8,
        bytes: Vec<u8>,
        dropped: u64,
    ) {
        let Some(run) = self.runs.get_mut(&app) else {
            return self.cx.emit(Output::LogOutput(tid, stream, bytes));
        };
        let output = console::Output {
            tid,
            stream,
            bytes: Body::from(bytes),
            dropped: dropped + std::mem::take(&mut run.dropped),
        };
        self.cx.emit(Output::Console(run.conn, output.frame()));
    }

    /// A console does not read, or reads again.
    pub(in crate::daemon) fn on_console_full(&mut self, conn: ConnId, full: bool) {
        if let Some(app) = self.consoles.set_full(conn, full) {
            self.pause_outputs(app, full);
        }
    }

    fn pause_outputs(&mut self, app: Tid, pause: bool) {
        for (tid, task) in &self.tasks {
            if task.app == app && task.console == self.cx.me && task.process {
                self.cx.emit(match pause {
                    true => Output::PauseOutput(*tid),
                    false => Output::ResumeOutput(*tid),
                });
            }
        }
        self.hold_far(app, pause);
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
