//! Old checkpoints go, or all of an application, so that a cut in the middle leaves none that looks
//! whole and is not. Where there is a quota, what is written has the oldest ones of all applications go
//! that are not the last good one of theirs.

use crate::{
    disk::Disk,
    error::{Step, StoreError},
    listing::Depth,
    name,
    store::Store,
};
use std::{collections::BTreeSet, io};
use vm_wire::{CheckpointId, Tid};

/// What [`Store::prune`] did.
#[derive(Debug, Default)]
pub struct Pruned {
    /// What is gone, newest first.
    pub removed: Vec<CheckpointId>,
    /// What should be gone and is still there in part, and why. It counts as unfinished, and the
    /// next call tries again.
    pub failed: Vec<(CheckpointId, StoreError)>,
}

impl<D: Disk> Store<D> {
    /// Removes old checkpoints of an application, and the images of tasks that were suspended alone
    /// before it went back to one. The `keep` newest good ones stay (at least one,
    /// even for 0), and what is newer than the oldest of these, if it is not unfinished and older
    /// than the newest good one. What any of these is an increment of stays, too. All else goes. If
    /// there are not so many good ones, none of them goes. Good is what is whole to this depth.
    ///
    /// # Errors
    /// [`StoreError::System`]; nothing was removed then. What cannot be removed is in the answer.
    pub fn prune(&self, app: Tid, keep: usize, depth: Depth) -> Result<Pruned, StoreError> {
        let mut good: Vec<CheckpointId> = Vec::new();
        let mut needed = BTreeSet::new();
        let mut old = Vec::new();
        for id in self.ids(app)?.into_iter().rev() {
            if good.len() >= keep.max(1) {
                old.push(id);
                continue;
            }
            match self.look(app, id, depth) {
                Ok(manifest) => {
                    needed.extend(manifest.base());
                    good.push(id);
                }
                Err(StoreError::Unfinished { .. }) if !good.is_empty() => old.push(id),
                // It may be copied again.
                Err(_) => needed.extend(self.read(app, id).ok().and_then(|it| it.base())),
            }
        }
        old.retain(|id| !needed.contains(id));
        if let Some(newest) = good.first() {
            // The application went back, and with it those tasks. If one cannot go, it is tried again.
            let _ = self.drop_suspended(app, |_, generation| generation < newest.generation);
        }
        let mut pruned = Pruned::default();
        if old.is_empty() {
            return Ok(pruned);
        }
        // Whoever committed them may have been interrupted before they were safe.
        for id in good {
            let folder = self.folder(app, id);
            self.disk().sync_dir(&folder).step("sync", &folder)?;
        }
        for folder in [&self.app_folder(app), self.root()] {
            self.disk().sync_dir(folder).step("sync", folder)?;
        }
        // Newest first: so an increment goes before its base.
        for id in old {
            match self.retire(app, id) {
                Ok(true) => pruned.removed.push(id),
                Ok(false) => {}
                Err(why) => pruned.failed.push((id, why)),
            }
        }
        Ok(pruned)
    }

    /// Removes a checkpoint of which nobody needs more than an increment may; whether all of it went.
    fn retire(&self, app: Tid, id: CheckpointId) -> Result<bool, StoreError> {
        unmake(self, app, id)?;
        // Another process may have committed an increment of it meanwhile. From here on it commits none:
        // it looks for the manifest.
        match self.needed(app)?.contains(&id) {
            true => Ok(false),
            false => clear(self, app, id).map(|()| true),
        }
    }

    /// Sees to it that so many bytes may be written within a quota, by removing the oldest checkpoints of
    /// whatever application: never its newest good one, nor what that is an increment of, nor what is
    /// newer. How many bytes may be written then, which may be fewer.
    ///
    /// # Errors
    /// [`StoreError::Full`] when there is room for none, [`StoreError::System`].
    pub fn make_room(&self, quota: u64, wanted: u64) -> Result<u64, StoreError> {
        let mut old = None;
        loop {
            let room = self.room(quota);
            if !matches!(&room, Err(StoreError::Full { .. }) | Ok(_))
                || room.as_ref().is_ok_and(|left| *left >= wanted)
            {
                return room;
            }
            let old = match &mut old {
                Some(old) => old,
                None => old.insert(self.dispensable()?),
            };
            if !self.drop_oldest(old)? {
                return room;
            }
        }
    }

