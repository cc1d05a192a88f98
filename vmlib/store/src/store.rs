//! A folder of checkpoints: what is in it, and whether that is whole.

use crate::{
    disk::{Disk, System},
    error::{ManifestError, Step, StoreError},
    limits::MANIFEST_MAX,
    manifest::{Manifest, Part},
    name,
    part::{self, PartReader},
    write::CheckpointWriter,
};
use std::{
    fs,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use vm_wire::{CheckpointId, Tid};

/// A folder of checkpoints.
#[derive(Debug, Clone)]
pub struct Store<D: Disk = System> {
    disk: D,
    root: PathBuf,
    /// The host whose parts alone are in this folder; none if all hosts share it.
    pub(crate) host: Option<String>,
    /// The host that gets copies of what this one writes.
    pub(crate) copy: Option<String>,
    /// No image is stored as an increment.
    pub(crate) full: bool,
    /// The files of images are compressed.
    pub(crate) compress: bool,
    /// They go through the cache.
    pub(crate) cached: bool,
    /// Bytes that all files together may have; 0: any number.
    pub(crate) quota: u64,
}

/// How closely parts are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// They are there and have their lengths: what a power cut could have done is found.
    Lengths,
    /// They have their hashes too: each is read as a whole, at a few GB/s at best.
    Hashes,
}

/// One folder of a checkpoint, as [`Store::list`] finds it.
#[derive(Debug)]
pub struct Entry {
    /// The application.
    pub app: Tid,
    /// Which of its checkpoints.
    pub id: CheckpointId,
    /// State of the checkpoint.
    pub state: State,
}

/// What is in the folder of a checkpoint.
#[derive(Debug)]
pub enum State {
    /// A manifest, and all parts with their lengths.
    Committed(Summary),
    /// No manifest: it is being written, or was given up.
    Unfinished {
        /// Files of the store that are there.
        files: usize,
    },
    /// A manifest, but it cannot be used.
    Damaged(StoreError),
}

/// What a listing says of a committed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// When it was taken. Milliseconds since 1970.
    pub taken_ms: u64,
    /// Bytes of all its parts together, on all hosts.
    pub bytes: u64,
    /// Bytes of their files.
    pub stored: u64,
    /// The full checkpoint that it is an increment of.
    pub base: Option<CheckpointId>,
    /// Number of its tasks.
    pub tasks: usize,
    /// How long the task stood still that stood longest. Microseconds, as what follows.
    pub freeze_us: u64,
    /// From the wish until all of it was saved.
    pub took_us: u64,
    /// Chunks of messages in transit: sent, and not known to have been taken.
    pub in_transit: u64,
    /// The master's program, for people.
    pub program: String,
}

/// What [`Store::last_good`] found.
#[derive(Debug)]
pub struct LastGood {
    /// The newest checkpoint in all of whose parts nothing wrong was seen, if there is one.
    pub good: Option<(CheckpointId, Manifest)>,
    /// The newer ones, newest first, and why none of them is it.
    pub passed_over: Vec<(CheckpointId, StoreError)>,
}

