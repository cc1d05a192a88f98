//! Removes old checkpoints of an application, or all its checkpoints.
//!
//! A power cut in the middle leaves no checkpoint that looks whole and is not. If the store has a
//! quota, writing removes the oldest checkpoints of all applications, except the last good
//! checkpoint of each.

use crate::{
    disk::Disk,
    error::{Step, StoreError},
    listing::Depth,
    name,
    store::Store,
};
use std::{collections::BTreeSet, io};
use vm_wire::{CheckpointId, Tid};

/// The result of [`Store::prune`].
#[derive(Debug, Default)]
pub struct Pruned {
    /// Removed checkpoints, newest first.
    pub removed: Vec<CheckpointId>,
    /// Checkpoints that could not be removed completely, each with the reason. These checkpoints
    /// count as unfinished, and the next call tries again.
    pub failed: Vec<(CheckpointId, StoreError)>,
}

impl<D: Disk> Store<D> {
    /// Removes old checkpoints of an application, and the images of tasks that were suspended in an
    /// earlier generation than that of the newest good checkpoint. A checkpoint is good if it is
    /// whole to this depth. These checkpoints stay:
    ///
    /// - the `keep` newest good checkpoints (at least one, even for 0);
    /// - checkpoints newer than the oldest of these, except unfinished ones older than the newest
    ///   good one;
    /// - the bases of these checkpoints.
    ///
    /// If there are fewer than `keep` good checkpoints, all good checkpoints stay.
    ///
    /// # Errors
    /// [`StoreError::System`]; nothing was removed then. Checkpoints that cannot be removed are in
    /// the result.
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
                // A damaged part may be copied again, so the base stays.
                Err(_) => needed.extend(self.read(app, id).ok().and_then(|it| it.base())),
            }
        }
        old.retain(|id| !needed.contains(id));
        if let Some(newest) = good.first() {
            // The restart that began the newest generation made these images useless. The next call
            // tries a failed removal again.
            let _ = self.drop_suspended(app, |_, generation| generation < newest.generation);
        }
        let mut pruned = Pruned::default();
        if old.is_empty() {
            return Ok(pruned);
        }
        // A process that committed them may have been interrupted before it synced the folders.
        for id in good {
            let folder = self.folder(app, id);
            self.disk().sync_dir(&folder).step("sync", &folder)?;
        }
        for folder in [&self.app_folder(app), self.root()] {
            self.disk().sync_dir(folder).step("sync", folder)?;
        }
        // Newest first: an increment is removed before its base.
        for id in old {
            match self.retire(app, id) {
                Ok(true) => pruned.removed.push(id),
                Ok(false) => {}
                Err(why) => pruned.failed.push((id, why)),
            }
        }
        Ok(pruned)
    }

    /// Removes a checkpoint that can only be needed as a base. Returns whether the whole checkpoint
    /// was removed.
    fn retire(&self, app: Tid, id: CheckpointId) -> Result<bool, StoreError> {
        unmake(self, app, id)?;
        // Another process may have committed an increment of this checkpoint meanwhile. From here
        // on no process commits such an increment, because the commit looks for the manifest of the
        // base.
        match self.needed(app)?.contains(&id) {
            true => Ok(false),
            false => clear(self, app, id).map(|()| true),
        }
    }

    /// Makes room for `wanted` bytes within a quota: removes the oldest checkpoints of all
    /// applications, but never the newest good checkpoint of an application, its base, or a newer
    /// checkpoint. Returns the number of bytes that may be written, which may be less than
    /// `wanted`.
    ///
    /// # Errors
    /// [`StoreError::Full`] when no byte may be written, [`StoreError::System`].
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

    /// Removes the first of these checkpoints that no other checkpoint is an increment of. Returns
    /// whether there was one.
    fn drop_oldest(&self, old: &mut Vec<(u64, Tid, CheckpointId)>) -> Result<bool, StoreError> {
        for at in 0..old.len() {
            let (_, app, id) = old[at];
            if !self.needed(app)?.contains(&id) {
                old.remove(at);
                // If the checkpoint cannot be removed, the next checkpoint is tried.
                return match self.retire(app, id) {
                    Ok(_) => Ok(true),
                    Err(_) => self.drop_oldest(old),
                };
            }
        }
        Ok(false)
    }

    /// Checkpoints that may be removed to make room, oldest first: for each application those older
    /// than its newest good checkpoint, without the base of that checkpoint. The names of the
    /// newest good checkpoint are synced before the return.
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

    /// Removes one checkpoint, finished or not. An absent checkpoint is no error.
    ///
    /// # Errors
    /// [`StoreError::System`]: the rest of the checkpoint is unfinished.
    pub fn remove(&self, app: Tid, id: CheckpointId) -> Result<(), StoreError> {
        match self.ids(app)?.contains(&id) {
            true => remove(self, app, id),
            false => Ok(()),
        }
    }

    /// Removes all checkpoints of an application that is not to be restarted any more, newest
    /// first. An absent application is no error.
    ///
    /// # Errors
    /// [`StoreError::System`] at the first checkpoint that cannot be removed; older checkpoints
    /// stay.
    pub fn forget(&self, app: Tid) -> Result<(), StoreError> {
        // Newest first: an increment is removed before its base.
        for id in self.ids(app)?.into_iter().rev() {
            remove(self, app, id)?;
        }
        self.drop_suspended(app, |_, _| true)?;
        // Files that are not of the store stay in the folder of suspended tasks.
        let _ = self.disk().remove_dir(&self.suspended_folder(app));
        let folder = self.app_folder(app);
        match self.disk().remove_dir(&folder) {
            // Files that are not of the store stay, and so does the folder.
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

/// Removes a checkpoint: first the manifest, durably, then the rest. Files that are not of the
/// store stay, and so does the folder.
pub(crate) fn remove<D: Disk>(
    store: &Store<D>,
    app: Tid,
    id: CheckpointId,
) -> Result<(), StoreError> {
    unmake(store, app, id)?;
    clear(store, app, id)
}

/// Removes all files of a checkpoint without a manifest, then the folder.
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

/// A missing file is no error: hosts that share a store may remove the same checkpoint at the same
/// time.
fn gone<T: Default>(removed: io::Result<T>) -> io::Result<T> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        removed => removed,
    }
}

/// Removes the manifest of a checkpoint, durably.
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
