//! The checkpoints of a store: lists them, reads and verifies them, and finds the last good
//! checkpoint. Every check begins with the manifest, and then visits the parts that belong in this
//! folder, to the requested [`Depth`].

use crate::{
    disk::Disk,
    error::{ManifestError, Step, StoreError},
    limits::MANIFEST_MAX,
    manifest::{Manifest, Part},
    name,
    part_reader::{self, PartReader},
    store::Store,
    summary::Summary,
};
use std::io::{self, Read};
use vm_wire::{CheckpointId, Tid};

/// How thoroughly parts are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The files exist and have their lengths. This check finds the damage that a power cut can do.
    Lengths,
    /// The files also have their hashes. Each file is read completely, at a few GB/s at best.
    Hashes,
}

/// The folder of one checkpoint, as [`Store::list`] finds it.
#[derive(Debug)]
pub struct Entry {
    /// Task id of the application's master.
    pub app: Tid,
    /// Generation and epoch of the checkpoint.
    pub id: CheckpointId,
    /// State of the checkpoint, by the files in its folder.
    pub state: State,
}

/// The state of a checkpoint, by the files in its folder.
#[derive(Debug)]
pub enum State {
    /// The manifest exists, and all parts have their lengths.
    Committed(Summary),
    /// The manifest does not exist: the checkpoint is being written, or was abandoned.
    Unfinished {
        /// Number of the store's files in the folder.
        files: usize,
    },
    /// The manifest exists, but the checkpoint cannot be used.
    Damaged(StoreError),
}

/// The result of [`Store::last_good`].
#[derive(Debug)]
pub struct LastGood {
    /// The newest checkpoint without a flaw in any part, if there is one.
    pub good: Option<(CheckpointId, Manifest)>,
    /// Newer checkpoints, newest first, each with its flaw.
    pub passed_over: Vec<(CheckpointId, StoreError)>,
}

