//! A checkpoint while it is written, until it is committed or aborted.
//!
//! The order of the calls: [`Store::begin`] makes the folder, [`CheckpointWriter::image`] begins a
//! part for each task, [`CheckpointWriter::commit`] checks the parts and writes the manifest.

use crate::{
    base::Way,
    disk::{Disk, System},
    error::{ManifestError, Step, StoreError},
    image::{Form, ImageWriter},
    increment::IncrementWriter,
    index::IndexedWriter,
    listing::Depth,
    manifest::Manifest,
    name,
    part::{self, PartWriter},
    prune,
    store::{Store, make_dir},
};
use std::{io::Write, path::Path};
use vm_wire::{CheckpointId, Tid};

/// A checkpoint that is being written. Several processes may hold a writer of the same checkpoint;
/// dropping a writer changes nothing.
#[derive(Debug, Clone)]
pub struct CheckpointWriter<D: Disk = System> {
    store: Store<D>,
    app: Tid,
    id: CheckpointId,
}

impl<D: Disk> Store<D> {
    /// Begins a checkpoint, or joins a checkpoint that another process has begun.
    ///
    /// # Errors
    /// [`StoreError::Committed`], [`StoreError::System`].
    pub fn begin(&self, app: Tid, id: CheckpointId) -> Result<CheckpointWriter<D>, StoreError> {
        let folder = self.folder(app, id);
        make_dir(&self.disk, &self.app_folder(app))?;
        make_dir(&self.disk, &folder)?;
        part::absent(&self.disk, &folder.join(name::MANIFEST), |_| {
            let path = folder.clone();
            StoreError::Committed { path }
        })?;
        Ok(CheckpointWriter::new(self.clone(), app, id))
    }
}

impl<D: Disk> CheckpointWriter<D> {
    pub(crate) fn new(store: Store<D>, app: Tid, id: CheckpointId) -> Self {
        CheckpointWriter { store, app, id }
    }

    /// The store, the application and the checkpoint of this writer.
    pub(crate) fn whose(&self) -> (&Store<D>, Tid, CheckpointId) {
        (&self.store, self.app, self.id)
    }

