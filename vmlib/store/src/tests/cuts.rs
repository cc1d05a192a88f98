//! The power is cut at every operation. Data that was not synced survives in part.

use super::{
    APP, TASKS,
    disk::{CutDisk, Lie, ROOT},
    id,
    image::{Image, bytes_of},
    increments::save_images,
    parts, save, write,
};
use crate::{CheckpointId, Depth, Manifest, State, Store, StoreError, limits::BLOCK, name};
use std::collections::{BTreeMap, BTreeSet};

/// The state that must be found after a cut of the power.
#[derive(Default, Clone)]
struct Promise {
    /// Checkpoints that are whole for certain.
    committed: BTreeMap<CheckpointId, Manifest>,
    /// Checkpoints that are being committed or removed: each is whole or absent.
    open: BTreeSet<CheckpointId>,
    /// Checkpoints have images with blocks, so that most are increments.
    images: bool,
    /// Number of committed checkpoints that are increments.
    increments: usize,
}

impl Promise {
    fn save(&mut self, store: &Store<CutDisk>, id: CheckpointId) -> Result<(), StoreError> {
        let epoch = id.epoch;
        self.open.insert(id);
        let manifest = match self.images {
            // The full checkpoint is compressed, and so are some of its increments.
            true => save_images(
                &store.clone().compressed(epoch % 3 != 2),
                id,
                &[(APP, &image(epoch, 1)), (TASKS[1], &image(epoch, 2))],
            )?,
            false => save(store, id)?,
        };
        self.open.remove(&id);
        self.increments += usize::from(manifest.base().is_some());
        self.committed.insert(id, manifest);
        Ok(())
    }

    fn prune(&mut self, store: &Store<CutDisk>, keep: usize) -> Result<(), StoreError> {
        let kept = self.committed.iter().rev().take(keep);
        let kept = kept.flat_map(|(id, manifest)| [Some(*id), manifest.base()]);
        let kept: BTreeSet<_> = kept.flatten().collect();
        let ids = self.committed.keys().copied();
        let old: Vec<_> = ids.filter(|id| !kept.contains(id)).collect();
        for id in &old {
            self.committed.remove(id);
            self.open.insert(*id);
        }
        let pruned = store.prune(APP, keep, Depth::Hashes)?;
        if let Some((_, why)) = pruned.failed.into_iter().next() {
            return Err(why);
        }
        for id in &old {
            self.open.remove(id);
        }
        Ok(())
    }

    /// The first contradiction between the store and the promise.
    fn broken(&self, store: &Store<CutDisk>) -> Option<String> {
        let entries = store.list().expect("the root is there");
        for entry in &entries {
            let sure = self.committed.contains_key(&entry.id);
            let may = sure || self.open.contains(&entry.id);
            match &entry.state {
                State::Committed(_) if !may => return Some(format!("{} came back", entry.id)),
                State::Unfinished { .. } if sure => return Some(format!("{} is lost", entry.id)),
                State::Damaged(why) => return Some(why.to_string()),
                State::Unfinished { .. } => {}
                State::Committed(_) => {
                    if let Err(why) = store.verify(APP, entry.id) {
                        return Some(why.to_string());
                    }
                }
            }
        }
        for (id, manifest) in &self.committed {
            match store.verify(APP, *id) {
                Ok(found) if found == *manifest => {}
                found => return Some(format!("{id}: {found:?}")),
            }
        }
        let good = good(store);
        let newest = self.committed.keys().next_back().copied();
        (good < newest).then(|| format!("{good:?} is offered, and there is {newest:?}"))
    }
}

/// The image of each epoch has another changed page.
fn image(epoch: u32, seed: u64) -> Vec<u8> {
    let mut memory = bytes_of(5 * BLOCK, seed);
    memory[epoch as usize % 5 * BLOCK..][..4].copy_from_slice(&epoch.to_le_bytes());
    Image::new().section(&memory).bytes()
}

/// All calls of a store, one after the other. The promise grows with each call.
fn life(store: &Store<CutDisk>, promise: &mut Promise) -> Result<(), StoreError> {
    promise.save(store, id(1))?;
    promise.save(store, id(2))?;

    // A part that is not finished, and a checkpoint that is aborted.
    let writer = store.begin(APP, id(3))?;
    drop(writer.part(&name::image(APP, APP), "alpha", None)?);
    parts(&writer, id(3))?;
    writer.abort()?;

    promise.save(store, id(4))?;
    promise.prune(store, 2)?;

    // A checkpoint that is begun and never finished.
    let writer = store.begin(APP, id(5))?;
    write(&writer, id(5), &name::image(APP, APP))?;
    promise.save(store, id(6))?;
    promise.prune(store, 1)?;

    // A full checkpoint: increments and their base are removed together.
    promise.save(store, CheckpointId::new(2, 7))?;
    promise.prune(store, 1)
}

