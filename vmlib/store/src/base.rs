//! Decides how the next image is stored: as an increment of the image in an earlier checkpoint, in
//! full with an index, or in full without an index. The decision depends on the last checkpoints
//! and on the bytes that their increments saved.

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

#[derive(Debug)]
pub(crate) enum Way {
    /// As the difference from the base, looked up in the index.
    Increment(Base, Index),
    /// The whole image.
    Full {
        /// Write an index beside the image, for later increments.
        index: bool,
    },
}

/// The full checkpoint that the next checkpoint can be based on.
enum Full {
    /// This checkpoint can have the base.
    Last(CheckpointId, Manifest),
    /// No checkpoint can have the base.
    None {
        /// Write an index beside each image, so that later checkpoints can be increments.
        index: bool,
    },
}

impl<D: Disk> Store<D> {
    /// How to store the image of this name in checkpoint `id`: as an increment of the image in the
    /// last full checkpoint of the same generation. The image is stored in full, if
    ///
    /// - there is no such checkpoint or image, or its index is missing or cannot be used;
    /// - hosts have stores of their own, and the earlier image is not on the same two disks;
    /// - the full checkpoint is more than [`INCREMENTS_MAX`] epochs old;
    /// - the previous checkpoint is incremental, and its files, or its increments, have more than
    ///   half of the length of their images.
    ///
    /// A full image has an index, unless increments did not save enough: in the previous
    /// checkpoint, or in an earlier checkpoint, so that the full checkpoint has no index. An epoch
    /// that is a multiple of [`INCREMENTS_MAX`] + 1 tries an index again.
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

    /// Whether the image has an index, or the index cannot be looked for.
    fn has_index(&self, app: Tid, of: CheckpointId, part: &Part) -> bool {
        let name = name::index(&part.name).unwrap_or_default();
        let path = self.folder(app, of).join(name);
        part::absent(self.disk(), &path, |path| StoreError::Exists { path }).is_err()
    }

    /// The image in full checkpoint `of` and its index, if both can be used.
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

    /// The full checkpoint that `id` can be based on: the previous checkpoint, or the base of that
    /// checkpoint.
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
                // New tasks, which the base does not have, are stored in full as well.
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

    /// The checkpoints that committed checkpoints are increments of.
    ///
    /// # Errors
    /// [`StoreError::System`] when a manifest cannot be read. Damaged checkpoints need no base.
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

/// Whether the files of these parts have more than half of the length of the images.
fn more_than_half<'a>(parts: impl Iterator<Item = &'a Part>) -> bool {
    let (stored, bytes) = parts.fold((0u64, 0u64), |(stored, bytes), part| {
        let stored = stored.saturating_add(part.stored);
        (stored, bytes.saturating_add(part.bytes))
    });
    stored > bytes / 2
}
