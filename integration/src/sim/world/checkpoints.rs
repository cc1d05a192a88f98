//! Checkpoints of applications: consoles request them, and the store is a table of this world.
//!
//! The rules: every request gets a reply, no task stays frozen for ever, and each committed
//! checkpoint is a consistent cut. That is: for each task in it and each peer, the peer has sent
//! every message that the task has received, and the peer retains every message that it has sent
//! and the task has not received.

use super::state::{
    Event, World,
    process::Gait,
    store::{CheckpointRequest, CutKey, Saved},
};
use crate::sim::{
    coverage::Turn,
    network::Slot,
    program::Program,
    queue::{MS, SECOND},
};
use std::collections::BTreeMap;
use vm_machine::{ConnId, Input, MoveInput, StoreInput, Written};
use vm_wire::{
    Tid,
    checkpoint::{Checkpoint, Committed, Part, Policy, Recover},
    console::{Answer, Request},
    task::{FailKind, Failed},
};

impl World {
    /// A console requests a checkpoint of the application of some task.
    pub(super) fn request_checkpoint(&mut self, tid: Tid) {
        let running = self.running();
        let Some(&slot) = self.random.pick(&running) else {
            return;
        };
        if !self.secluded {
            // A recovery would not roll back messages to other applications.
            let policy = Policy {
                recover: Recover::Never,
                blocking: tid.0.is_multiple_of(2),
                ..Policy::default()
            };
            self.ask_console(slot, &Request::Policy(tid, policy));
        }
        let conn = self.ask_for(slot, &Request::Checkpoint(tid, false));
        let request = CheckpointRequest {
            slot,
            tid,
            answered: false,
        };
        self.store.requests.insert(conn, request);
    }

    /// Handles the reply to the request of a console.
    pub(super) fn checkpoint_answered(
        &mut self,
        conn: ConnId,
        answer: &Answer,
    ) -> Result<(), String> {
        let Some(request) = self.store.requests.get_mut(&conn) else {
            return Ok(());
        };
        let (tid, slot) = (request.tid, request.slot);
        if std::mem::replace(&mut request.answered, true) {
            return Err(format!("a console was told twice of a checkpoint of {tid}"));
        }
        self.queue
            .after(10, Event::Input(slot, Input::ConnGone(conn)));
        self.trace(|| format!("the checkpoint of {tid} is answered: {answer:?}"));
        match answer {
            Answer::Checkpointed(_) => self.turns.note(Turn::Checkpointed),
            Answer::Failed(_) => self.turns.note(Turn::NotCheckpointed),
            other => return Err(format!("a checkpoint of {tid} was answered with {other:?}")),
        }
        Ok(())
    }

    /// The description of a checkpoint that has not ended, if there is one.
    pub(super) fn unsettled_checkpoints(&self) -> Option<String> {
        let running = self.nodes.iter().filter(|node| node.is_running());
        for node in running {
            let agreed = node.agreed()?;
            if let Some(app) = agreed.apps().find(|app| agreed.is_cut(*app)) {
                return Some(format!("{app} is cut, as {} knows", node.host));
            }
        }
        let mut running = self.nodes.iter().filter(|node| node.is_running());
        let recovering = running.find_map(|node| {
            let agreed = node.agreed()?;
            let app = agreed.all_recovering().next()?;
            Some((
                app,
                agreed.recovering_host(app),
                agreed.recovering(app)?.clone(),
            ))
        });
        if let Some((app, host, how)) = recovering {
            return Some(format!(
                "{app} is to go back to its checkpoint, by {host:?}: {how:?}"
            ));
        }
        let waits = |request: &&CheckpointRequest| {
            !request.answered && self.nodes[request.slot].is_running()
        };
        let request = self.store.requests.values().find(waits)?;
        Some(format!(
            "a console waits for the checkpoint of {}",
            request.tid
        ))
    }

    /// Freezes a process. Its image for the store is the program at this moment.
    pub(super) fn stand_for_store(&mut self, index: usize, (key, copied): (CutKey, bool)) {
        let process = &mut self.processes[index];
        let tid = process.tid;
        let leaves = |program: &Program| program.request() == Some(vm_wire::Op::Exit);
        let Some(program) = process.program.clone().filter(|it| !leaves(it)) else {
            let failed = Failed::new(FailKind::Busy, "it is leaving the machine");
            return self.report(index, Input::Move(MoveInput::Frozen(tid, Err(failed))));
        };
        process.gait = Gait::Saves;
        process.freeze = None;
        let unsavable = self.random.percent(4);
        let time = match self.random.percent(80) {
            true => self.random.between(500, 60 * MS),
            false => self.random.between(60 * MS, SECOND),
        };
        self.trace(|| {
            format!(
                "{tid} stands, to be saved for epoch {}: {}",
                key.1, !unsavable
            )
        });
        if !unsavable {
            let now = self.queue.now();
            let process = &self.processes[index];
            let at = process.time(&self.nodes[process.slot], now);
            let images = self.store.images.entry(key).or_default();
            images.insert(tid, Saved { program, at });
            let saved = self.store.ledgers.entry(key).or_default();
            self.ledger.save(tid, saved);
        }
        self.queue
            .after(time, Event::Stored(index, (key, copied), !unsavable));
    }