    /// Removes the first of these of which no other one is an increment. Whether there was one.
    fn drop_oldest(&self, old: &mut Vec<(u64, Tid, CheckpointId)>) -> Result<bool, StoreError> {
        for at in 0..old.len() {
            let (_, app, id) = old[at];
            if !self.needed(app)?.contains(&id) {
                old.remove(at);
                // If it cannot be removed, another one can perhaps.
                return match self.retire(app, id) {
                    Ok(_) => Ok(true),
                    Err(_) => self.drop_oldest(old),
                };
            }
        }
        Ok(false)
    }

    /// What may go for want of room, by age, oldest first: of each application what is older than its newest
    /// good checkpoint and not the base of that. The manifest of that one is on the disk by then.
    fn dispensable(&self) -> Result<Vec<(u64, Tid, CheckpointId)>, StoreError> {
        let mut old = Vec::new();
        for app in self.apps()? {
            let mut good = None;
            for id in self.ids(app)?.into_iter().rev() {
                let manifest = self.look(app, id, Depth::Lengths);
                let Some((_, base)) = good else {
                    good = manifest.ok().map(|manifest| (id, manifest.base()));
                    continue;
                };
                if base != Some(id) {
                    let taken = self.read(app, id).map_or(0, |manifest| manifest.taken_ms);
                    old.push((taken, app, id));
                }
            }
            if let Some((id, _)) = good {
                for folder in [&self.folder(app, id), &self.app_folder(app)] {
                    self.disk().sync_dir(folder).step("sync", folder)?;
                }
            }
        }
        old.sort();
        Ok(old)
    }

    /// Removes one checkpoint, whatever is there of it. None there is no error.
    ///
    /// # Errors
    /// [`StoreError::System`]: what is left of it is unfinished.
    pub fn remove(&self, app: Tid, id: CheckpointId) -> Result<(), StoreError> {
        match self.ids(app)?.contains(&id) {
            true => remove(self, app, id),
            false => Ok(()),
        }
    }

    /// Removes all checkpoints of an application that is not to be brought back any more, newest
    /// first. None there is no error.
    ///
    /// # Errors
    /// [`StoreError::System`] at the first one that cannot be removed; older ones stay.
    pub fn forget(&self, app: Tid) -> Result<(), StoreError> {
        // So an increment goes before its base.
        for id in self.ids(app)?.into_iter().rev() {
            remove(self, app, id)?;
        }
        self.drop_suspended(app, |_, _| true)?;
        // What is not of the store stays there, too.
        let _ = self.disk().remove_dir(&self.suspended_folder(app));
        let folder = self.app_folder(app);
        match self.disk().remove_dir(&folder) {
            // What is not of the store stays, and with it the folder.
            Err(cause)
                if !matches!(
                    cause.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Err(cause).step("remove", &folder)
            }
            _ => self.disk().sync_dir(self.root()).step("sync", self.root()),
        }
    }
}

/// Removes a checkpoint: first what makes it one, and the rest only when that is gone for good.
/// Files that are not of the store stay, and with them the folder.
pub(crate) fn remove<D: Disk>(
    store: &Store<D>,
    app: Tid,
    id: CheckpointId,
) -> Result<(), StoreError> {
    unmake(store, app, id)?;
    clear(store, app, id)
}

/// Removes what is left of a checkpoint.
fn clear<D: Disk>(store: &Store<D>, app: Tid, id: CheckpointId) -> Result<(), StoreError> {
    let disk = store.disk();
    let folder = store.folder(app, id);
    for file in gone(disk.list(&folder)).step("list", &folder)? {
        if name::is_ours(&file) {
            let file = folder.join(file);
            gone(disk.remove(&file)).step("remove", &file)?;
        }
    }
    gone(disk.remove_dir(&folder)).step("remove", &folder)?;
    let above = store.app_folder(app);
    disk.sync_dir(&above).step("sync", &above)
}

/// Hosts that share a store may clear up the same at one time.
fn gone<T: Default>(removed: io::Result<T>) -> io::Result<T> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        removed => removed,
    }
}

/// Removes what makes it a checkpoint. It is gone for good when this returns.
pub(crate) fn unmake<D: Disk>(
    store: &Store<D>,
    app: Tid,
    id: CheckpointId,
) -> Result<(), StoreError> {
    let disk = store.disk();
    let folder = store.folder(app, id);
    let manifest = folder.join(name::MANIFEST);
    match disk.remove(&manifest) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(cause).step("remove", &manifest)
        }
        _ => gone(disk.sync_dir(&folder)).step("sync", &folder),
    }
}
