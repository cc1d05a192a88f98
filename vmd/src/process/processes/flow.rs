//! The standard streams of tasks' processes: pausing their output, their input, the size of their
//! terminals.

use super::Processes;
use crate::{
    context::{Context, Source},
    process::{
        lines::LineCutter,
        spawn,
        streams::{Progress, Role},
    },
};
use vm_wire::{Tid, console::WindowSize};

/// Bound on the shares in which a task's output is read to its end: more bytes than a pipe holds.
const SHARES: usize = 64;

impl Processes {
    /// Reads all output that a task has written so far, even if its console has paused it.
    pub fn read_all(&mut self, tid: Tid, context: &mut Context) {
        let outputs = self.tasks.get(&tid).map(|process| process.outputs.clone());
        for place in outputs.into_iter().flatten() {
            let stream = &mut self.streams[place];
            if let Some(output) = stream.role.output() {
                let paused = std::mem::take(&mut output.paused);
                // The loop has a bound, because processes that the task has left may write for
                // ever.
                for _ in 0..SHARES {
                    if output.read(&stream.fd, tid, &mut context.inbox) != Progress::More {
                        break;
                    }
                }
                output.paused = paused;
            }
        }
    }

    /// Sets how the output of a new task is passed on: as it is (`raw`), or line by line.
    pub fn begin(&mut self, tid: Tid, raw: bool) {
        let outputs = self.tasks.get(&tid).map(|process| process.outputs.clone());
        for place in outputs.into_iter().flatten() {
            if let Some(output) = self.streams[place].role.output() {
                output.lines = (!raw).then(LineCutter::default);
            }
        }
    }

    pub(super) fn close_input(&mut self, tid: Tid) {
        if let Some(process) = self.tasks.get_mut(&tid)
            && let Some(place) = process.input
            && !process.outputs.contains(&place)
        {
            process.input = None;
            self.streams.remove(place);
        }
    }

    /// Adds bytes for a task's standard input. No bytes mean the end of the input.
    pub fn type_in(&mut self, tid: Tid, bytes: &[u8]) {
        if let Some(launch) = self.launches.of(tid) {
            let terminal = launch.console == Some(true);
            return launch.typed.push(bytes, terminal);
        }
        let Some(place) = self.tasks.get(&tid).and_then(|process| process.input) else {
            return;
        };
        let stream = &mut self.streams[place];
        let terminal = matches!(stream.role, Role::Terminal(..));
        if let Some(typed) = stream.role.typed() {
            typed.push(bytes, terminal);
            if typed.write(&stream.fd) {
                self.close_input(tid);
            }
        }
    }

    /// Bytes that wait for a task's standard input.
    pub fn typed(&mut self, tid: Tid) -> usize {
        if let Some(launch) = self.launches.of(tid) {
            return launch.typed.len();
        }
        let place = self.tasks.get(&tid).and_then(|process| process.input);
        place
            .and_then(|place| self.streams[place].role.typed())
            .map_or(0, |typed| typed.len())
    }

    /// Stops or resumes reading a task's output. The remaining output of an ended task is read in
    /// any case.
    pub fn pause(&mut self, tid: Tid, pause: bool, context: &mut Context) {
        let process = self.tasks.get(&tid);
        let Some(process) = process.filter(|process| process.ended.is_none()) else {
            return;
        };
        for place in &process.outputs {
            if let Some(output) = self.streams[*place].role.output() {
                output.paused = pause;
                if !pause {
                    context.ready.push(Source::Process(*place));
                }
            }
        }
    }

    /// Sets the size of a task's terminal.
    pub fn resize(&mut self, tid: Tid, size: WindowSize) {
        if let Some(launch) = self.launches.of(tid) {
            launch.size = Some(size);
        } else if let Some(place) = self.tasks.get(&tid).and_then(|process| process.input)
            && let Role::Terminal(..) = self.streams[place].role
            && let Err(error) = spawn::resize(&self.streams[place].fd, size)
        {
            log::debug!("the terminal of task {tid} cannot be resized: {error}");
        }
    }
}
