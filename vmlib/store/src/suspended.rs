//! Images of suspended tasks, in a folder beside the checkpoints of their application:
//! `a1b2c3-t3.1/suspended/t3.17-g0-i4-n12.image`.
//!
//! There is no manifest: the daemon that owns a suspended task knows the length and the hash of the
//! image. If that daemon is lost, the file is of no use. The file is removed when the application
//! has a checkpoint of a later generation ([`Store::prune`]), or when the application is forgotten
//! ([`Store::forget`]).

use crate::{
    disk::Disk,
    error::{Step, StoreError},
    manifest::Part,
    name,
    part::PartWriter,
    part_reader::{self, PartReader},
    store::{Store, make_dir},
};
use std::{io, path::PathBuf};
use vm_wire::Tid;

impl<D: Disk> Store<D> {
    pub(crate) fn suspended_folder(&self, app: Tid) -> PathBuf {
        self.app_folder(app).join(name::SUSPENDED)
    }

    /// Begins the image of a suspended task, written by host `place`. The name must never have been
    /// used ([`vm_wire::checkpoint::suspended_image`]). `quota` bounds the length of the image.
    /// Bytes. The finished image survives a power cut.
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::Name`], [`StoreError::System`].
    pub fn suspend(
        &self,
        app: Tid,
        name: &str,
        place: &str,
        quota: Option<u64>,
    ) -> Result<PartWriter<D>, StoreError> {
        check(name)?;
        let (above, folder) = (self.app_folder(app), self.suspended_folder(app));
        make_dir(self.disk(), &above)?;
        make_dir(self.disk(), &folder)?;
        for folder in [self.root(), &above] {
            self.disk().sync_dir(folder).step("sync", folder)?;
        }
        PartWriter::create(self.disk().clone(), &folder, name, place, quota)?.within(self)
    }

    /// Opens the image of a suspended task for reading, if the file has its length. The image is
    /// verified while it is read.
    ///
    /// # Errors
    /// [`StoreError::Part`], [`StoreError::Name`], [`StoreError::System`].
    pub fn open_suspended(&self, app: Tid, image: &Part) -> Result<PartReader<D>, StoreError> {
        check(&image.name)?;
        part_reader::open_full(self.disk(), &self.suspended_folder(app), image)
    }

    /// Removes the images of suspended tasks, finished or not, for which `goes` returns true.
    /// `goes` gets the name and the generation of the application. An absent folder is no error.
    ///
    /// # Errors
    /// [`StoreError::System`] at the first file that cannot be removed.
    pub fn drop_suspended(
        &self,
        app: Tid,
        goes: impl Fn(&str, u32) -> bool,
    ) -> Result<(), StoreError> {
        let folder = self.suspended_folder(app);
        // The folder stays: another process may be about to write an image there.
        for file in self.names(&folder)? {
            let name = file.strip_suffix(name::NEW).unwrap_or(&file);
            if name::parse_suspended(name).is_some_and(|generation| goes(name, generation)) {
                let path = folder.join(&file);
                match self.disk().remove(&path) {
                    Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                        return Err(cause).step("remove", &path);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn check(name: &str) -> Result<(), StoreError> {
    match name::parse_suspended(name) {
        Some(_) => Ok(()),
        None => Err(StoreError::Name {
            name: name.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        disk::System,
        error::{Flaw, StoreError},
    };
    use std::fs;
    use vm_wire::{HostId, MachineId};

    fn tid(sequence: u32) -> Tid {
        Tid::new(MachineId::from_bits(0xa1b2c3), HostId(1), sequence)
    }

    fn read(mut image: PartReader) -> Result<Vec<u8>, StoreError> {
        let mut all = Vec::new();
        let mut room = [0; 7];
        loop {
            match image.fill(&mut room)? {
                0 => return Ok(all),
                count => all.extend_from_slice(&room[..count]),
            }
        }
    }

    #[test]
    fn an_image_is_there_until_it_is_dropped_and_no_checkpoint() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let store = Store::on(System, root);
        let name = vm_wire::checkpoint::suspended_image(tid(1), tid(5), 0, 1, 7);
        let mut writer = store.suspend(tid(1), &name, "a", None).expect("room");
        writer.write(b"what it is").expect("room");
        let image = writer.finish().expect("room");
        let again = store.suspend(tid(1), &name, "a", None);
        assert!(matches!(again, Err(StoreError::Exists { .. })));
        let whole = store.open_suspended(tid(1), &image).expect("it is there");
        assert_eq!(read(whole).expect("whole"), b"what it is");
        assert!(store.list().expect("a list").is_empty());
        assert_eq!(store.room(100).expect("room"), 90);
        // An image of the generation that `goes` does not name stays.
        let goes = |_: &str, generation| generation > 0;
        store.drop_suspended(tid(1), goes).expect("a folder");
        let path = store.suspended_folder(tid(1)).join(&name);
        fs::write(&path, b"what it iz").expect("it can be written");
        let damaged = store.open_suspended(tid(1), &image).expect("its length");
        let flaw = read(damaged).expect_err("it is damaged");
        let content = |flaw: &Flaw| matches!(flaw, Flaw::Content { .. });
        assert!(matches!(flaw, StoreError::Part { flaw, .. } if content(&flaw)));
        store.forget(tid(1)).expect("it goes");
        assert!(!store.app_folder(tid(1)).exists());
        let gone = store.open_suspended(tid(1), &image);
        let missing = |flaw: &Flaw| matches!(flaw, Flaw::Missing { .. });
        assert!(matches!(gone, Err(StoreError::Part { flaw, .. }) if missing(&flaw)));
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::on(System, folder.path().to_owned());
        for name in ["../t1.5-g0-i1-n7.image", "t1.5.image", "manifest", ""] {
            let refused = store.suspend(tid(1), name, "a", None);
            assert!(matches!(refused, Err(StoreError::Name { .. })), "{name}");
        }
    }
}
