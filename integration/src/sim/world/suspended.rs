//! Single tasks that are suspended: the part of their processes and of the daemons' shells, and the
//! requests of consoles. This happens in one world of four. It uses a random stream of its own, so
//! that the other worlds do not change.
//!
//! An image on the shelf belongs to a freeze, like that of a move: of the process that wrote it and
//! all processes that are restored from it, only one may ever resume. An image that a daemon sends
//! must exist.

use super::{
    moves::PATIENCE,
    state::{
        Event, World,
        image::{Fate, Image},
        process::Gait,
        shelf::{Shelved, Shelving},
    },
};
use crate::sim::{
    network::Slot,
    node::slot_of,
    program::Program,
    queue::{MS, SECOND},
};
use vm_machine::{Input, MoveInput, StoreInput, Written};
use vm_wire::{
    Op, Tid,
    checkpoint::Part,
    console::Request,
    task::{FailKind, Failed},
};

impl World {
    /// The tasks that are suspended, as some running daemon knows them.
    pub(super) fn suspended_tasks(&self) -> Vec<Tid> {
        let running = self.running();
        let agreed = running.iter().find_map(|slot| self.nodes[*slot].agreed());
        let tasks = agreed.into_iter().flat_map(|agreed| agreed.living_tasks());
        let suspended = tasks.filter(|(_, task)| task.suspended);
        suspended.map(|(tid, _)| tid).collect()
    }

    /// Consoles request suspensions and resumptions of tasks; at the end, the resumption of all
    /// suspended tasks.
    pub(super) fn request_suspensions(&mut self) {
        let running = self.running();
        let pause = match self.is_quiet() {
            true => 500 * MS,
            false => self.shelf.random.between(20 * MS, 700 * MS),
        };
        self.queue.after(pause, Event::Suspensions);
        let Some(&slot) = self.shelf.random.pick(&running) else {
            return;
        };
        let suspended = self.suspended_tasks();
        if self.is_quiet() {
            for tid in suspended {
                self.request(slot, tid, &Request::Resume(tid, None), false);
            }
            return;
        }
        if self.shelf.random.percent(45)
            && let Some(&tid) = self.shelf.random.pick(&suspended)
        {
            let names: Vec<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
            let host = self.shelf.random.pick(&names).cloned();
            let host = host.filter(|_| self.shelf.random.percent(60));
            self.request(slot, tid, &Request::Resume(tid, host), false);
            return;
        }
        let agreed = self.nodes[slot].agreed();
        let tasks = agreed.into_iter().flat_map(|agreed| agreed.living_tasks());
        let tids: Vec<Tid> = tasks
            .filter(|(tid, task)| task.app != *tid)
            .map(|(tid, _)| tid)
            .collect();
        if let Some(&tid) = self.shelf.random.pick(&tids) {
            self.request(slot, tid, &Request::Suspend(tid, 0), false);
        }
    }

    /// A daemon opens a file for the image of a task that is to be suspended.
    pub(super) fn open_shelf(&mut self, slot: Slot, tid: Tid, name: String, number: u64) {
        self.shelf.opened.insert((slot, tid), (name, number));
    }

    /// Freezes a process. Its image is the program at this moment.
    pub(super) fn stand_for_shelf(&mut self, index: usize, name: String, number: u64) {
        let now = self.queue.now();
        let process = &self.processes[index];
        let (tid, slot) = (process.tid, process.slot);
        let leaves = |program: &Program| program.request() == Some(Op::Exit);
        let Some(program) = process.program.clone().filter(|it| !leaves(it)) else {
            let failed = Failed::new(FailKind::Busy, "it is leaving the machine");
            return self.report(index, Input::Move(MoveInput::Frozen(tid, Err(failed))));
        };
        let at = process.time(&self.nodes[slot], now);
        let freeze = self.claims.len();
        self.claims.push(None);
        let process = &mut self.processes[index];
        process.gait = Gait::Saves;
        process.freeze = Some(freeze);
        let saved = !self.shelf.random.percent(6);
        let time = match self.shelf.random.percent(80) {
            true => self.shelf.random.between(500, 60 * MS),
            false => self.shelf.random.between(60 * MS, 2 * SECOND),
        };
        self.trace(|| format!("{tid} stands, to be suspended: {saved}"));
        let image = Shelved {
            slot,
            tid,
            freeze,
            program,
            at,
        };
        let shelving = Shelving {
            index,
            name,
            number,
            saved,
            image,
        };
        self.queue.after(time, Event::Shelved(Box::new(shelving)));
    }

