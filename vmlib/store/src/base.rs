//! Which checkpoint the images of the next one are increments of, and when they are stored in full;
//! whether those have an index.

use crate::{
    disk::Disk,
    error::StoreError,
    index::Index,
    limits::INCREMENTS_MAX,
    manifest::{Base, Manifest, Part},
    name, part, part_reader,
    store::Store,
};
use std::collections::BTreeSet;
use vm_wire::{CheckpointId, Tid};

/// How an image is stored.
#[derive(Debug)]
pub(crate) enum Way {
    /// As what it has that the base has not.
    Increment(Base, Index),
    /// The whole image.
    Full {
        /// With what the writer of an increment needs of it.
        index: bool,
    },
}

/// By what the next checkpoint can be an incremental one.
enum Full {
    /// The base can be in this checkpoint.
    Last(CheckpointId, Manifest),
    /// No checkpoint can have the base.
    None {
        /// Whether the one after it can.
        index: bool,
    },
}

impl<D: Disk> Store<D> {
    /// How the image of this name in checkpoint `id` is to be stored: as an increment of the image in
    /// the last full checkpoint of the same generation. In full, if
    ///
    /// - there is no such checkpoint or image, or its index is not there or cannot be used;
    /// - hosts have stores of their own, and it is not on the same two disks;
    /// - the full one is more than [`INCREMENTS_MAX`] epochs old;
    /// - the checkpoint before is incremental, and its files, or its increments, have more than half of
    ///   what they hold.
    ///
    /// One that is stored in full has an index, unless increments have proved not to be worth it: those of
    /// the checkpoint before, or so the full one before tells by having none. From an epoch on that is a
    /// multiple of [`INCREMENTS_MAX`] + 1 it is tried again.
    pub(crate) fn way(&self, app: Tid, id: CheckpointId, name: &str) -> Way {
        match self.full(app, id) {
            Full::Last(of, manifest) => {
                let part = manifest.parts().find(|part| part.name == name);
                let part = part.filter(|part| self.can_base(part));
                match part.and_then(|part| self.base(app, of, part)) {
                    Some((base, index)) => Way::Increment(base, index),
                    None => Way::Full {
                        index: part.is_none_or(|part| self.has_index(app, of, part))
                            || id.epoch.is_multiple_of(INCREMENTS_MAX + 1),
                    },
                }
            }
            Full::None { index } => Way::Full { index },
        }
    }

    /// Whether there is an index of that image, or something in its place.
    fn has_index(&self, app: Tid, of: CheckpointId, part: &Part) -> bool {
        let name = name::index(&part.name).unwrap_or_default();
        let path = self.folder(app, of).join(name);
        part::absent(self.disk(), &path, |path| StoreError::Exists { path }).is_err()
    }

    /// The image in that full checkpoint, and its index, if it can be used.
    fn base(&self, app: Tid, of: CheckpointId, part: &Part) -> Option<(Base, Index)> {
        let name = &part.name;
        let folder = self.folder(app, of);
        let file = part_reader::open_file(
            self.disk(),
            &folder.join(name),
            part.file_bytes(),
            &part.place,
        );
        file.ok()?.ok()?;
        let index = Index::read(self.disk(), &folder.join(name::index(name)?), part).ok()?;
        let base = Base {
            generation: of.generation,
            epoch: of.epoch,
            bytes: part.bytes,
            packed: part.packed,
        };
        Some((base, index))
    }

    /// The full checkpoint by which `id` can be an incremental one: the last one, or its base.
    fn full(&self, app: Tid, id: CheckpointId) -> Full {
        let same = |it: &CheckpointId| it.generation == id.generation && *it < id;
        let ids = self.ids(app).unwrap_or_default();
        let mut earlier = ids.into_iter().rev().filter(same);
        let last = earlier.find_map(|it| Some((it, self.read(app, it).ok()?)));
        let base = last.as_ref().and_then(|(_, manifest)| manifest.base());
        let full = match (last, base) {
            (Some((_, last)), Some(base)) => {
                if more_than_half(last.parts().filter(|it| it.base.is_some())) {
                    return Full::None { index: false };
                }
                // So have tasks that the base does not have.
                if more_than_half(last.parts()) {
                    return Full::None { index: true };
                }
                self.read(app, base).ok().map(|manifest| (base, manifest))
            }
            (last, _) => last,
        };
        match full {
            Some((of, manifest)) if same(&of) && id.epoch - of.epoch <= INCREMENTS_MAX => {
                Full::Last(of, manifest)
            }
            _ => Full::None { index: true },
        }
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

/// Whether the files of these parts have more than half of what they hold.
fn more_than_half<'a>(parts: impl Iterator<Item = &'a Part>) -> bool {
    let (stored, bytes) = parts.fold((0u64, 0u64), |(stored, bytes), part| {
        let stored = stored.saturating_add(part.stored);
        (stored, bytes.saturating_add(part.bytes))
    });
    stored > bytes / 2
}
