//! Parts on the disks of two hosts, where each host has a store of its own: options for writing,
//! copying of parts, replacement of damaged parts, and the store inventory of one host.
//!
//! A copy is the file of a part, under the same name in the same folder, written by the same rules.
//! An increment is copied to the host that has its base ([`Store::copied_to`]), so a host that has
//! the file of a part can read the whole part.

use crate::{
    disk::Disk,
    error::{Flaw, Step, StoreError},
    hash::{HASH, Hasher},
    limits::BUFFER,
    listing::Depth,
    manifest::{Manifest, Part},
    name,
    part::PartWriter,
    part_reader::{self, PartReader},
    room::retry,
    store::Store,
    write::CheckpointWriter,
};
use std::{
    io::{self, Read},
    path::PathBuf,
};
use vm_wire::{CheckpointId, Tid};

/// The files of one checkpoint in one store: an entry of the store inventory.
#[derive(Debug)]
pub struct Stocked {
    /// Generation and epoch of the checkpoint.
    pub id: CheckpointId,
    /// The manifest, or the reason why this host cannot use the manifest.
    pub manifest: Result<Manifest, StoreError>,
    /// The tasks whose parts are whole in this store, as far as a check of the given depth shows.
    pub here: Vec<Tid>,
    /// The flaws of the other parts in this store.
    pub flaws: Vec<StoreError>,
}

impl<D: Disk> Store<D> {
    /// Sets the host that gets copies of the parts that this host writes, if there is such a host.
    /// An image is stored in full if its base is not on both hosts.
    pub fn copied_to(mut self, host: Option<&str>) -> Self {
        self.copy = host.map(str::to_owned);
        self
    }

    /// Stores images in full, if `full`: for a host that cannot copy the bases of increments.
    pub fn in_full(mut self, full: bool) -> Self {
        self.full = full;
        self
    }

    /// Compresses the files of images, if `compress`.
    pub fn compressed(mut self, compress: bool) -> Self {
        self.compress = compress;
        self
    }

    /// Writes images through the page cache, if `cached`. The cache takes bytes sooner than the
    /// disk, and a finished image is on the disk in both cases. For tasks that are frozen until
    /// their images are written.
    pub fn cached(mut self, cached: bool) -> Self {
        self.cached = cached;
        self
    }

    /// Whether this store can have an increment of `base`: the base is in this store, and has its
    /// copy on the host that gets the copy of the increment.
    pub(crate) fn can_base(&self, base: &Part) -> bool {
        let here = |host: &String| base.place == *host && base.copy == self.copy;
        !self.full && self.host.as_ref().is_none_or(here)
    }

    /// The file of a part, for copying. The file is not verified; [`CheckpointWriter::take_copy`]
    /// verifies the copy.
    ///
    /// # Errors
    /// [`StoreError::Part`] when the file is missing or has another length, [`StoreError::Name`],
    /// [`StoreError::System`].
    pub fn open_file(
        &self,
        app: Tid,
        id: CheckpointId,
        part: &Part,
    ) -> Result<D::File, StoreError> {
        check_name(part)?;
        let path = self.folder(app, id).join(&part.name);
        let file = part_reader::open_file(self.disk(), &path, part.file_bytes(), &part.place)?;
        file.map_err(|flaw| StoreError::Part { path, flaw })
    }

    /// Like [`Store::open_file`], verified while it is read: if the bytes are not those that were
    /// written, an error comes in place of the last bytes.
    ///
    /// # Errors
    /// Those of [`Store::open_file`].
    pub fn open_verified(
        &self,
        app: Tid,
        id: CheckpointId,
        part: &Part,
    ) -> Result<FileReader<D>, StoreError> {
        Ok(match unsealed(part) {
            None => FileReader::Plain(self.open_part(app, id, part)?),
            Some(unsealed) => FileReader::Sealed(SealedReader {
                file: self.open_file(app, id, part)?,
                path: self.folder(app, id).join(&part.name),
                hasher: Hasher::new(),
                left: part.file_bytes().saturating_sub(HASH as u64),
                unsealed: Some(unsealed),
                seal: None,
            }),
        })
    }