    /// Begins a part that is stored in full: an image ([`name::image`]), written by host `place`.
    /// `quota` bounds the length of the part. Bytes.
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::Name`], [`StoreError::System`].
    pub fn part(
        &self,
        name: &str,
        place: &str,
        quota: Option<u64>,
    ) -> Result<PartWriter<D>, StoreError> {
        if !name::is_part(name) {
            let name = name.to_owned();
            return Err(StoreError::Name { name });
        }
        let folder = self.store.folder(self.app, self.id);
        let disk = self.store.disk().clone();
        PartWriter::create(disk, &folder, name, place, quota)?.within(&self.store)
    }

    /// Begins the image of a task, written by host `place`. If an earlier checkpoint has an image
    /// of the task that can be the base, the image is stored as an increment.
    ///
    /// # Errors
    /// Like [`CheckpointWriter::part`].
    pub fn image(
        &self,
        tid: Tid,
        place: &str,
        quota: Option<u64>,
    ) -> Result<ImageWriter<D>, StoreError> {
        let name = name::image(self.app, tid);
        let mut file = self.part(&name, place, quota)?;
        if self.store.compress {
            file = file.compressed();
        }
        if self.store.cached {
            file = file.cached();
        }
        let path = file.path();
        let form = match self.store.way(self.app, self.id, &name) {
            Way::Increment(base, index) => {
                Form::Increment(Box::new(IncrementWriter::new(file, index, base)))
            }
            Way::Full { index: false } => Form::Full(Box::new(file)),
            Way::Full { index: true } => {
                let index = name::index(&name).unwrap_or_default();
                let folder = self.store.folder(self.app, self.id);
                let disk = self.store.disk().clone();
                let index = PartWriter::create(disk, &folder, &index, place, None)?;
                Form::Indexed(Box::new(IndexedWriter::new(file, index)))
            }
        };
        Ok(ImageWriter::new(path, form))
    }

    /// Commits the checkpoint. After a return without an error the checkpoint survives a power cut;
    /// before the call there is no checkpoint. Every part that belongs in this folder, and the base
    /// of each increment, is first checked for its length.
    ///
    /// # Errors
    /// [`StoreError::Part`], [`StoreError::Manifest`], [`StoreError::Committed`],
    /// [`StoreError::Exists`] if another process commits the checkpoint. After
    /// [`StoreError::System`] at syncing a folder the checkpoint may be committed or not.
    /// [`Store::read`] shows which; a power cut may undo the commit.
    pub fn commit(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let (store, disk) = (&self.store, self.store.disk());
        let folder = store.folder(self.app, self.id);
        let path = folder.join(name::MANIFEST);
        let bytes = self.encode(manifest).map_err(|cause| {
            let path = path.clone();
            StoreError::Manifest { path, cause }
        })?;
        store.look_at_parts(self.app, self.id, manifest, Depth::Lengths)?;

        let new = folder.join(name::MANIFEST_NEW);
        let file = part::create(disk, &new)?;
        let renamed = self.rename(file, &bytes, &new, &path);
        if renamed.is_err() {
            // If the removal fails, the checkpoint can only be aborted.
            let _ = disk.remove(&new);
        }
        renamed?;
        self.keep_base(manifest)?;
        for folder in [&folder, &store.app_folder(self.app), store.root()] {
            disk.sync_dir(folder).step("sync", folder)?;
        }
        Ok(())
    }

    /// Checks that no prune removes the base at the same time. A prune that has begun has removed
    /// the manifest of the base. A prune that begins now sees that the base is needed.
    fn keep_base(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let Some(base) = manifest.base() else {
            return Ok(());
        };
        // A host without an increment of its own needs no base: the host may have joined after the
        // base was written.
        let mut own = manifest.parts().filter(|part| self.store.holds(part));
        if own.all(|part| part.base.is_none()) {
            return Ok(());
        }
        let found = self.store.read(self.app, base);
        if found.is_err() {
            prune::unmake(&self.store, self.app, self.id)?;
        }
        found.map(drop)
    }

    /// Aborts the checkpoint and removes its folder, even while another process writes there. As
    /// long as such a process runs, the same checkpoint must not be begun again; a new checkpoint
    /// takes a new epoch.
    ///
    /// # Errors
    /// [`StoreError::Committed`], [`StoreError::System`].
    pub fn abort(self) -> Result<(), StoreError> {
        self.uncommitted()?;
        prune::remove(&self.store, self.app, self.id)
    }

    fn encode(&self, manifest: &Manifest) -> Result<Vec<u8>, ManifestError> {
        let found = CheckpointId::new(manifest.generation, manifest.epoch);
        if (manifest.app, found) != (self.app, self.id) {
            let found = format!("{}/{found}", name::app(manifest.app));
            return Err(ManifestError::Elsewhere { found });
        }
        manifest.to_bytes()
    }

    fn rename(
        &self,
        mut file: D::File,
        bytes: &[u8],
        new: &Path,
        path: &Path,
    ) -> Result<(), StoreError> {
        let disk = self.store.disk();
        // The check comes after the creation of the new file: a process that committed earlier has
        // renamed its new file.
        self.uncommitted()?;
        file.write_all(bytes).step("write", new)?;
        disk.sync(&mut file).step("sync", new)?;
        disk.rename(new, path).step("rename to", path)
    }

    fn uncommitted(&self) -> Result<(), StoreError> {
        let folder = self.store.folder(self.app, self.id);
        let manifest = folder.join(name::MANIFEST);
        part::absent(self.store.disk(), &manifest, |_| StoreError::Committed {
            path: folder,
        })
    }
}