/// The calls after a cut of the power: one more checkpoint, then a prune that keeps only that.
fn next(store: &Store<CutDisk>, promise: &mut Promise) -> Result<(), StoreError> {
    // The newest generation, so that the checkpoint can be an increment.
    let newest = store.ids(APP)?.pop();
    let generation = newest.map_or(1, |newest| newest.generation);
    promise.save(store, CheckpointId::new(generation, 9))?;
    // The state of every older checkpoint is settled by now, and all of them may be removed.
    promise.prune(store, 1)
}

fn store(disk: &CutDisk) -> Store<CutDisk> {
    Store::on(disk.clone(), ROOT.into())
}

fn good(store: &Store<CutDisk>) -> Option<CheckpointId> {
    let found = store
        .last_good(APP, Depth::Hashes)
        .expect("the root is there");
    found.good.map(|(id, _)| id)
}

/// Everything that breaks when the power is cut at any operation of [`life`], and then at any
/// operation of [`next`].
fn breaks(lie: Lie, images: bool) -> Vec<String> {
    let mut found = Vec::new();
    for last in 0.. {
        let disk = CutDisk::new(last, lie);
        let mut promise = Promise {
            images,
            ..Promise::default()
        };
        let done = life(&store(&disk), &mut promise).is_ok();
        assert_eq!(done, disk.operations() <= last, "the cut alone is an error");
        for seed in 0..24 {
            let again = disk.after_cut(seed, usize::MAX);
            let wrong = promise.broken(&store(&again));
            found.extend(wrong.map(|wrong| format!("cut {last}, seed {seed}: {wrong}")));
        }
        for seed in 0..6 {
            let last_too = (last * 7 + seed as usize * 5) % 40;
            let again = disk.after_cut(seed, last_too);
            let mut promise = promise.clone();
            let settled = next(&store(&again), &mut promise).is_ok();
            let third = again.after_cut(seed, usize::MAX);
            let wrong = promise.broken(&store(&third));
            let at = format!("cuts {last} and {last_too}, seed {seed}");
            found.extend(wrong.map(|wrong| format!("{at}: {wrong}")));
            let left = store(&third).list().expect("the root is there").len();
            // The last checkpoint and its base, which may be a checkpoint that was open at the cut.
            let last = promise.committed.values().next_back();
            let expected = 1 + usize::from(last.is_some_and(|it| it.base().is_some()));
            assert!(
                !settled || lie != Lie::Nothing || left == expected,
                "{at}: {left} are left"
            );
        }
        // The process is killed, another process prunes the store, and only then the power is cut.
        let other = disk.after_kill();
        let kept = good(&store(&other));
        let pruned = store(&other).prune(APP, 1, Depth::Lengths);
        let pruned = pruned.expect("the disk is in order");
        assert!(pruned.failed.is_empty());
        for seed in 0..24 {
            let left = good(&store(&other.after_cut(seed, usize::MAX)));
            if left != kept && !pruned.removed.is_empty() {
                found.push(format!("killed at {last}, pruned: {left:?}, not {kept:?}"));
            }
        }
        // Another process continues after the kill, and then the power is cut.
        let other = disk.after_kill();
        let mut settled = promise.clone();
        next(&store(&other), &mut settled).expect("the disk is in order");
        for seed in 0..24 {
            let wrong = settled.broken(&store(&other.after_cut(seed, usize::MAX)));
            found.extend(wrong.map(|wrong| format!("killed at {last}, gone on: {wrong}")));
        }
        if done {
            assert!(last > 100, "a life has more operations than {last}");
            let increments = if images { 3 } else { 0 };
            assert_eq!(promise.increments, increments);
            return found;
        }
    }
    unreachable!("a life ends");
}

#[test]
fn what_was_committed_survives_every_cut_and_nothing_half_looks_whole() {
    for images in [false, true] {
        let found = breaks(Lie::Nothing, images);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn a_disk_that_lies_about_a_sync_is_noticed_by_this_test() {
    for images in [false, true] {
        assert!(!breaks(Lie::Files, images).is_empty());
        assert!(!breaks(Lie::Folders, images).is_empty());
    }
}
