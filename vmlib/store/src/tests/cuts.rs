//! The power is cut at every operation, and what was not synced survives in many ways.

use super::{
    APP,
    disk::{CutDisk, Lie, ROOT},
    id, parts, save, write,
};
use crate::{CheckpointId, Depth, Manifest, State, Store, StoreError, name};
use std::collections::{BTreeMap, BTreeSet};

/// What must be there after a cut, whenever it comes.
#[derive(Default, Clone)]
struct Promise {
    /// Whole, for sure.
    committed: BTreeMap<CheckpointId, Manifest>,
    /// Being committed or removed: whole or not there, not in between.
    open: BTreeSet<CheckpointId>,
}

impl Promise {
    fn save(&mut self, store: &Store<CutDisk>, epoch: u32) -> Result<(), StoreError> {
        let id = id(epoch);
        self.open.insert(id);
        let manifest = save(store, id)?;
        self.open.remove(&id);
        self.committed.insert(id, manifest);
        Ok(())
    }

    fn prune(&mut self, store: &Store<CutDisk>, keep: usize) -> Result<(), StoreError> {
        let old = self.committed.len().saturating_sub(keep);
        let old: Vec<_> = self.committed.keys().copied().take(old).collect();
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

/// All that is done with a store: the promise grows as it goes on.
fn life(store: &Store<CutDisk>, promise: &mut Promise) -> Result<(), StoreError> {
    promise.save(store, 1)?;
    promise.save(store, 2)?;

    // A part that is not finished, a checkpoint that is given up.
    let writer = store.begin(APP, id(3))?;
    drop(writer.part(&name::image(APP, APP), "alpha", None)?);
    parts(&writer, id(3))?;
    writer.abort()?;

    promise.save(store, 4)?;
    promise.prune(store, 2)?;

    // One that nobody goes on with.
    let writer = store.begin(APP, id(5))?;
    write(&writer, id(5), &name::image(APP, APP))?;
    promise.save(store, 6)?;
    promise.prune(store, 1)
}

/// What whoever comes after a cut does: another checkpoint, and only that one.
fn next(store: &Store<CutDisk>, promise: &mut Promise) -> Result<(), StoreError> {
    promise.save(store, 9)?;
    // What was in the balance is settled by now: it is older than this one, and may go.
    promise.prune(store, 1)
}

fn store(disk: &CutDisk) -> Store<CutDisk> {
    Store::on(disk.clone(), ROOT.into())
}

fn good(store: &Store<CutDisk>) -> Option<CheckpointId> {
    let found = store.last_good(APP).expect("the root is there");
    found.good.map(|(id, _)| id)
}

/// Everything that breaks when the power is cut at any operation of a life, and then at any of
/// what follows it.
fn breaks(lie: Lie) -> Vec<String> {
    let mut found = Vec::new();
    for last in 0.. {
        let disk = CutDisk::new(last, lie);
        let mut promise = Promise::default();
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
            assert!(
                !settled || lie != Lie::Nothing || left == 1,
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
        if done {
            assert!(last > 100, "a life has more operations than {last}");
            return found;
        }
    }
    unreachable!("a life ends");
}

#[test]
fn what_was_committed_survives_every_cut_and_nothing_half_looks_whole() {
    let found = breaks(Lie::Nothing);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_disk_that_lies_about_a_sync_is_noticed_by_this_test() {
    assert!(!breaks(Lie::Files).is_empty());
    assert!(!breaks(Lie::Folders).is_empty());
}