    /// Writes a part of a committed checkpoint again, in place of a damaged or lost file. `from`
    /// gives the bytes of the file. Nothing changes unless the bytes are that part. No other
    /// process may mend the same part at the same time.
    ///
    /// # Errors
    /// Those of [`CheckpointWriter::take_copy`].
    pub fn mend(
        &self,
        app: Tid,
        id: CheckpointId,
        part: &Part,
        from: &mut impl Read,
    ) -> Result<(), StoreError> {
        check_name(part)?;
        let folder = self.folder(app, id);
        let new = folder.join(format!("{}{}", part.name, name::NEW));
        // An interrupted call may have left a file.
        let _ = self.disk().remove(&new);
        let disk = self.disk().clone();
        let writer = PartWriter::replace(disk, &folder, &part.name, &part.place, None)?;
        take(writer, part, from)
    }

    /// The store inventory of an application: an entry for each of its newest checkpoints, at most
    /// `max`, newest first; or of checkpoint `only`. Parts of all hosts count, because parts of
    /// other hosts may have been copied to this store. Checkpoints without a manifest are left out.
    ///
    /// # Errors
    /// [`StoreError::System`] when the folder of the application cannot be read.
    pub fn stock(
        &self,
        app: Tid,
        only: Option<CheckpointId>,
        depth: Depth,
        max: usize,
    ) -> Result<Vec<Stocked>, StoreError> {
        let ids = self.ids(app)?.into_iter().rev();
        let wanted = ids.filter(|id| only.is_none_or(|only| only == *id));
        let stocked = wanted.filter_map(|id| self.stocked(app, id, depth));
        Ok(stocked.take(max).collect())
    }

    fn stocked(&self, app: Tid, id: CheckpointId, depth: Depth) -> Option<Stocked> {
        let mut stocked = Stocked {
            id,
            manifest: self.read(app, id),
            here: Vec::new(),
            flaws: Vec::new(),
        };
        if let Err(StoreError::Unfinished { .. } | StoreError::Absent { .. }) = stocked.manifest {
            return None;
        }
        let tasks = stocked.manifest.iter().flat_map(|it| &it.tasks);
        for task in tasks {
            let folder = self.app_folder(app);
            let looked = match depth {
                Depth::Lengths => {
                    part_reader::open(self.disk(), &folder, id, &task.image).map(drop)
                }
                Depth::Hashes => part_reader::verify(self.disk(), &folder, id, &task.image),
            };
            match looked {
                Ok(()) => stocked.here.push(task.tid),
                Err(StoreError::Part {
                    flaw: Flaw::Missing { .. },
                    ..
                }) if !self.holds(&task.image) => {}
                Err(why) => stocked.flaws.push(why),
            }
        }
        Some(stocked)
    }

    /// Removes the files of an aborted checkpoint, unless the checkpoint is committed in this
    /// store. An absent checkpoint is no error.
    ///
    /// # Errors
    /// [`StoreError::Committed`], [`StoreError::System`].
    pub fn give_up(&self, app: Tid, id: CheckpointId) -> Result<(), StoreError> {
        match self.ids(app)?.contains(&id) {
            true => self.begin(app, id)?.abort(),
            false => Ok(()),
        }
    }
}

impl<D: Disk> CheckpointWriter<D> {
    /// Writes a copy of a part of another host; `from` gives the bytes of the part's file. After a
    /// return without an error the copy is whole and on the disk. `quota` bounds the length of the
    /// copy. Bytes.
    ///
    /// # Errors
    /// [`StoreError::Base`] when the base of an increment is not in this store,
    /// [`StoreError::Part`] when the bytes are not that part, or like [`CheckpointWriter::part`].
    /// The copy does not exist then.
    pub fn take_copy(
        &self,
        part: &Part,
        from: &mut impl Read,
        quota: Option<u64>,
    ) -> Result<(), StoreError> {
        check_name(part)?;
        self.look_for_base(part)?;
        take(self.part(&part.name, &part.place, quota)?, part, from)
    }

    fn look_for_base(&self, part: &Part) -> Result<(), StoreError> {
        let (store, app, id) = self.whose();
        let Some(of) = part.base else {
            return Ok(());
        };
        let folder = store.folder(app, CheckpointId::new(of.generation, of.epoch));
        let base = folder.join(&part.name);
        let path = store.folder(app, id).join(&part.name);
        let file = part_reader::open_file(store.disk(), &base, of.file_bytes(), &part.place)?;
        file.map(drop)
            .map_err(|flaw| StoreError::Base { path, base, flaw })
    }
}