impl<D: Disk> Store<D> {
    /// All checkpoints, by application, oldest first. Names that the layout does not define are
    /// ignored.
    ///
    /// # Errors
    /// [`StoreError::System`] when a folder cannot be read. The flaw of one checkpoint is in its
    /// [`Entry`].
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        for app in self.apps()? {
            for id in self.ids(app)? {
                let state = self.state(app, id);
                entries.push(Entry { app, id, state });
            }
        }
        Ok(entries)
    }

    /// The manifest of a committed checkpoint. Its parts are not checked.
    ///
    /// # Errors
    /// [`StoreError::Absent`], [`StoreError::Unfinished`], [`StoreError::Manifest`],
    /// [`StoreError::System`].
    pub fn read(&self, app: Tid, id: CheckpointId) -> Result<Manifest, StoreError> {
        let folder = self.folder(app, id);
        let path = folder.join(name::MANIFEST);
        let (file, len) = match self.disk.open(&path) {
            Ok(opened) => opened,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                return Err(match self.disk.list(&folder) {
                    Ok(_) => StoreError::Unfinished { path: folder },
                    Err(_) => StoreError::Absent { path: folder },
                });
            }
            Err(cause) => return Err(cause).step("open", &path),
        };
        let wrong = |cause| StoreError::Manifest {
            path: path.clone(),
            cause,
        };
        if len > MANIFEST_MAX as u64 {
            return Err(wrong(ManifestError::TooLong { bytes: len }));
        }
        let mut bytes = Vec::with_capacity(len as usize);
        let read = file.take(MANIFEST_MAX as u64 + 1).read_to_end(&mut bytes);
        read.step("read", &path)?;
        let manifest = Manifest::from_bytes(&bytes).map_err(wrong)?;
        let found = CheckpointId::new(manifest.generation, manifest.epoch);
        if (manifest.app, found) != (app, id) {
            let found = format!("{}/{found}", name::app(manifest.app));
            return Err(wrong(ManifestError::Elsewhere { found }));
        }
        Ok(manifest)
    }

    /// Reads every part of a committed checkpoint and compares it with the manifest, which it
    /// returns.
    ///
    /// # Errors
    /// [`StoreError::Part`] names the first part with a flaw, [`StoreError::Base`] a missing or
    /// damaged part of an earlier checkpoint; or like [`Store::read`].
    pub fn verify(&self, app: Tid, id: CheckpointId) -> Result<Manifest, StoreError> {
        self.look(app, id, Depth::Hashes)
    }

    /// The newest checkpoint of an application that is whole, as far as a check of this depth
    /// shows, and the flaws of newer ones.
    ///
    /// # Errors
    /// [`StoreError::System`] when the folder of the application cannot be read.
    pub fn last_good(&self, app: Tid, depth: Depth) -> Result<LastGood, StoreError> {
        let mut passed_over = Vec::new();
        for id in self.ids(app)?.into_iter().rev() {
            match self.look(app, id, depth) {
                Ok(manifest) => {
                    let good = Some((id, manifest));
                    return Ok(LastGood { good, passed_over });
                }
                Err(why) => passed_over.push((id, why)),
            }
        }
        let good = None;
        Ok(LastGood { good, passed_over })
    }

    /// Number of bytes that may be written until the files of all checkpoints have `quota` bytes
    /// together.
    ///
    /// # Errors
    /// [`StoreError::Full`] when there is no room, [`StoreError::System`].
    pub fn room(&self, quota: u64) -> Result<u64, StoreError> {
        let mut used: u64 = 0;
        for app in self.apps()? {
            let ids = self.ids(app)?.into_iter();
            let folders = ids.map(|id| self.folder(app, id));
            for folder in folders.chain([self.suspended_folder(app)]) {
                for name in self.names(&folder)? {
                    // The file may have been removed just now, or may not be the store's.
                    let opened = self.disk.open(&folder.join(name));
                    used = used.saturating_add(opened.map_or(0, |(_, len)| len));
                }
            }
        }
        let root = self.root.clone();
        let left = quota.checked_sub(used).filter(|left| *left > 0);
        left.ok_or(StoreError::Full { root, used, quota })
    }

    /// Opens a part for reading, if its files have the lengths in the manifest. The part is
    /// verified while it is read.
    ///
    /// # Errors
    /// [`StoreError::Part`], [`StoreError::Base`], [`StoreError::Name`], [`StoreError::System`].
    pub fn open_part(
        &self,
        app: Tid,
        id: CheckpointId,
        part: &Part,
    ) -> Result<PartReader<D>, StoreError> {
        part_reader::open(&self.disk, &self.app_folder(app), id, part)
    }

    /// Reads the manifest and checks all parts that belong in this folder.
    ///
    /// # Errors
    /// Like [`Store::verify`].
    pub fn look(&self, app: Tid, id: CheckpointId, depth: Depth) -> Result<Manifest, StoreError> {
        let manifest = self.read(app, id)?;
        self.look_at_parts(app, id, &manifest, depth)?;
        Ok(manifest)
    }

    pub(crate) fn look_at_parts(
        &self,
        app: Tid,
        id: CheckpointId,
        manifest: &Manifest,
        depth: Depth,
    ) -> Result<(), StoreError> {
        let folder = self.app_folder(app);
        for part in manifest.parts().filter(|part| self.holds(part)) {
            match depth {
                Depth::Lengths => drop(part_reader::open(&self.disk, &folder, id, part)?),
                Depth::Hashes => part_reader::verify(&self.disk, &folder, id, part)?,
            }
        }
        Ok(())
    }

    /// Whether a part belongs in this folder.
    pub(crate) fn holds(&self, part: &Part) -> bool {
        let of = |host: &String| *host == part.place || Some(host) == part.copy.as_ref();
        self.host.as_ref().is_none_or(of)
    }

    fn state(&self, app: Tid, id: CheckpointId) -> State {
        match self.look(app, id, Depth::Lengths) {
            Ok(manifest) => State::Committed(manifest.summary()),
            Err(StoreError::Unfinished { path }) => {
                let names = self.disk.list(&path).unwrap_or_default();
                let files = names.iter().filter(|name| name::is_ours(name)).count();
                State::Unfinished { files }
            }
            Err(why) => State::Damaged(why),
        }
    }
}
