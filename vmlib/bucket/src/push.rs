//! Copies from the folder to the bucket: committed checkpoints are copied, old ones are removed.

use crate::{
    error::BucketError,
    mirror::{Mirror, Objects, There, fingerprint, key},
    tie::State,
};
use std::collections::BTreeSet;
use vm_store::{CheckpointId, Depth, Manifest, StoreError, limits::MANIFEST_MAX, name};
use vm_wire::{Tid, limits::CHECKPOINTS_KEPT};

/// The result of a push.
#[derive(Debug, Default)]
pub struct Pushed {
    /// Checkpoints that this push copied to the bucket, in that order.
    pub copied: Vec<(Tid, CheckpointId)>,
    /// Length of their files. Bytes.
    pub bytes: u64,
    /// Checkpoints that this push removed from the bucket.
    pub removed: Vec<(Tid, CheckpointId)>,
    /// Checkpoints that could not be copied, each with the reason, for example damage in the
    /// folder.
    pub failed: Vec<(Tid, CheckpointId, BucketError)>,
}

impl Mirror {
    /// Copies each committed checkpoint of the folder that the bucket lacks, the newest first, its
    /// base before it. Then removes old checkpoints from the bucket: beyond the number that the
    /// application keeps, not in the folder, and not needed as a base. Waits while another process
    /// pushes. The folder records the result, also of a failure.
    ///
    /// # Errors
    /// When the bucket cannot be reached or refuses, or the folder cannot be read. Checkpoints that
    /// were copied before stay in the bucket. Every checkpoint in the bucket was one in the folder.
    pub fn push(&self) -> Result<Pushed, BucketError> {
        let _lock = self.tie.lock_push();
        let mut state = self.state()?;
        let mut pushed = Pushed::default();
        let result = self.push_all(&mut state, &mut pushed);
        let flaw = pushed.failed.first().map(|(_, _, why)| why.to_string());
        state.failed = result.as_ref().err().map(ToString::to_string).or(flaw);
        self.set_state(&state)?;
        result.map(|()| pushed)
    }

    /// Removes all checkpoints of an application from the bucket. Blocks until they are removed.
    ///
    /// # Errors
    /// When the bucket cannot be reached or refuses.
    pub fn forget(&self, app: Tid) -> Result<(), BucketError> {
        let mut there = self.there(&format!("{}/", name::app(app)))?;
        // Newest first, so that an increment is removed before its base.
        for (id, objects) in there.remove(&app).unwrap_or_default().into_iter().rev() {
            self.remove(app, id, &objects)?;
        }
        Ok(())
    }

    fn push_all(&self, state: &mut State, pushed: &mut Pushed) -> Result<(), BucketError> {
        let removed = self.tie.removed()?;
        for app in &removed {
            self.forget(*app)?;
        }
        if !removed.is_empty() {
            self.tie.were_removed(&removed)?;
        }
        let mut there = self.there("")?;
        let is_there = |app: &Tid, id: &CheckpointId| {
            let objects = there.get(app).and_then(|ids| ids.get(id));
            objects.is_some_and(|objects| objects.contains_key(name::MANIFEST))
        };
        state.there.retain(|(app, id), _| is_there(app, id));
        let mut tried = BTreeSet::new();
        // The folder is listed anew each time: a checkpoint that was committed meanwhile goes
        // first.
        while let Some((app, id)) = self.next(&tried)? {
            tried.insert((app, id));
            if let Err(error) = self.push_one((app, id), &mut there, state, pushed) {
                if !error.is_of_one() {
                    return Err(error);
                }
                // The folder may have pruned the checkpoint meanwhile.
                if self.store.read(app, id).is_ok() {
                    pushed.failed.push((app, id, error));
                }
            }
        }
        let apps: BTreeSet<Tid> = self.here()?.iter().map(|(app, ..)| *app).collect();
        for app in apps {
            self.prune(app, &mut there, state, pushed)?;
        }
        Ok(())
    }

    /// The newest checkpoint in the folder that this push has not tried.
    fn next(
        &self,
        tried: &BTreeSet<(Tid, CheckpointId)>,
    ) -> Result<Option<(Tid, CheckpointId)>, StoreError> {
        let here = self.here()?.into_iter();
        let here = here.filter(|(app, id, _)| !tried.contains(&(*app, *id)));
        let newest = here.max_by_key(|(app, id, taken_ms)| (*taken_ms, *id, *app));
        Ok(newest.map(|(app, id, _)| (app, id)))
    }