/// The file of a part, verified while it is read.
#[derive(Debug)]
pub enum FileReader<D: Disk> {
    /// A file that is the image itself.
    Plain(PartReader<D>),
    /// A file that ends with its own hash: an increment, or a compressed file.
    Sealed(SealedReader<D>),
}

impl<D: Disk> Read for FileReader<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            FileReader::Plain(part) => part.read(buffer),
            FileReader::Sealed(file) => file.read(buffer),
        }
    }
}

/// A file that ends with the hash of the bytes before it. The reader gives out all bytes, the hash
/// included.
#[derive(Debug)]
pub struct SealedReader<D: Disk> {
    file: D::File,
    path: PathBuf,
    hasher: Hasher,
    /// Bytes before the hash that are not read yet.
    left: u64,
    /// The flaw to report if the hash differs.
    unsealed: Option<Flaw>,
    /// The hash, once it was read, and the number of its bytes that were given out.
    seal: Option<([u8; HASH], usize)>,
}

impl<D: Disk> Read for SealedReader<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left > 0 {
            let most = buffer.len().min(self.left.try_into().unwrap_or(usize::MAX));
            let read = self.file.read(&mut buffer[..most])?;
            self.hasher.update(&buffer[..read]);
            self.left -= read as u64;
            return Ok(read);
        }
        let (seal, at) = match &mut self.seal {
            Some(seal) => seal,
            None => {
                let mut found = [0; HASH];
                self.file.read_exact(&mut found)?;
                if self.hasher.finish() != found {
                    let what = "its hash differs";
                    let flaw = self.unsealed.take().unwrap_or(Flaw::Increment { what });
                    let path = self.path.clone();
                    return Err(io::Error::other(StoreError::Part { path, flaw }));
                }
                self.seal.insert((found, 0))
            }
        };
        let count = buffer.len().min(HASH - *at);
        buffer[..count].copy_from_slice(&seal[*at..*at + count]);
        *at += count;
        Ok(count)
    }
}

/// Writes all bytes of `from`, and gives the copy its name if the bytes are this part.
fn take<D: Disk>(
    mut copy: PartWriter<D>,
    part: &Part,
    from: &mut impl Read,
) -> Result<(), StoreError> {
    let path = copy.path();
    let sealed = write(&mut copy, from)?;
    let (found, expected) = (copy.bytes(), part.file_bytes());
    let flaw = match unsealed(part) {
        _ if found != expected => Flaw::Length { found, expected },
        None if copy.hash() != part.hash => Flaw::Content {
            found: copy.hash(),
            expected: part.hash,
        },
        Some(flaw) if !sealed => flaw,
        _ => return copy.finish().map(drop),
    };
    Err(StoreError::Part { path, flaw })
}

/// The flaw of a part's file whose hash at its end differs. `None` for a file without a hash of its
/// own: the file is the image, and the hash of the part covers it.
fn unsealed(part: &Part) -> Option<Flaw> {
    let what = "its hash differs";
    match (part.packed, part.base) {
        (Some(_), _) => Some(Flaw::Compressed { what }),
        (None, Some(_)) => Some(Flaw::Increment { what }),
        (None, None) => None,
    }
}

/// Writes all bytes of `from`. Returns whether they end with the hash of the bytes before it.
fn write<D: Disk>(copy: &mut PartWriter<D>, from: &mut impl Read) -> Result<bool, StoreError> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; BUFFER];
    // The last bytes, which may be the hash, stand at the beginning of the buffer.
    let mut held = 0;
    loop {
        let read = retry(|| from.read(&mut buffer[held..]));
        let read = read.step("read what goes into", &copy.path())?;
        if read == 0 {
            let hash = hasher.finish();
            return Ok(held == HASH && buffer[..HASH] == hash);
        }
        let end = held + read;
        copy.write(&buffer[held..end])?;
        let hashed = end.saturating_sub(HASH);
        hasher.update(&buffer[..hashed]);
        buffer.copy_within(hashed..end, 0);
        held = end - hashed;
    }
}

fn check_name(part: &Part) -> Result<(), StoreError> {
    match name::is_part(&part.name) {
        true => Ok(()),
        false => Err(StoreError::Name {
            name: part.name.clone(),
        }),
    }
}
