//! Which checkpoint the images of the next one are increments of, and when they are stored in full.

use crate::{
    disk::Disk,
    error::StoreError,
    index::Index,
    limits::INCREMENTS_MAX,
    manifest::{Base, Manifest},
    name::{self, CheckpointId},
    part,
    store::Store,
};
use std::collections::BTreeSet;
use vm_wire::Tid;

impl<D: Disk> Store<D> {
    /// What the image of this name in checkpoint `id` is to be an increment of: the image in the
    /// last full checkpoint of the same generation. None, and it is stored in full, if
    ///
    /// - there is no such checkpoint or image, or its index cannot be used;
    /// - hosts have stores of their own, and it is not on the same two disks;
    /// - the full one is more than [`INCREMENTS_MAX`] epochs old;
    /// - the checkpoint before is incremental, and its files have more than half of what they hold;
    /// - the last increments that are there, not more than [`INCREMENTS_MAX`] epochs old, have.
    pub(crate) fn base(&self, app: Tid, id: CheckpointId, name: &str) -> Option<(Base, Index)> {
        let (of, manifest) = self.full(app, id)?;
        let part = manifest.parts().find(|part| part.name == name)?;
        if !self.can_base(part) {
            return None;
        }
        let folder = self.folder(app, of);
        let file = part::open_file(self.disk(), &folder.join(name), part.bytes, &part.place);
        file.ok()?.ok()?;
        let index = Index::read(self.disk(), &folder.join(name::index(name)?), part).ok()?;
        let base = Base {
            generation: of.generation,
            epoch: of.epoch,
            bytes: part.bytes,
        };
        Some((base, index))
    }

    /// The full checkpoint by which `id` can be an incremental one.
    fn full(&self, app: Tid, id: CheckpointId) -> Option<(CheckpointId, Manifest)> {
        let same = |it: &CheckpointId| it.generation == id.generation && *it < id;
        let mut full = None;
        for earlier in self.ids(app).ok()?.into_iter().rev().filter(same) {
            let Ok(manifest) = self.read(app, earlier) else {
                continue;
            };
            let Some(base) = manifest.base() else {
                full = full.or(Some((earlier, manifest)));
                continue;
            };
            // In the last one of all, tasks that the base does not have count, too.
            let last = full.is_none();
            let judged = manifest.parts().filter(|it| last || it.base.is_some());
            let (stored, bytes) = judged.fold((0u64, 0u64), |(stored, bytes), part| {
                let stored = stored.saturating_add(part.stored);
                (stored, bytes.saturating_add(part.bytes))
            });
            if stored > bytes / 2 && id.epoch - earlier.epoch <= INCREMENTS_MAX {
                return None;
            }
            if full.is_none() {
                full = Some((base, self.read(app, base).ok()?));
            }
            break;
        }
        full.filter(|(of, _)| same(of) && id.epoch - of.epoch <= INCREMENTS_MAX)
    }

    /// The checkpoints that committed ones are increments of.
    ///
    /// # Errors
    /// [`StoreError::System`] when one cannot be read. Damaged ones need nothing.
    pub(crate) fn needed(&self, app: Tid) -> Result<BTreeSet<CheckpointId>, StoreError> {
        let mut needed = BTreeSet::new();
        for id in self.ids(app)? {
            match self.read(app, id) {
                Ok(manifest) => needed.extend(manifest.base()),
                Err(why @ StoreError::System { .. }) => return Err(why),
                Err(_) => {}
            }
        }
        Ok(needed)
    }
}
