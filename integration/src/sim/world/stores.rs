//! Hosts with stores of their own, in a third of the seeds: the parts of a checkpoint go to two
//! disks, and a restart reads them where they are.
//!
//! A disk belongs to its host, by name, and cannot be reached while the host is down. The content
//! of images, and the commits, are in the table of all stores ([`super::state::store::Store`]).
//! This file records only which disk has which part.

use super::state::{
    Event, World,
    disks::{Disk, PartSent},
    store::CutKey,
};
use crate::sim::{
    network::Slot,
    node::slot_of,
    queue::{MS, SECOND},
};
use vm_machine::{Input, StoreInput, StoreOutput};
use vm_wire::{
    CheckpointId, Tid,
    checkpoint::{Checkpoint, Loaded},
    limits,
    stores::StockRow,
    task::{FailKind, Failed},
};

fn failed(text: &str) -> Failed {
    Failed::new(FailKind::System, text)
}

impl World {
    fn disk(&mut self, slot: Slot) -> &mut Disk {
        let name = self.nodes[slot].name.clone();
        self.disks.by_name.entry(name).or_default()
    }

    /// Records that an image is whole in the store of its host.
    pub(super) fn put_on_disk(&mut self, slot: Slot, key: CutKey, tid: Tid) {
        self.disk(slot).parts.insert((key, tid));
    }

    /// Whether the image of a task can be read from the disk of this slot.
    pub(super) fn is_on_disk(&mut self, slot: Slot, key: CutKey, tid: Tid) -> bool {
        !self.own_stores || self.disk(slot).parts.contains(&(key, tid))
    }

    /// Whether a host's disk has all that it is to have of a checkpoint.
    pub(super) fn can_commit(&mut self, slot: Slot, checkpoint: &Checkpoint) -> bool {
        let agreed = &checkpoint.agreed;
        let (key, name) = ((agreed.app, agreed.epoch), self.nodes[slot].name.clone());
        let parts = agreed.tasks.iter().zip(&checkpoint.parts);
        let own = parts.filter(|(_, part)| {
            part.image.place == name || part.image.copy.as_ref() == Some(&name)
        });
        let disk = self.disk(slot);
        own.map(|(task, _)| task.tid)
            .all(|tid| disk.parts.contains(&(key, tid)))
    }

    /// Records that a host has committed a checkpoint.
    pub(super) fn put_manifest(&mut self, slot: Slot, checkpoint: &Checkpoint) {
        let key = (checkpoint.agreed.app, checkpoint.agreed.epoch);
        self.disk(slot).manifests.insert(key, checkpoint.clone());
    }

    /// Removes the parts of an aborted checkpoint from a host's disk, unless the checkpoint is
    /// committed there.
    pub(super) fn drop_from_disk(&mut self, slot: Slot, key: CutKey) {
        let disk = self.disk(slot);
        if !disk.manifests.contains_key(&key) {
            disk.parts.retain(|(of, _)| *of != key);
        }
    }

    /// Carries out an order of a daemon to a store that is not shared.
    pub(super) fn use_stores(&mut self, slot: Slot, order: StoreOutput) {
        match order {
            StoreOutput::ExpectCopy {
                ticket,
                tid,
                app,
                from,
                ..
            } => {
                let copy = ((app, from.epoch), tid);
                self.disks.copies.insert((slot, ticket), copy);
            }
            StoreOutput::CancelPart(ticket) => {
                self.disks.copies.remove(&(slot, ticket));
            }
            StoreOutput::SendPart {
                ticket,
                addr,
                app,
                from,
                file,
                ..
            } => {
                let Some(to) = slot_of(&addr).filter(|to| *to < self.nodes.len()) else {
                    return;
                };
                let sent = PartSent {
                    from: slot,
                    to,
                    ticket,
                    key: (app, from.epoch),
                    file,
                };
                let longest = if self.random.percent(20) {
                    SECOND
                } else {
                    50 * MS
                };
                let delay = self.random.between(200, longest);
                self.queue.after(delay, Event::PartCrosses(sent));
            }
            StoreOutput::Inventory {
                question,
                app,
                from,
                ..
            } => {
                let rows = self.stock_of(slot, app, from);
                let unread = self.random.percent(3);
                let result = match unread {
                    true => Err(failed("the disk has failed")),
                    false => Ok(rows),
                };
                let delay = self.random.between(100, 100 * MS);
                let input = Input::Store(StoreInput::Inventory(question, result));
                self.queue.after(delay, Event::Input(slot, input));
            }
            _ => {}
        }
    }

