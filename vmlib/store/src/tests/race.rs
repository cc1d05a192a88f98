//! Two processes at the same time: the first prunes, the second commits an increment of a pruned
//! checkpoint.

use super::{APP, folder::store, id, image::bytes_of, increments::save_images};
use crate::{
    CheckpointId, Depth, Disk, Store, StoreError, System, disk::SystemFile, limits::BLOCK, name,
};
use std::{cell::RefCell, fmt, io, path::Path, rc::Rc};

/// The disk of this host. When this process is about to remove a manifest, the other process acts.
#[derive(Clone)]
struct Meanwhile(Rc<RefCell<Option<Other>>>);

/// Action of the other process.
type Other = Box<dyn FnOnce()>;

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Disk for Meanwhile {
    type File = SystemFile;

    fn remove(&self, path: &Path) -> io::Result<()> {
        if path.ends_with(name::MANIFEST)
            && let Some(other) = self.0.take()
        {
            other();
        }
        System.remove(path)
    }

    fn create(&self, path: &Path) -> io::Result<SystemFile> {
        System.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<(SystemFile, u64)> {
        System.open(path)
    }

    fn sync(&self, file: &mut SystemFile) -> io::Result<()> {
        System.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        System.rename(from, to)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        System.make_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        System.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        System.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        System.list(path)
    }
}

#[test]
fn a_base_that_is_being_pruned_stays_for_an_increment_that_is_committed_meanwhile() {
    let (_folder, plain) = store();
    let image = bytes_of(20 * BLOCK, 1);
    let newest = CheckpointId::new(2, 3);
    for id in [id(1), newest] {
        save_images(&plain, id, &[(APP, &image)]).expect("a checkpoint");
    }
    let other = plain.clone();
    let commit: Other = Box::new(move || {
        let manifest = save_images(&other, id(2), &[(APP, &image)]).expect("it is committed");
        assert_eq!(manifest.base(), Some(id(1)));
    });
    let disk = Meanwhile(Rc::new(RefCell::new(Some(commit))));
    let pruning = Store::on(disk, plain.root().to_owned());
    let pruned = pruning.prune(APP, 1, Depth::Lengths).expect("a store");
    assert!(
        pruned.removed.is_empty() && pruned.failed.is_empty(),
        "{pruned:?}"
    );
    plain.verify(APP, id(2)).expect("it has what it needs");
    // The base is no checkpoint any more, and is removed with the increment.
    let left = plain.verify(APP, id(1));
    assert!(matches!(left, Err(StoreError::Unfinished { .. })));
    let pruned = plain.prune(APP, 1, Depth::Lengths).expect("a store");
    assert_eq!(pruned.removed, [id(2), id(1)]);
    plain.verify(APP, newest).expect("the newest stays");
}
