//! The power is cut at every operation, and what was not synced survives in many ways.

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

/// What must be there after a cut, whenever it comes.
#[derive(Default, Clone)]
struct Promise {
    /// Whole, for sure.
    committed: BTreeMap<CheckpointId, Manifest>,
    /// Being committed or removed: whole or not there, not in between.
    open: BTreeSet<CheckpointId>,
    /// Checkpoints are of images, so that most are increments.
    images: bool,
    /// So many are, which were committed.
    increments: usize,
}

impl Promise {
    fn save(&mut self, store: &Store<CutDisk>, id: CheckpointId) -> Result<(), StoreError> {
        let epoch = id.epoch;
        self.open.insert(id);
        let manifest = match self.images {
            // The full one is compressed, and some of its increments are.
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

    /// What is broken of it.
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

/// Each has another page than the others.
fn image(epoch: u32, seed: u64) -> Vec<u8> {
    let mut memory = bytes_of(5 * BLOCK, seed);
    memory[epoch as usize % 5 * BLOCK..][..4].copy_from_slice(&epoch.to_le_bytes());
    Image::new().section(&memory).bytes()
}

/// All that is done with a store: the promise grows as it goes on.
fn life(store: &Store<CutDisk>, promise: &mut Promise) -> Result<(), StoreError> {
    promise.save(store, id(1))?;
    promise.save(store, id(2))?;

    // A part that is not finished, a checkpoint that is given up.
    let writer = store.begin(APP, id(3))?;
    drop(writer.part(&name::image(APP, APP), "alpha", None)?);
    parts(&writer, id(3))?;
    writer.abort()?;

    promise.save(store, id(4))?;
    promise.prune(store, 2)?;

    // One that nobody goes on with.
    let writer = store.begin(APP, id(5))?;
    write(&writer, id(5), &name::image(APP, APP))?;
    promise.save(store, id(6))?;
    promise.prune(store, 1)?;

    // A full one, so that increments and their base go together.
    promise.save(store, CheckpointId::new(2, 7))?;
    promise.prune(store, 1)
}

/// What whoever comes after a cut does: another checkpoint, and only that one.
fn next(store: &Store<CutDisk>, promise: &mut Promise) -> Result<(), StoreError> {
    // So it may be an increment.
    let newest = store.ids(APP)?.pop();
    let generation = newest.map_or(1, |newest| newest.generation);
    promise.save(store, CheckpointId::new(generation, 9))?;
    // What was in the balance is settled by now: it is older than this one, and may go.
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

/// Everything that breaks when the power is cut at any operation of a life, and then at any of
/// what follows it.
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
            // The last one, and what it is an increment of: perhaps one that was in the balance.
            let last = promise.committed.values().next_back();
            let expected = 1 + usize::from(last.is_some_and(|it| it.base().is_some()));
            assert!(
                !settled || lie != Lie::Nothing || left == expected,
                "{at}: {left} are left"
            );
        }
        // The process is killed, another one prunes what it left, and only then the power is cut.
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
        // Another one goes on where it was killed, and then the power is cut.
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
