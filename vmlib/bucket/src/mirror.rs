//! A store together with its bucket.

use crate::{
    address::Address,
    error::BucketError,
    remote::Remote,
    tie::{State, Tie},
};
use std::{collections::BTreeMap, path::Path};
use vm_store::{
    CheckpointId, Flaw, Manifest, State as StoreState, Store, StoreError, limits::MANIFEST_MAX,
    name,
};
use vm_wire::Tid;

/// A store together with its bucket.
#[derive(Debug)]
pub struct Mirror {
    pub(crate) store: Store,
    pub(crate) remote: Remote,
    pub(crate) tie: Tie,
    /// Whether the folder records this bucket as its own.
    tied: bool,
}

/// The objects of one checkpoint: names, with lengths in bytes.
pub(crate) type Objects = BTreeMap<String, u64>;
/// The content of a bucket, or of a prefix in it.
pub(crate) type There = BTreeMap<Tid, BTreeMap<CheckpointId, Objects>>;

/// A checkpoint in the bucket.
#[derive(Debug)]
pub struct Found {
    /// The application.
    pub app: Tid,
    /// Generation and epoch.
    pub id: CheckpointId,
    /// The manifest, if all parts exist with their lengths; else why the checkpoint cannot be used.
    pub manifest: Result<Manifest, BucketError>,
    /// Whether the folder has the checkpoint, too, with all parts in their lengths.
    pub here: bool,
}

impl Mirror {
    /// Opens the store in folder `root`, whose last component is made if it is missing, with the
    /// bucket at `address`, or else with the bucket that the folder records. `None`: there is no
    /// bucket.
    ///
    /// # Errors
    /// As [`Remote::new`], [`Store::open`] and [`Tie::address`].
    pub fn open(root: &Path, address: Option<Address>) -> Result<Option<Mirror>, BucketError> {
        let tie = Tie::new(root);
        let known = match root.exists() {
            true => tie.address()?,
            false => None,
        };
        let tied = known.is_some() && (address.is_none() || address == known);
        let Some(address) = address.or(known) else {
            return Ok(None);
        };
        Ok(Some(Mirror {
            remote: Remote::new(address)?,
            store: Store::open(root)?,
            tie,
            tied,
        }))
    }

    /// Address of the bucket.
    pub fn address(&self) -> &Address {
        self.remote.address()
    }

    /// All checkpoints in the bucket, ordered by application, oldest first. A checkpoint without a
    /// manifest is left out: it is being written or removed.
    ///
    /// # Errors
    /// When the bucket or the folder cannot be read.
    pub fn list(&self) -> Result<Vec<Found>, BucketError> {
        let mut found = Vec::new();
        for (app, ids) in self.there("")? {
            for (id, objects) in &ids {
                if !objects.contains_key(name::MANIFEST) {
                    continue;
                }
                let here = self.store.look(app, *id, vm_store::Depth::Lengths).is_ok();
                found.push(Found {
                    app,
                    id: *id,
                    manifest: self.whole(app, *id, &ids),
                    here,
                });
            }
        }
        Ok(found)
    }

    /// The objects whose keys begin with `start` and have names of the store.
    pub(crate) fn there(&self, start: &str) -> Result<There, BucketError> {
        let mut there = There::new();
        for (key, bytes) in self.remote.list(start)? {
            let mut words = key.split('/');
            let words = (words.next(), words.next(), words.next(), words.next());
            if let (Some(app), Some(id), Some(file), None) = words
                && let (Some(app), Some(id)) = (name::parse_app(app), CheckpointId::parse(id))
                && (file == name::MANIFEST || name::is_part(file))
            {
                let ids = there.entry(app).or_default();
                let objects = ids.entry(id).or_default();
                objects.insert(file.to_owned(), bytes);
            }
        }
        Ok(there)
    }

    /// The manifest of a checkpoint in the bucket.
    pub(crate) fn manifest(&self, app: Tid, id: CheckpointId) -> Result<Manifest, BucketError> {
        let key = key(app, id, name::MANIFEST);
        let bytes = self.remote.read(&key, MANIFEST_MAX as u64)?;
        let wrong = |cause| BucketError::Manifest {
            at: self.remote.shown(&key),
            cause,
        };
        let manifest = Manifest::from_bytes(&bytes).map_err(wrong)?;
        let found = CheckpointId::new(manifest.generation, manifest.epoch);
        if (manifest.app, found) != (app, id) {
            let found = format!("{}/{found}", name::app(manifest.app));
            return Err(wrong(vm_store::ManifestError::Elsewhere { found }));
        }
        Ok(manifest)
    }

    /// The manifest of a checkpoint in the bucket, if its parts and the parts of its base exist
    /// there with their lengths.
    pub(crate) fn whole(
        &self,
        app: Tid,
        id: CheckpointId,
        ids: &BTreeMap<CheckpointId, Objects>,
    ) -> Result<Manifest, BucketError> {
        let manifest = self.manifest(app, id)?;
        let nothing = Objects::new();
        for part in manifest.parts() {
            let objects = ids.get(&id).unwrap_or(&nothing);
            self.look(
                key(app, id, &part.name),
                objects.get(&part.name),
                part.file_bytes(),
            )?;
            if let Some(base) = part.base {
                let of = CheckpointId::new(base.generation, base.epoch);
                let objects = ids.get(&of).unwrap_or(&nothing);
                self.look(
                    key(app, of, &part.name),
                    objects.get(&part.name),
                    base.file_bytes(),
                )?;
            }
        }
        Ok(manifest)
    }

    fn look(&self, key: String, found: Option<&u64>, expected: u64) -> Result<(), BucketError> {
        let flaw = match found {
            Some(found) if *found == expected => return Ok(()),
            Some(found) => Flaw::Length {
                found: *found,
                expected,
            },
            None => Flaw::Missing {
                place: "the bucket has lost it, or nobody".to_owned(),
            },
        };
        let at = self.remote.shown(&key);
        Err(BucketError::Damaged { at, flaw })
    }

    /// The committed checkpoints of the folder whose parts have their lengths, each with the time
    /// at which it was taken. Milliseconds since 1970.
    pub(crate) fn here(&self) -> Result<Vec<(Tid, CheckpointId, u64)>, StoreError> {
        let entries = self.store.list()?.into_iter();
        let committed = entries.filter_map(|entry| match entry.state {
            StoreState::Committed(summary) => Some((entry.app, entry.id, summary.taken_ms)),
            _ => None,
        });
        Ok(committed.collect())
    }

    pub(crate) fn state(&self) -> Result<State, BucketError> {
        match self.tied {
            true => self.tie.state(),
            false => Ok(State::default()),
        }
    }

    pub(crate) fn set_state(&self, state: &State) -> Result<(), BucketError> {
        match self.tied {
            true => self.tie.set_state(state),
            false => Ok(()),
        }
    }
}

/// Key of a file of a checkpoint, without the prefix: the path of the file in the folder.
pub(crate) fn key(app: Tid, id: CheckpointId, file: &str) -> String {
    format!("{}/{id}/{file}", name::app(app))
}

/// Identifies the content of a manifest.
pub(crate) fn fingerprint(bytes: &[u8]) -> String {
    // The last bytes of a manifest are its hash.
    let hash = bytes.last_chunk::<16>().unwrap_or(&[0; 16]);
    format!("{:032x}", u128::from_be_bytes(*hash))
}
