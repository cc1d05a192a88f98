//! The folder of a store: its options, and the folders of applications and checkpoints in it.
//! [`Store::open`] checks that the folder is safe: it belongs to this user, and no other user may
//! write into it.

use crate::{
    disk::{Disk, System},
    error::{Step, StoreError},
    name,
};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use vm_wire::{CheckpointId, Tid};

/// A folder of checkpoints.
#[derive(Debug, Clone)]
pub struct Store<D: Disk = System> {
    pub(crate) disk: D,
    pub(crate) root: PathBuf,
    /// The host whose parts this folder holds; `None` if all hosts share the folder.
    pub(crate) host: Option<String>,
    /// The host that gets second copies of the parts that this host writes.
    pub(crate) copy: Option<String>,
    /// Store every image in full, none as an increment.
    pub(crate) full: bool,
    /// Compress the files of images.
    pub(crate) compress: bool,
    /// Write the files of images through the page cache.
    pub(crate) cached: bool,
    /// Limit of the length of all files together. Bytes; 0: none.
    pub(crate) quota: u64,
}

impl Store {
    /// The store in folder `root`. If only the last component of the path does not exist, the
    /// folder is made. All hosts share the folder, unless [`Store::of_host`] names the only host.
    ///
    /// # Errors
    /// [`StoreError::NotAFolder`], [`StoreError::Owner`], [`StoreError::Mode`]: the folder is not
    /// safe. [`StoreError::System`].
    pub fn open(root: impl AsRef<Path>) -> Result<Self, StoreError> {
        let root = root.as_ref();
        let made = make_dir(&System, root)?;
        // The canonical path keeps the store in place if a link in `root` is exchanged later.
        let path = fs::canonicalize(root).step("find", root)?;
        let metadata = fs::metadata(&path).step("look at", &path)?;
        let user = rustix::process::geteuid().as_raw();
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if !metadata.is_dir() {
            return Err(StoreError::NotAFolder { path });
        }
        if owner != user {
            return Err(StoreError::Owner { path, owner, user });
        }
        if mode & 0o022 != 0 {
            return Err(StoreError::Mode { path, mode });
        }
        if let Some(above) = path.parent().filter(|_| made) {
            System.sync_dir(above).step("sync", above)?;
        }
        Ok(Store::on(System, path))
    }
}

impl<D: Disk> Store<D> {
    /// The store in an existing, safe folder of this disk.
    pub fn on(disk: D, root: PathBuf) -> Self {
        let (host, copy) = (None, None);
        Store {
            disk,
            root,
            host,
            copy,
            full: false,
            compress: false,
            cached: false,
            quota: 0,
        }
    }

    /// Limits the bytes of all files together; 0: no limit. Parts written from then on remove old
    /// checkpoints when they need room ([`Store::make_room`]).
    pub fn within(mut self, quota: u64) -> Self {
        self.quota = quota;
        self
    }

    /// Declares that the folder is on a disk of host `name` only. The folder then holds only the
    /// parts that this host wrote, and second copies of parts of other hosts.
    pub fn of_host(mut self, name: &str) -> Self {
        self.host = Some(name.to_owned());
        self
    }

    /// The folder of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The checkpoints of an application that have folders, oldest first.
    ///
    /// # Errors
    /// [`StoreError::System`] when the folder of the application cannot be read.
    pub fn ids(&self, app: Tid) -> Result<Vec<CheckpointId>, StoreError> {
        let names = self.names(&self.app_folder(app))?;
        let mut ids: Vec<_> = names
            .iter()
            .filter_map(|name| CheckpointId::parse(name))
            .collect();
        ids.sort();
        Ok(ids)
    }

    /// The applications with folders, sorted by task id.
    pub(crate) fn apps(&self) -> Result<Vec<Tid>, StoreError> {
        let names = self.disk.list(&self.root).step("list", &self.root)?;
        let mut apps: Vec<Tid> = names
            .iter()
            .filter_map(|name| name::parse_app(name))
            .collect();
        apps.sort();
        Ok(apps)
    }

    /// The names in a folder; none if the folder does not exist.
    pub(crate) fn names(&self, folder: &Path) -> Result<Vec<String>, StoreError> {
        match self.disk.list(folder) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names.step("list", folder),
        }
    }

    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    pub(crate) fn app_folder(&self, app: Tid) -> PathBuf {
        self.root.join(name::app(app))
    }

    pub(crate) fn folder(&self, app: Tid, id: CheckpointId) -> PathBuf {
        self.app_folder(app).join(id.to_string())
    }
}

/// Makes a folder, if it does not exist. Returns whether the folder was made.
pub(crate) fn make_dir<D: Disk>(disk: &D, path: &Path) -> Result<bool, StoreError> {
    match disk.make_dir(path) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(cause).step("make", path),
    }
}
