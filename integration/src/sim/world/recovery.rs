//! Applications that are restarted from their last checkpoint after they have lost a host.
//!
//! This happens in the seeds in which tasks send only to tasks of their own application, because
//! messages to other applications are not rolled back. When the first task of a new generation
//! resumes, the in-transit messages are those of the cut, and no process of an earlier generation
//! may run any more.

use super::state::{
    Event, World,
    process::{Gait, Process},
    store::{CutKey, Saved},
};
use crate::sim::{coverage::Turn, network::Slot, queue::MS};
use vm_machine::{Input, MoveInput, StoreInput};
use vm_wire::{
    CheckpointId, Tid,
    checkpoint::{Checkpoint, Loaded},
    task::{FailKind, Failed},
};

impl World {
    /// The generation in which the application of a process runs.
    pub(super) fn generation_of(&self, index: usize) -> u32 {
        let program = self.processes[index].program.as_ref();
        let life = program.and_then(|program| self.store.lives.get(&program.app()));
        life.copied().unwrap_or(0)
    }

    fn stored_checkpoint(&self, app: Tid, from: Option<CheckpointId>) -> Option<&Checkpoint> {
        let id = |it: &Checkpoint| CheckpointId::new(it.agreed.generation, it.agreed.epoch);
        let of_app = self
            .store
            .committed
            .iter()
            .filter(|it| it.agreed.app == app);
        let wanted = of_app.filter(|it| from.is_none_or(|from| id(it) == from));
        wanted.max_by_key(|it| id(it))
    }

    /// A daemon requests the contents of a checkpoint.
    pub(super) fn load(&mut self, slot: Slot, question: u64, app: Tid, from: Option<CheckpointId>) {
        if self.own_stores {
            return self.load_own(slot, question, app, from);
        }
        let found = self.stored_checkpoint(app, from).cloned();
        let found = found.filter(|_| !self.random.percent(5));
        let loaded = found.map(|checkpoint| {
            Box::new(Loaded {
                checkpoint,
                passed_over: Vec::new(),
                age_ms: 1_000,
            })
        });
        let failed = Failed::new(FailKind::System, "it cannot be read");
        let delay = self.random.between(100, 200 * MS);
        let input = Input::Store(StoreInput::Loaded(question, loaded.ok_or(failed)));
        self.queue.after(delay, Event::Input(slot, input));
    }

    /// A daemon restores the process of a task from its image in the store.
    pub(super) fn restore(&mut self, slot: Slot, tid: Tid, app: Tid, from: CheckpointId) {
        self.restore_from(slot, slot, tid, (app, from.epoch));
    }

    /// Like `restore`, from the image on the disk of another daemon.
    pub(super) fn restore_from(&mut self, disk: Slot, slot: Slot, tid: Tid, key: CutKey) {
        let is_there = self.is_on_disk(disk, key, tid);
        let images = self.store.images.get(&key).filter(|_| is_there);
        let saved = images.and_then(|images| images.get(&tid)).cloned();
        let Some(Saved { program, at }) = saved.filter(|_| !self.random.percent(4)) else {
            let failed = Failed::new(FailKind::System, "it cannot be brought back");
            let delay = self.random.between(100, 50 * MS);
            let input = Input::Move(MoveInput::Arrived(tid, Err(failed)));
            return self.queue.after(delay, Event::Input(slot, input));
        };
        let shown = self.nodes[slot].time(self.queue.now());
        let index = self.new_process(slot, tid, None);
        let process = &mut self.processes[index];
        let mut program = program;
        program.lose_rings();
        program.lose_directs();
        process.program = Some(program);
        process.offset = at.0 as i64 - shown.0 as i64;
        process.gait = Gait::Stands;
        self.trace(|| format!("{tid} is brought back on slot {slot}, of epoch {}", key.1));
        let delay = self.random.between(100, 300 * MS);
        self.queue.after(
            delay,
            Event::FromProcess(index, Input::Move(MoveInput::Arrived(tid, Ok(())))),
        );
    }

    /// Handles a restored process that resumes. If it is the first one of a new generation of its
    /// application, no process of an earlier generation may run.
    pub(super) fn begins_life(
        &mut self,
        slot: Slot,
        tid: Tid,
        generation: u32,
    ) -> Result<(), String> {
        let Some(index) = self.process_of(slot, tid) else {
            return Ok(());
        };
        let program = self.processes[index].program.as_ref();
        let Some(app) = program.map(|program| program.app()) else {
            return Ok(());
        };
        let life = self.store.lives.get(&app).copied().unwrap_or(0);
        if generation <= life {
            return Ok(());
        }
        let Some(agreed) = self.nodes[slot].agreed() else {
            return Ok(());
        };
        let cut = agreed.epochs(app).saved;
        // Tasks that were spawned after the cut do not exist in this generation.
        let known = |tid: &Tid| agreed.task(*tid).is_some();
        if let Some(roster) = self.rosters.get_mut(&app) {
            roster.retain(known);
        }
        let of_app = |other: &Process| {
            let its = other.program.as_ref().is_some_and(|it| it.app() == app);
            other.alive && its
        };
        let runs = |other: &&Process| of_app(other) && other.gait == Gait::Runs && !other.discarded;
        if let Some(other) = self.processes.iter().find(runs) {
            return Err(format!(
                "{} of an earlier life runs when {tid} begins the next one, {generation}",
                other.tid
            ));
        }
        self.store.lives.insert(app, generation);
        self.turns.note(Turn::Restarted);
        self.trace(|| format!("{app} goes on in generation {generation}, from epoch {cut}"));
        let saved = self
            .store
            .ledgers
            .get(&(app, cut))
            .cloned()
            .unwrap_or_default();
        let members: Vec<Tid> = self.store.images[&(app, cut)].keys().copied().collect();
        let is_of = |tid: Tid| {
            let of = |other: &Process| {
                other.tid == tid && other.program.as_ref().is_some_and(|it| it.app() == app)
            };
            self.processes.iter().any(of)
        };
        let gone: Vec<Tid> = self
            .ledger
            .tasks()
            .into_iter()
            .filter(|tid| is_of(*tid))
            .collect();
        self.ledger.roll_back(&saved, |tid| gone.contains(&tid));
        for member in members {
            self.left_at.remove(&member);
        }
        Ok(())
    }
}
