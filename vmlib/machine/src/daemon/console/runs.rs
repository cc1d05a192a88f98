//! Programs that a console runs as if they were local, and where the output of tasks goes.
//!
//! The master of a run is a child of this daemon. Input of the console goes to its standard input;
//! its output reaches the console unchanged. Output of other tasks of its application reaches the
//! console line by line, from any host: the daemons there know the host of the console from the
//! order that bore the task. Output of tasks without a console goes to the log of their host.
//!
//! The streams of a master that has moved are relayed (`streams`). A master with a terminal, or
//! with input from a console, stays on its host.
//!
//! While a console does not read, tasks here wait as they would for a pipe; output from other hosts
//! is dropped and counted ([`vm_wire::limits::OUTPUT_QUEUE_BYTES`] is the send queue of the shell).

use super::run::{Run, RunInput, RunState};
use crate::{ConnId, Output, daemon::context::Context};
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
    /// A console runs a restarted master, whose application has tasks on these hosts.
    pub fn attach(&mut self, cx: &mut Context, conn: ConnId, tid: Tid, hosts: BTreeSet<HostId>) {
        if let Some(mut before) = self.runs.remove(&tid)
            && !matches!(before.state, RunState::Reported)
        {
            // It was stopped, and its last lines were still waited for.
            before.report_end(cx, Some(ExitStatus::Suspended));
        }
        let run = Run {
            conn,
            has_terminal: false,
            // A restarted master has none.
            input: RunInput::Empty,
            dropped: 0,
            hosts,
            state: RunState::Running,
        };
        self.runs.insert(tid, run);
    }

    /// The master of a run that was just attached was launched: its console feeds it.
    pub fn set_fed_by_console(&mut self, tid: Tid, has_terminal: bool) {
        if let Some(run) = self.runs.get_mut(&tid) {
            run.has_terminal = has_terminal;
            run.input = RunInput::Open;
        }
    }

    /// The masters.
    pub fn masters(&self) -> impl Iterator<Item = Tid> {
        self.runs.keys().copied()
    }

    /// Whether the console of this application is here.
    pub fn contains(&self, app: Tid) -> bool {
        self.runs.contains_key(&app)
    }

    /// The connection of the console of an application.
    pub fn conn_of(&self, app: Tid) -> Option<ConnId> {
        self.runs.get(&app).map(|run| run.conn)
    }

    /// The reason why a master cannot leave the host of its console.
    pub fn ties_master(&self, tid: Tid) -> Option<&'static str> {
        self.runs.get(&tid).and_then(Run::ties_master)
    }

    /// There are, or were, tasks of an application on these hosts.
    pub fn add_hosts(&mut self, app: Tid, hosts: impl IntoIterator<Item = HostId>) {
        if let Some(run) = self.runs.get_mut(&app) {
            run.hosts.extend(hosts);
        }
    }

    /// The process of a task was stopped by a signal, or continues: the console of a run whose
    /// terminal it has stops, too.
    pub fn on_stopped(&self, cx: &mut Context, tid: Tid, stopped: bool) {
        if let Some(run) = self.runs.get(&tid).filter(|run| run.has_terminal) {
            cx.emit(Output::Console(run.conn, RunStopped { stopped }.frame()));
        }
    }

    /// The console of a run is gone: the run, unless another console has it by now.
    pub fn remove_of(&mut self, conn: ConnId, tid: Tid) -> Option<Run> {
        let is_its = |run: &Run| run.conn == conn;
        self.runs.get(&tid).filter(|run| is_its(run))?;
        self.runs.remove(&tid)
    }

    /// The console of a master has sent this to its standard input.
    pub fn on_input(&mut self, cx: &mut Context, tid: Tid, bytes: Vec<u8>) {
        if let Some(run) = self.runs.get_mut(&tid) {
            run.input = match (bytes.is_empty(), run.input) {
                (true, RunInput::Open) => RunInput::Empty,
                (true, input) => input,
                (false, _) => RunInput::Fed,
            };
        }
        cx.emit(Output::StandardInput(tid, bytes));
    }

    /// Lines of a task on another host are dropped: the console of its application does not read.
    pub fn drop_lines(&mut self, cx: &mut Context, app: Tid, lines: &OutputLines) {
        if let Some(run) = self.runs.get_mut(&app) {
            let len = lines.bytes.len() as u64;
            run.dropped += lines.dropped + len;
            cx.counters.output_dropped += len;
        }
    }

    /// Output of a task goes to the console of its application, or to the log of this host.
    pub fn show(&mut self, cx: &mut Context, app: Tid, lines: OutputLines) {
        let OutputLines {
            tid,
            stream,
            bytes,
            dropped,
        } = lines;
        let Some(run) = self.runs.get_mut(&app) else {
            return cx.emit(Output::LogOutput(tid, stream, bytes.into_vec()));
        };
        let output = console::Output {
            tid,
            stream,
            bytes,
            dropped: dropped + std::mem::take(&mut run.dropped),
        };
        cx.emit(Output::Console(run.conn, output.frame()));
    }

    /// The console of an application, if it is here, shows a line of the daemon.
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

/// What a frame of a console means for the master that it runs.
pub(super) fn run_output(tid: Tid, frame: &Frame) -> Result<Output, CodecError> {
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