    /// Handles a process that has written its image, or cannot write it.
    pub(super) fn shelved(&mut self, shelving: Shelving) -> Result<(), String> {
        let Shelving {
            index,
            name,
            number,
            saved,
            image,
        } = shelving;
        let (slot, tid, freeze) = (image.slot, image.tid, image.freeze);
        let process = &mut self.processes[index];
        let failed = |text| Failed::new(FailKind::System, text);
        if !process.alive || process.discarded {
            let lost = Err(failed("the process that wrote it ended early"));
            let input = Input::Store(StoreInput::Suspended(tid, number, lost));
            self.queue.after(100, Event::Input(slot, input));
            return Ok(());
        }
        if saved {
            process.gait = Gait::Stands;
            let bytes = 1 << 20;
            let written = Written {
                bytes,
                ..Written::default()
            };
            self.report(index, Input::Move(MoveInput::Frozen(tid, Ok(written))));
            let part = Part {
                name: String::new(),
                bytes,
                hash: [7; 16],
                place: self.nodes[slot].name.clone(),
                stored: bytes,
                packed: None,
                base: None,
                copy: None,
            };
            let result = match self.shelf.random.percent(5) {
                true => Err(failed("no space left on device")),
                false => Ok(part),
            };
            if result.is_ok() && self.shelf.images.insert(name, image).is_some() {
                return Err(format!(
                    "the image of {tid} has a name that was used before"
                ));
            }
            let delay = self.shelf.random.between(100, 200 * MS);
            let input = Input::Store(StoreInput::Suspended(tid, number, result));
            self.queue.after(delay, Event::Input(slot, input));
        } else {
            process.gait = Gait::Runs;
            let failed = Failed::new(FailKind::Refused, "it has an open socket");
            self.report(index, Input::Move(MoveInput::Frozen(tid, Err(failed))));
            // The process resumes by itself.
            self.claim(freeze, index)?;
            self.walk_on(index);
        }
        for order in std::mem::take(&mut self.processes[index].orders) {
            self.heed(index, order)?;
        }
        Ok(())
    }

    /// A daemon sends the image of a suspended task.
    pub(super) fn send_suspended(
        &mut self,
        slot: Slot,
        ticket: u64,
        address: &str,
        part: &Part,
    ) -> Result<(), String> {
        let to = slot_of(address).ok_or("an image is sent nowhere")?;
        let missing = || format!("{} is sent, and is not there", part.name);
        let shelved = self.shelf.images.get(&part.name).ok_or_else(missing)?;
        if self.own_stores && shelved.slot != slot {
            return Err(format!("{} is on the disk of another host", part.name));
        }
        let (tid, freeze) = (shelved.tid, shelved.freeze);
        let (program, saved_at) = (shelved.program.clone(), shelved.at);
        let delay = self.shelf.random.between(200, 300 * MS);
        let fate = match self.shelf.random.below(100) {
            0..5 => {
                let failed = Failed::new(FailKind::System, "the part is damaged");
                let input = Input::Store(StoreInput::PartSent(ticket, Err(failed)));
                self.queue.after(delay, Event::Input(slot, input));
                return Ok(());
            }
            5..10 => Fate::BreaksLate,
            10..15 => Fate::Unrestorable,
            _ => Fate::Arrives,
        };
        self.trace(|| format!("the image of {tid} is sent to slot {to}: {fate:?}"));
        let image = Image {
            from: slot,
            to,
            ticket,
            tid,
            // The process of the image has ended.
            of: usize::MAX,
            freeze,
            program,
            saved_at,
            give_up: self.queue.now() + delay + PATIENCE,
            fate,
        };
        self.images.push(Some(image));
        self.queue
            .after(delay, Event::Crosses(self.images.len() - 1));
        Ok(())
    }

    /// Removes an image that is no longer needed.
    pub(super) fn drop_suspended(&mut self, name: &str) {
        self.shelf.images.remove(name);
    }
}
