//! Programs that a console runs as if they were local, and the destination of the output of tasks.
//!
//! The master of a run is a child of this daemon. Input of the console goes to the standard input
//! of the master. Output of the master reaches the console unchanged. Output of the other tasks of
//! the application reaches the console line by line, from any host: the spawn order of each task
//! names the host of the console. Output of tasks without a console goes to the log of their host.
//!
//! The streams of a master that has moved are relayed (`streams`). A master with a terminal, or
//! with input from a console, stays on its host.
//!
//! While a console does not read, the tasks of this host wait as they would for a pipe. Output from
//! other hosts is dropped and counted ([`vm_wire::limits::OUTPUT_QUEUE_BYTES`] is the length of the
//! shell's send queue).

use super::run::{Run, RunInput, RunState};
use crate::{ConnId, Output, ProcessOutput, daemon::context::Context};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    Body, CodecError, Frame, HostId, Message, Op, Tid,
    agreed::ExitStatus,
    console::{self, RunSignal, RunStopped, WindowSize},
    peer::OutputLines,
};

/// The runs of the consoles here, by their masters.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pub runs: BTreeMap<Tid, Run>,
}

impl Runs {
    /// Makes a restarted master, whose application has tasks on `hosts`, the run of a console.
    pub fn attach(&mut self, cx: &mut Context, conn: ConnId, tid: Tid, hosts: BTreeSet<HostId>) {
        if let Some(mut before) = self.runs.remove(&tid)
            && !matches!(before.state, RunState::Reported)
        {
            // The earlier run was suspended or stopped, and still waited for its last lines.
            before.report_end(cx, Some(ExitStatus::Suspended));
        }
        let run = Run {
            conn,
            has_terminal: false,
            // A restarted master has no standard input.
            input: RunInput::Empty,
            dropped: 0,
            hosts,
            state: RunState::Running,
        };
        self.runs.insert(tid, run);
    }

    /// The master of a run that was just attached was launched with input from its console.
    pub fn set_fed_by_console(&mut self, tid: Tid, has_terminal: bool) {
        if let Some(run) = self.runs.get_mut(&tid) {
            run.has_terminal = has_terminal;
            run.input = RunInput::Open;
        }
    }

    /// The masters of all runs.
    pub fn masters(&self) -> impl Iterator<Item = Tid> {
        self.runs.keys().copied()
    }

    /// Whether the console of this application is on this host.
    pub fn contains(&self, app: Tid) -> bool {
        self.runs.contains_key(&app)
    }

    /// The connection of the console of an application.
    pub fn conn_of(&self, app: Tid) -> Option<ConnId> {
        self.runs.get(&app).map(|run| run.conn)
    }

    /// The reason why a master cannot leave the host of its console, if there is one.
    pub fn ties_master(&self, tid: Tid) -> Option<&'static str> {
        self.runs.get(&tid).and_then(Run::ties_master)
    }

    /// Adds hosts to the hosts that have, or had, tasks of an application.
    pub fn add_hosts(&mut self, app: Tid, hosts: impl IntoIterator<Item = HostId>) {
        if let Some(run) = self.runs.get_mut(&app) {
            run.hosts.extend(hosts);
        }
    }

    /// The process of a task was stopped by a signal, or continues. If the task has the terminal of
    /// its console, the console stops or continues too.
    pub fn on_stopped(&self, cx: &mut Context, tid: Tid, stopped: bool) {
        if let Some(run) = self.runs.get(&tid).filter(|run| run.has_terminal) {
            cx.emit(Output::Console(run.conn, RunStopped { stopped }.frame()));
        }
    }

    /// Removes and returns the run of a console that is gone, unless another console has the run by
    /// now.
    pub fn remove_of(&mut self, conn: ConnId, tid: Tid) -> Option<Run> {
        let is_its = |run: &Run| run.conn == conn;
        self.runs.get(&tid).filter(|run| is_its(run))?;
        self.runs.remove(&tid)
    }

    /// Input of a console for the standard input of its master.
    pub fn on_input(&mut self, cx: &mut Context, tid: Tid, bytes: Vec<u8>) {
        if let Some(run) = self.runs.get_mut(&tid) {
            run.input = match (bytes.is_empty(), run.input) {
                (true, RunInput::Open) => RunInput::Empty,
                (true, input) => input,
                (false, _) => RunInput::Fed,
            };
        }
        cx.emit(ProcessOutput::StandardInput(tid, bytes));
    }

    /// Drops lines of a task of another host, because the console of its application does not read.
    pub fn drop_lines(&mut self, cx: &mut Context, app: Tid, lines: &OutputLines) {
        if let Some(run) = self.runs.get_mut(&app) {
            let len = lines.bytes.len() as u64;
            run.dropped += lines.dropped + len;
            cx.counters.output_dropped += len;
        }
    }

    /// Sends output of a task to the console of its application, or to the log of this host.
    pub fn show(&mut self, cx: &mut Context, app: Tid, lines: OutputLines) {
        let OutputLines {
            tid,
            stream,
            bytes,
            dropped,
        } = lines;
        let Some(run) = self.runs.get_mut(&app) else {
            return cx.emit(ProcessOutput::LogOutput(tid, stream, bytes.into_vec()));
        };
        let output = console::Output {
            tid,
            stream,
            bytes,
            dropped: dropped + std::mem::take(&mut run.dropped),
        };
        cx.emit(Output::Console(run.conn, output.frame()));
    }

    /// Shows a line of the daemon on the console of an application, if that console is here.
    pub fn tell(&mut self, cx: &mut Context, app: Tid, text: &str) {
        if self.contains(app) {
            let lines = OutputLines {
                tid: app,
                stream: 2,
                bytes: Body::from(format!("vm: {text}\n").into_bytes()),
                dropped: 0,
            };
            self.show(cx, app, lines);
        }
    }
}

/// The output to the shell for a frame that a console sends to its master.
pub(super) fn run_output(tid: Tid, frame: &Frame) -> Result<ProcessOutput, CodecError> {
    Ok(match frame.header.op {
        Op::Input => {
            let bytes = console::Input::read(frame)?.bytes.into_vec();
            ProcessOutput::StandardInput(tid, bytes)
        }
        Op::WindowSize => ProcessOutput::Resize(tid, WindowSize::read(frame)?),
        _ => match RunSignal::read(frame)?.signal {
            signal @ 1..=64 => ProcessOutput::Signal(tid, signal),
            signal => {
                let cause = format!("{signal} is no signal");
                return Err(CodecError { op: None, cause });
            }
        },
    })
}