    /// Copies one checkpoint, and its base, to the bucket unless they are there.
    fn push_one(
        &self,
        (app, id): (Tid, CheckpointId),
        there: &mut There,
        state: &mut State,
        pushed: &mut Pushed,
    ) -> Result<(), BucketError> {
        let manifest = self.store.read(app, id)?;
        let at = key(app, id, name::MANIFEST);
        let bytes = manifest.to_bytes().map_err(|cause| BucketError::Manifest {
            at: self.remote.shown(&at),
            cause,
        })?;
        if let Some(base) = manifest.base() {
            self.push_one((app, base), there, state, pushed)?;
        }
        let hash = fingerprint(&bytes);
        let objects = there.entry(app).or_default().entry(id).or_default();
        if let Some(len) = objects.get(name::MANIFEST) {
            let is_known = state.there.get(&(app, id)) == Some(&hash);
            let same = *len == bytes.len() as u64
                && (is_known || self.remote.read(&at, MANIFEST_MAX as u64)? == bytes);
            if same && has_all(&manifest, objects) {
                state.there.insert((app, id), hash);
                return Ok(());
            }
            // The manifest is of another run, or a part is missing. Without a manifest the objects
            // are no checkpoint until all of them are written.
            self.remote.remove(&at)?;
            objects.remove(name::MANIFEST);
            state.there.remove(&(app, id));
        }
        for part in manifest.parts() {
            let mut file = self.store.open_verified(app, id, part)?;
            let at = key(app, id, &part.name);
            self.remote.write(&at, &mut file, part.file_bytes())?;
            objects.insert(part.name.clone(), part.file_bytes());
        }
        let len = bytes.len() as u64;
        self.remote.write(&at, &mut bytes.as_slice(), len)?;
        objects.insert(name::MANIFEST.to_owned(), len);
        state.there.insert((app, id), hash);
        pushed.copied.push((app, id));
        pushed.bytes += manifest.stored() + len;
        Ok(())
    }

    /// Removes old checkpoints of an application. The newest whole checkpoints in the bucket stay:
    /// as many as the policy of the newest one keeps, at least one, and their bases.
    fn prune(
        &self,
        app: Tid,
        there: &mut There,
        state: &mut State,
        pushed: &mut Pushed,
    ) -> Result<(), BucketError> {
        let Some(ids) = there.get(&app) else {
            return Ok(());
        };
        let mut needed = BTreeSet::new();
        let (mut good, mut keep) = (0, 1);
        let mut old = Vec::new();
        for (id, objects) in ids.iter().rev() {
            if self.store.look(app, *id, Depth::Lengths).is_ok() {
                needed.insert(*id);
            }
            if good >= keep {
                old.push(*id);
            } else if !objects.contains_key(name::MANIFEST) {
                // Without a manifest and a newer whole checkpoint, another process may be writing
                // it.
                if good > 0 {
                    old.push(*id);
                }
            } else {
                match self.whole(app, *id, ids) {
                    Ok(manifest) => {
                        needed.extend(manifest.base());
                        keep = match manifest.policy.keep {
                            _ if good > 0 => keep,
                            0 => CHECKPOINTS_KEPT,
                            given => given,
                        };
                        good += 1;
                    }
                    // A damaged checkpoint does not count, and may be copied again.
                    Err(error) if error.is_of_one() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // Checkpoints of the folder stay, and their bases.
        for id in needed.clone() {
            needed.extend(self.store.read(app, id).ok().and_then(|it| it.base()));
        }
        old.retain(|id| !needed.contains(id));
        for id in old {
            let objects = ids.get(&id).cloned().unwrap_or_default();
            self.remove(app, id, &objects)?;
            state.there.remove(&(app, id));
            pushed.removed.push((app, id));
        }
        Ok(())
    }

    /// Removes a checkpoint from the bucket, its manifest first.
    fn remove(&self, app: Tid, id: CheckpointId, objects: &Objects) -> Result<(), BucketError> {
        if objects.contains_key(name::MANIFEST) {
            self.remote.remove(&key(app, id, name::MANIFEST))?;
        }
        let parts = objects.keys().filter(|name| *name != name::MANIFEST);
        for part in parts {
            self.remote.remove(&key(app, id, part))?;
        }
        Ok(())
    }
}

/// Whether all parts exist with their lengths.
fn has_all(manifest: &Manifest, objects: &Objects) -> bool {
    let mut parts = manifest.parts();
    parts.all(|part| objects.get(&part.name) == Some(&part.file_bytes()))
}
