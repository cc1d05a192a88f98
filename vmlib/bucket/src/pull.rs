//! Copies from the bucket to the folder: checkpoints that the folder lost, or that are damaged
//! there.

use crate::{
    error::BucketError,
    mirror::{Mirror, fingerprint, key},
};
use std::{
    collections::BTreeSet,
    io::{self, Read},
};
use vm_store::{CheckpointId, Depth, Manifest, Part, StoreError, name};
use vm_wire::Tid;

/// The result of [`Mirror::fetch`].
#[derive(Debug, Default)]
pub struct Fetched {
    /// The newest good checkpoint that the folder has now, verified to the requested depth.
    pub good: Option<CheckpointId>,
    /// Whether at least a part of it comes from the bucket.
    pub fetched: bool,
    /// Newer checkpoints, newest first, each with the reason why it cannot be used.
    pub passed_over: Vec<(CheckpointId, String)>,
}

impl Mirror {
    /// Ensures that the folder has the newest checkpoint of an application, or the checkpoint
    /// `only`. A checkpoint that is missing, or damaged as far as a look of this depth can tell, is
    /// copied from the bucket, together with its base. A checkpoint that is damaged in the bucket,
    /// too, is passed over.
    ///
    /// # Errors
    /// When the bucket cannot be reached or the folder cannot be read.
    pub fn fetch(
        &self,
        app: Tid,
        only: Option<CheckpointId>,
        depth: Depth,
    ) -> Result<Fetched, BucketError> {
        let _lock = self.tie.lock_pull();
        let mut there = match self.tie.removed()?.contains(&app) {
            // A user removed the application from the folder.
            true => Default::default(),
            false => self.there(&format!("{}/", name::app(app)))?,
        };
        let mut there = there.remove(&app).unwrap_or_default();
        there.retain(|_, objects| objects.contains_key(name::MANIFEST));
        let here = self.store.ids(app)?.into_iter();
        let ids: BTreeSet<_> = here.chain(there.keys().copied()).collect();
        let mut fetched = Fetched::default();
        let wanted = |id: &CheckpointId| only.is_none_or(|only| only == *id);
        for id in ids.into_iter().rev().filter(wanted) {
            let why = match self.store.look(app, id, depth) {
                Ok(_) => {
                    fetched.good = Some(id);
                    return Ok(fetched);
                }
                Err(why) => why,
            };
            let why = match there.contains_key(&id) {
                true => match self.pull(app, id) {
                    Ok(()) => {
                        fetched.good = Some(id);
                        fetched.fetched = true;
                        return Ok(fetched);
                    }
                    Err(why) if why.is_of_one() => why.to_string(),
                    Err(why) => return Err(why),
                },
                false if matches!(why, StoreError::Unfinished { .. }) => continue,
                false => why.to_string(),
            };
            fetched.passed_over.push((id, why));
        }
        Ok(fetched)
    }

    /// The application in the bucket whose master's program has that name and that was saved last.
    ///
    /// # Errors
    /// When the bucket cannot be reached.
    pub fn of_program(&self, program: &str) -> Result<Option<Tid>, BucketError> {
        let removed = self.tie.removed()?;
        let mut last = None;
        for (app, ids) in self.there("")? {
            let made = ids.iter().rev();
            let mut made = made.filter(|(_, objects)| objects.contains_key(name::MANIFEST));
            let newest = made.find_map(|(id, _)| match self.manifest(app, *id) {
                Err(error) if error.is_of_one() => None,
                read => Some(read),
            });
            let newest = newest.transpose()?;
            if let Some(manifest) = newest.filter(|it| it.program == program)
                && !removed.contains(&app)
            {
                last = last.max(Some((manifest.taken_ms, app)));
            }
        }
        Ok(last.map(|(_, app)| app))
    }

    /// Copies a checkpoint and its base to the folder.
    fn pull(&self, app: Tid, id: CheckpointId) -> Result<(), BucketError> {
        let manifest = self.manifest(app, id)?;
        if let Some(base) = manifest.base()
            && self.store.look(app, base, Depth::Hashes).is_err()
        {
            let base_manifest = self.manifest(app, base)?;
            if base_manifest.base().is_some() {
                let what = "its base is an increment".to_owned();
                return Err(BucketError::Manifest {
                    at: self.remote.shown(&key(app, base, name::MANIFEST)),
                    cause: vm_store::ManifestError::Impossible { what },
                });
            }
            self.take(app, base, &base_manifest)?;
        }
        self.take(app, id, &manifest)
    }

    /// Copies one checkpoint to the folder, or mends its damaged parts there.
    fn take(&self, app: Tid, id: CheckpointId, manifest: &Manifest) -> Result<(), BucketError> {
        match self.store.read(app, id) {
            Ok(here) if here == *manifest => {
                for part in manifest.parts() {
                    let read = self.store.open_part(app, id, part);
                    let read = read.map(|mut part| io::copy(&mut part, &mut io::sink()));
                    if !matches!(read, Ok(Ok(_))) {
                        self.part(app, id, part, |mut from| {
                            self.store.mend(app, id, part, &mut from)
                        })?;
                    }
                }
            }
            Ok(_) => {
                return Err(BucketError::Differs {
                    at: self.remote.shown(&key(app, id, name::MANIFEST)),
                    folder: self.store.root().to_owned(),
                });
            }
            // The folder has an incomplete checkpoint, or a manifest that cannot be read.
            Err(
                StoreError::Absent { .. }
                | StoreError::Unfinished { .. }
                | StoreError::Manifest { .. },
            ) => {
                self.store.remove(app, id)?;
                if let Err(error) = self.take_all(app, id, manifest) {
                    let _ = self.store.give_up(app, id);
                    return Err(error);
                }
            }
            Err(error) => return Err(error.into()),
        }
        let mut state = self.state()?;
        if let Ok(bytes) = manifest.to_bytes() {
            state.there.insert((app, id), fingerprint(&bytes));
        }
        self.set_state(&state)
    }

    fn take_all(&self, app: Tid, id: CheckpointId, manifest: &Manifest) -> Result<(), BucketError> {
        let writer = self.store.begin(app, id)?;
        for part in manifest.parts() {
            self.part(app, id, part, |mut from| {
                writer.take_copy(part, &mut from, None)
            })?;
        }
        Ok(writer.commit(manifest)?)
    }

    /// Reads a part in the bucket. Damage in the received bytes is reported as damage in the
    /// bucket.
    fn part(
        &self,
        app: Tid,
        id: CheckpointId,
        part: &Part,
        take: impl FnOnce(&mut dyn Read) -> Result<(), StoreError>,
    ) -> Result<(), BucketError> {
        let key = key(app, id, &part.name);
        let mut object = self.remote.open(&key)?;
        let taken = take(&mut object);
        let failed = object.failed.take();
        taken.map_err(|error| match (failed, error) {
            (Some(failed), _) => failed,
            (None, StoreError::Part { flaw, .. }) => BucketError::Damaged {
                at: self.remote.shown(&key),
                flaw,
            },
            (None, error) => error.into(),
        })
    }
}