impl Store {
    /// The store in folder `root`, which is made if only its last part lacks. All hosts share it,
    /// unless [`Store::of_host`] says otherwise.
    ///
    /// # Errors
    /// [`StoreError::NotAFolder`], [`StoreError::Owner`], [`StoreError::Mode`]: the folder is not
    /// safe. [`StoreError::System`].
    pub fn open(root: impl AsRef<Path>) -> Result<Self, StoreError> {
        let root = root.as_ref();
        let made = make_dir(&System, root)?;
        // Whoever exchanges a link in the path later does not lead the store elsewhere.
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
    /// The store in a folder of this disk, which is there and safe.
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

    /// Says that all files together may have so many bytes; 0: any number. What is written from then on
    /// makes room for itself ([`Store::make_room`]).
    pub fn within(mut self, quota: u64) -> Self {
        self.quota = quota;
        self
    }

    /// Says that the folder is on a disk of the host of this name, who shares it with nobody: only
    /// the parts that it wrote, and those that were copied to it, are looked for.
    pub fn of_host(mut self, name: &str) -> Self {
        self.host = Some(name.to_owned());
        self
    }

    /// The folder of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Begins a checkpoint, or takes part in one that another process has begun.
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

    /// All checkpoints, by application, oldest first. What is not named as the layout says is
    /// passed over.
    ///
    /// # Errors
    /// [`StoreError::System`] when a folder cannot be read. What is wrong with one checkpoint is
    /// said there.
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

    /// The manifest of a committed checkpoint. Its parts are not looked at.
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
    /// [`StoreError::Part`] names the first part that differs, and in what, [`StoreError::Base`] that
    /// of an earlier checkpoint that lacks; or like [`Store::read`].
    pub fn verify(&self, app: Tid, id: CheckpointId) -> Result<Manifest, StoreError> {
        self.look(app, id, Depth::Hashes)
    }

    /// The newest checkpoint of an application that is whole, as far as such a look can tell, and
    /// why newer ones are not.
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

    /// How many bytes may be written until the files of all checkpoints have `quota` bytes together.
    ///
    /// # Errors
    /// [`StoreError::Full`] when there is room for none, [`StoreError::System`].
    pub fn room(&self, quota: u64) -> Result<u64, StoreError> {
        let mut used: u64 = 0;
        for app in self.apps()? {
            let ids = self.ids(app)?.into_iter();
            let folders = ids.map(|id| self.folder(app, id));
            for folder in folders.chain([self.suspended_folder(app)]) {
                for name in self.names(&folder)? {
                    // It may be removed at the moment, or none of the store's.
                    let opened = self.disk.open(&folder.join(name));
                    used = used.saturating_add(opened.map_or(0, |(_, len)| len));
                }
            }
        }
        let root = self.root.clone();
        let left = quota.checked_sub(used).filter(|left| *left > 0);
        left.ok_or(StoreError::Full { root, used, quota })
    }

    /// Opens a part for reading, if its files have the lengths that the manifest says. It is
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
        part::open(&self.disk, &self.app_folder(app), id, part)
    }

    /// Reads the manifest and looks at all parts that are to be in this folder.
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
                Depth::Lengths => drop(part::open(&self.disk, &folder, id, part)?),
                Depth::Hashes => part::verify(&self.disk, &folder, id, part)?,
            }
        }
        Ok(())
    }

    /// Whether a part is to be in this folder.
    pub(crate) fn holds(&self, part: &Part) -> bool {
        let of = |host: &String| *host == part.place || Some(host) == part.copy.as_ref();
        self.host.as_ref().is_none_or(of)
    }

    /// The folders of checkpoints of an application, oldest first.
    ///
    /// # Errors
    /// [`StoreError::System`] when its folder cannot be read.
    pub fn ids(&self, app: Tid) -> Result<Vec<CheckpointId>, StoreError> {
        let names = self.names(&self.app_folder(app))?;
        let mut ids: Vec<_> = names
            .iter()
            .filter_map(|name| CheckpointId::parse(name))
            .collect();
        ids.sort();
        Ok(ids)
    }

    /// The applications, sorted.
    pub(crate) fn apps(&self) -> Result<Vec<Tid>, StoreError> {
        let names = self.disk.list(&self.root).step("list", &self.root)?;
        let mut apps: Vec<Tid> = names
            .iter()
            .filter_map(|name| name::parse_app(name))
            .collect();
        apps.sort();
        Ok(apps)
    }

    /// What is in a folder; nothing if there is none.
    pub(crate) fn names(&self, folder: &Path) -> Result<Vec<String>, StoreError> {
        match self.disk.list(folder) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names.step("list", folder),
        }
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

/// Makes a folder, if there is none. Returns whether it did.
pub(crate) fn make_dir<D: Disk>(disk: &D, path: &Path) -> Result<bool, StoreError> {
    match disk.make_dir(path) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(cause).step("make", path),
    }
}