    fn stock_of(&mut self, slot: Slot, app: Tid, from: Option<CheckpointId>) -> Vec<StockRow> {
        let disk = &*self.disk(slot);
        let manifests = disk.manifests.iter().rev();
        let rows = manifests.filter(|((of, _), _)| *of == app);
        let rows = rows.map(|(key, checkpoint)| {
            let agreed = &checkpoint.agreed;
            let tids = agreed.tasks.iter().map(|task| task.tid);
            StockRow {
                generation: agreed.generation,
                epoch: agreed.epoch,
                tasks: agreed.tasks.len() as u32,
                here: tids
                    .filter(|tid| disk.parts.contains(&(*key, *tid)))
                    .collect(),
                flaws: Vec::new(),
            }
        });
        let wanted = |row: &StockRow| {
            from.is_none_or(|it| it == CheckpointId::new(row.generation, row.epoch))
        };
        rows.filter(wanted).take(limits::STOCK_MAX).collect()
    }

    /// A daemon requests the contents of a checkpoint whose manifest is on its disk.
    pub(super) fn load_own(
        &mut self,
        slot: Slot,
        question: u64,
        app: Tid,
        from: Option<CheckpointId>,
    ) {
        let of_app = from.map(|from| (app, from.epoch));
        let disk = self.disk(slot);
        let found = of_app.and_then(|key| disk.manifests.get(&key).cloned());
        let found = found.filter(|_| !self.random.percent(5));
        let loaded = found.map(|checkpoint| {
            Box::new(Loaded {
                checkpoint,
                passed_over: Vec::new(),
                age_ms: 1_000,
            })
        });
        let delay = self.random.between(100, 200 * MS);
        let input = Input::Store(StoreInput::Loaded(
            question,
            loaded.ok_or(failed("it is not in this store")),
        ));
        self.queue.after(delay, Event::Input(slot, input));
    }

    /// Handles a part that arrives at the host that requested it, or is lost.
    pub(super) fn part_crosses(&mut self, sent: PartSent) -> Result<(), String> {
        let PartSent {
            from,
            to,
            ticket,
            key,
            file,
        } = sent;
        if !self.nodes[from].is_alive() {
            return Ok(());
        }
        let (link, _) = self.network.link(from, to);
        let lost = link.is_blocked() || !self.nodes[to].is_alive() || self.random.percent(4);
        let tid = match file {
            _ if lost => None,
            true => self.disks.copies.remove(&(to, ticket)).map(|(_, tid)| tid),
            false => self.expected.remove(&(to, ticket)),
        };
        let tid = tid.filter(|tid| self.is_on_disk(from, key, *tid));
        let Some(tid) = tid else {
            let why = failed("it cannot be sent");
            return self.feed(from, Input::Store(StoreInput::PartSent(ticket, Err(why))));
        };
        if !file {
            self.restore_from(from, to, tid, key);
        } else if self.random.percent(4) {
            let why = failed("no space left on device");
            self.feed(to, Input::Store(StoreInput::CopyTaken(ticket, Err(why))))?;
        } else {
            self.put_on_disk(to, key, tid);
            self.feed(to, Input::Store(StoreInput::CopyTaken(ticket, Ok(()))))?;
        }
        self.feed(from, Input::Store(StoreInput::PartSent(ticket, Ok(()))))
    }
}