    /// Handles a process that has written its image for the store, or whose copy begins to write
    /// it, or that has failed.
    pub(super) fn stored(
        &mut self,
        index: usize,
        (key, copied): (CutKey, bool),
        saved: bool,
    ) -> Result<(), String> {
        let process = &mut self.processes[index];
        let tid = process.tid;
        if !process.alive || process.discarded {
            return Ok(());
        }
        if saved {
            process.gait = Gait::Stands;
            let bytes = self.random.between(1 << 20, 1 << 30);
            let written = Written {
                bytes,
                ..Written::default()
            };
            self.report(index, Input::Move(MoveInput::Frozen(tid, Ok(written))));
            let full = self.random.percent(4);
            let slot = self.processes[index].slot;
            let part = Part {
                name: format!("{tid}.image"),
                bytes,
                hash: [key.1 as u8; 16],
                place: self.nodes[slot].name.clone(),
                stored: bytes,
                packed: None,
                base: None,
                copy: None,
            };
            let no_room = Failed::new(FailKind::System, "no space left on device");
            let stored = if full { Err(no_room) } else { Ok(part) };
            if self.own_stores && !full {
                self.put_on_disk(slot, key, tid);
            }
            let longest = match copied && self.random.percent(30) {
                true => 3 * SECOND,
                false => 80 * MS,
            };
            let delay = self.random.between(100, longest);
            let input = Input::Store(StoreInput::Part(tid, key.1, stored));
            self.queue.after(delay, Event::Input(slot, input));
        } else {
            process.gait = Gait::Runs;
            let failed = Failed::new(FailKind::Refused, "it has an open socket");
            self.report(index, Input::Move(MoveInput::Frozen(tid, Err(failed))));
            self.walk_on(index);
        }
        for order in std::mem::take(&mut self.processes[index].orders) {
            self.heed(index, order)?;
        }
        Ok(())
    }

    /// Handles a daemon's commit of a checkpoint.
    pub(super) fn commit(&mut self, slot: Slot, checkpoint: &Checkpoint) -> Result<(), String> {
        let agreed = &checkpoint.agreed;
        let (app, epoch) = (agreed.app, agreed.epoch);
        // A daemon whose log is behind may commit a checkpoint that other daemons have aborted, and
        // whose parts are removed.
        let gone = !self.store.images.contains_key(&(app, epoch));
        let policy = self.nodes[slot].agreed().map(|it| it.epochs(app).policy);
        let stays = policy.is_some_and(|policy| policy.recover == Recover::Never);
        let gone = gone || self.own_stores && !self.can_commit(slot, checkpoint);
        let fails = gone || self.random.percent(4) || stays == self.secluded;
        if !fails {
            self.check_cut(checkpoint)?;
            let id = |it: &Checkpoint| (it.agreed.app, it.agreed.generation, it.agreed.epoch);
            let twice = |it: &&Checkpoint| id(it) == id(checkpoint);
            match self.store.committed.iter().find(twice) {
                None => self.store.committed.push(checkpoint.clone()),
                Some(same) if self.own_stores && same == checkpoint => {}
                Some(_) => return Err(format!("epoch {epoch} of {app} is committed twice")),
            }
            if self.own_stores {
                self.put_manifest(slot, checkpoint);
            }
        }
        let failed = Failed::new(FailKind::System, "the disk has failed");
        let result = if fails { Err(failed) } else { Ok(()) };
        let committed = Committed { app, epoch, result };
        let delay = self.random.between(100, 100 * MS);
        let input = Input::Store(StoreInput::Committed(committed));
        self.queue.after(delay, Event::Input(slot, input));
        Ok(())
    }

    /// Discards the images of a cut that is not committed.
    pub(super) fn drop_checkpoint(&mut self, slot: Slot, key: CutKey) {
        if self.own_stores {
            return self.drop_from_disk(slot, key);
        }
        let is_it = |it: &Checkpoint| (it.agreed.app, it.agreed.epoch) == key;
        if !self.store.committed.iter().any(is_it) {
            self.store.images.remove(&key);
            self.store.ledgers.remove(&key);
        }
    }

    /// Checks that the parts of a checkpoint form a consistent cut.
    fn check_cut(&self, checkpoint: &Checkpoint) -> Result<(), String> {
        let agreed = &checkpoint.agreed;
        let (app, epoch) = (agreed.app, agreed.epoch);
        let none = BTreeMap::new();
        let images = self.store.images.get(&(app, epoch)).unwrap_or(&none);
        for task in &agreed.tasks {
            let tid = task.tid;
            let image = images.get(&tid);
            let image = image.ok_or_else(|| format!("{tid} is no part of epoch {epoch}"))?;
            for (peer, taken) in image.program.endpoint().taken() {
                let Some(sender) = images.get(&peer) else {
                    continue;
                };
                let (sent, retained) = sender.program.endpoint().sent(tid);
                if taken > sent {
                    return Err(format!(
                        "in epoch {epoch} {tid} has taken {taken} chunks of {peer}, which has sent \
                         {sent}"
                    ));
                }
                if retained < sent - taken {
                    return Err(format!(
                        "in epoch {epoch} {tid} has taken {taken} of {sent} chunks of {peer}, which \
                         retains {retained}"
                    ));
                }
            }
        }
        Ok(())
    }
}
