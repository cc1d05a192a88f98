//! The shell's part of direct connections: expected ones, those that come, and interruptions.

use super::state::{Event, World, process::Gait};
use crate::sim::{network::Slot, pipe::Pipe, queue::MS};
use vm_machine::{DirectOutput, Input};
use vm_wire::Tid;

impl World {
    /// Carries out an order of a daemon.
    pub(super) fn use_direct(&mut self, slot: Slot, order: DirectOutput) {
        match order {
            DirectOutput::Expect(connection) => {
                self.awaited_directs.insert(connection.id, slot);
            }
            DirectOutput::Open { id, tid, frame } => {
                let pipe = self.dialled.remove(&id);
                if let Some(pipe) = pipe
                    && let Some(index) = self.process_of(slot, tid)
                {
                    self.processes[index].pipes.push_back(pipe);
                    self.send_task(slot, tid, frame);
                }
            }
            DirectOutput::Forget(id) => {
                self.awaited_directs.remove(&id);
                self.end_dialled(id);
            }
            DirectOutput::Nudge { tid, id } => {
                if let Some(index) = self.process_of(slot, tid) {
                    let delay = self.random.between(5, 200);
                    self.queue.after(delay, Event::Nudge(index, id));
                }
            }
        }
    }

    /// A task dials.
    pub(super) fn dialled(&mut self, id: u64, pipe: Pipe) {
        self.dialled.insert(id, pipe);
        let delay = self.random.between(100, 20 * MS);
        self.queue.after(delay, Event::DirectComes(id));
    }

    /// A connection comes to the port of a daemon.
    pub(super) fn direct_comes(&mut self, id: u64) -> Result<(), String> {
        let is_lost = self.random.percent(5);
        match self.awaited_directs.remove(&id) {
            Some(slot) if !is_lost => self.feed(slot, Input::DirectCame(id)),
            _ => {
                self.end_dialled(id);
                Ok(())
            }
        }
    }

    /// The daemon of the peer closes a connection that was dialled.
    fn end_dialled(&mut self, id: u64) {
        if let Some(pipe) = self.dialled.remove(&id) {
            for stream in pipe.borrow_mut().iter_mut() {
                stream.frames.clear();
                stream.ended = true;
            }
        }
    }

    /// A daemon interrupts a task whose connection was closed.
    pub(super) fn nudge(&mut self, index: usize, id: u64) {
        let process = &mut self.processes[index];
        let runs = process.gait == Gait::Runs;
        if !process.alive {
            return;
        }
        if let Some(program) = &mut process.program {
            let frames = program.nudged(id, runs);
            self.directs.nudges += u64::from(!frames.is_empty());
            self.task_writes(index, frames);
        }
    }

    /// Something is in a direct connection of a task of any host.
    pub(super) fn far_wake(&mut self, tid: Tid) -> Result<(), String> {
        let is_it = |process: &super::state::process::Process| {
            process.alive && !process.discarded && process.tid == tid
        };
        let indices = 0..self.processes.len();
        for index in indices.rev() {
            if is_it(&self.processes[index]) {
                self.ring_wake(index)?;
            }
        }
        Ok(())
    }
}
