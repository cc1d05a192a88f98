//! Parts on the disks of two hosts, where each host has a store of its own: what is copied, and what
//! one of several stores has of a checkpoint.
//!
//! A copy is the file of a part, under the same name in the same folder, written by the same rules. An
//! increment is copied to where its base is ([`Store::copied_to`] sees to it), so a host that has the
//! file of a part can read all of it.

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

/// What one store has of a checkpoint.
#[derive(Debug)]
pub struct Stocked {
    /// Generation and epoch of the checkpoint.
    pub id: CheckpointId,
    /// Its manifest, or why that cannot be used here.
    pub manifest: Result<Manifest, StoreError>,
    /// The tasks whose images are here, as a whole as far as the look can tell.
    pub here: Vec<Tid>,
    /// What is wrong with others that are here.
    pub flaws: Vec<StoreError>,
}

impl<D: Disk> Store<D> {
    /// Says which host gets copies of the parts that this one writes, if any does. An image is stored in
    /// full if the one that it could be an increment of is not on both.
    pub fn copied_to(mut self, host: Option<&str>) -> Self {
        self.copy = host.map(str::to_owned);
        self
    }

    /// Has images stored in full, if `full`: what they could be increments of cannot be copied.
    pub fn in_full(mut self, full: bool) -> Self {
        self.full = full;
        self
    }

    /// Has the files of images compressed, if `compress`.
    pub fn compressed(mut self, compress: bool) -> Self {
        self.compress = compress;
        self
    }

    /// Has images go through the kernel's cache, if `cached`: it takes them sooner than a disk, in which
    /// they are all the same when they are finished. For tasks that stand until they have written them.
    pub fn cached(mut self, cached: bool) -> Self {
        self.cached = cached;
        self
    }

    /// Whether an increment of that part can be written here: it is in this store, and copied to where
    /// the increment will be.
    pub(crate) fn can_base(&self, base: &Part) -> bool {
        let here = |host: &String| base.place == *host && base.copy == self.copy;
        !self.full && self.host.as_ref().is_none_or(here)
    }

    /// The file of a part, for a copy of it. It is not verified; [`CheckpointWriter::take_copy`] does
    /// that.
    ///
    /// # Errors
    /// [`StoreError::Part`] when it is not there with its length, [`StoreError::Name`],
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

    /// Likewise, verified while it is read: in place of its last bytes there is an error, if these are
    /// not the bytes that were written.
    ///
    /// # Errors
    /// As [`Store::open_file`].
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

    /// Writes a part of a committed checkpoint again, in the place of one that is damaged or lost:
    /// `from` gives the bytes of its file. Nothing changes unless these are that part. No other process
    /// may do so at the same time.
    ///
    /// # Errors
    /// As [`CheckpointWriter::take_copy`].
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
        // Of one who was interrupted.
        let _ = self.disk().remove(&new);
        let disk = self.disk().clone();
        let writer = PartWriter::replace(disk, &folder, &part.name, &part.place, None)?;
        take(writer, part, from)
    }

    /// What is here of the newest checkpoints of an application, at most `max`, newest first; or of
    /// that one alone. Whoever wrote them: what another host's disk held may have been copied here. One
    /// without a manifest is left out.
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

    /// Removes what is here of a checkpoint that was given up, unless it is committed here. None there
    /// is no error.
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
    /// Writes a copy of a part that another host has in its store: `from` gives the bytes of its file.
    /// When this returns it is whole and on the disk. With a quota it may have so many bytes and no more.
    ///
    /// # Errors
    /// [`StoreError::Base`] when the base of an increment is not here, [`StoreError::Part`] when what
    /// came is not that part, or like [`CheckpointWriter::part`]. There is no such part then.
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
    /// It is the part.
    Plain(PartReader<D>),
    /// It ends with its own hash: an increment, or compressed.
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

/// A file that ends with the hash of what stands before it, all of whose bytes are handed on.
#[derive(Debug)]
pub struct SealedReader<D: Disk> {
    file: D::File,
    path: PathBuf,
    hasher: Hasher,
    /// Bytes that are to come before the hash.
    left: u64,
    /// What is wrong with it if that differs.
    unsealed: Option<Flaw>,
    /// What is still to be handed on of the hash, once it was read.
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

/// Writes all that comes, if that is this part.
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

/// What is wrong with the file of a part whose own hash, with which it ends, differs; none if it is
/// compared with that of the part, which it holds as it is.
fn unsealed(part: &Part) -> Option<Flaw> {
    let what = "its hash differs";
    match (part.packed, part.base) {
        (Some(_), _) => Some(Flaw::Compressed { what }),
        (None, Some(_)) => Some(Flaw::Increment { what }),
        (None, None) => None,
    }
}

/// Writes all that comes. Returns whether it ends with the hash of what stands before that.
fn write<D: Disk>(copy: &mut PartWriter<D>, from: &mut impl Read) -> Result<bool, StoreError> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; BUFFER];
    // What may be the hash at the end stands at the beginning of the buffer.
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
