//! Parts: written once, in one pass, hashed on the way; read in one pass, and verified on the way.

use crate::{
    compressed::{Compressor, Content},
    disk::{Disk, PAGE, System},
    error::{Flaw, Step, StoreError},
    hash::{HASH, Hasher},
    increment::{IncrementReader, retry},
    limits::{BUFFER, FRAME},
    manifest::Part,
    name,
    store::Store,
};
use memmap2::{Advice, MmapMut};
use std::{
    fmt,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};
use vm_wire::CheckpointId;

/// The size of a large page of x86-64, and of aarch64 with pages of 4 KiB. Bytes.
const LARGE_PAGE: usize = 2 << 20;

/// So many bytes are written from where they are, if they lie as a disk takes them; fewer, with what
/// comes next.
const AS_IT_IS_MIN: usize = 64 * 1024;

/// A part that is being written. Dropped before [`PartWriter::finish`] it removes what it wrote.
#[derive(Debug)]
pub struct PartWriter<D: Disk = System> {
    disk: D,
    folder: PathBuf,
    /// What to remove if nothing becomes of it; none once it is finished.
    path: Option<PathBuf>,
    file: D::File,
    name: String,
    place: String,
    quota: u64,
    /// The store whose quota that is a part of: it may make room for more.
    store: Option<Box<Store<D>>>,
    bytes: u64,
    hasher: Hasher,
    /// What comes next into the file, and how much of it there is.
    room: Room,
    filled: usize,
    compressor: Option<Box<Compressor>>,
    /// Length of the file, when that was compressed.
    packed: Option<u64>,
}

impl<D: Disk> PartWriter<D> {
    pub(crate) fn create(
        disk: D,
        folder: &Path,
        name: &str,
        place: &str,
        quota: Option<u64>,
    ) -> Result<Self, StoreError> {
        let writer = Self::replace(disk, folder, name, place, quota)?;
        // Looked for only now: whoever finished it before has no file of the other name any more.
        absent(&writer.disk, &folder.join(name), |path| {
            StoreError::Exists { path }
        })?;
        Ok(writer)
    }

    /// Likewise, in the place of a part that is there perhaps, until it is finished.
    pub(crate) fn replace(
        disk: D,
        folder: &Path,
        name: &str,
        place: &str,
        quota: Option<u64>,
    ) -> Result<Self, StoreError> {
        let path = folder.join(format!("{name}{}", name::NEW));
        let mut file = create(&disk, &path)?;
        disk.bypass_cache(&mut file, true);
        Ok(PartWriter {
            folder: folder.to_owned(),
            path: Some(path),
            file,
            name: name.to_owned(),
            place: place.to_owned(),
            quota: quota.unwrap_or(u64::MAX),
            store: None,
            bytes: 0,
            hasher: Hasher::new(),
            room: Room::new(),
            filled: 0,
            compressor: None,
            packed: None,
            disk,
        })
    }

    /// Makes room for itself in that store, if that has a quota.
    pub(crate) fn within(mut self, store: &Store<D>) -> Result<Self, StoreError> {
        if store.quota > 0 {
            self.quota = self.quota.min(store.make_room(store.quota, 1)?);
            self.store = Some(Box::new(store.clone()));
        }
        Ok(self)
    }

    /// Compresses what comes. The quota is that of its file.
    pub(crate) fn compressed(mut self) -> Self {
        self.compressor = Some(Box::new(Compressor::new()));
        self
    }

    /// What comes goes through the cache.
    pub(crate) fn cached(mut self) -> Self {
        self.disk.bypass_cache(&mut self.file, false);
        self
    }

    /// The part's path.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Appends all that `from` has, up to its end. Returns how many bytes that were.
    ///
    /// # Errors
    /// [`StoreError::Quota`], or [`StoreError::System`] when reading or writing fails. What was
    /// written is of no use then.
    pub fn copy(&mut self, from: &mut impl Read) -> Result<u64, StoreError> {
        let before = self.bytes;
        if self.filled == 0 {
            self.room = Room::in_large_page();
        }
        loop {
            let rest = self.room.rest(self.filled);
            let read = retry(|| from.read(rest));
            let read = read.step("read what goes into", &self.path())?;
            if read == 0 {
                return Ok(self.bytes - before);
            }
            self.grow(read)?;
            let end = self.filled + read;
            self.hasher.update(&self.room.came(0, end)[self.filled..]);
            self.filled = end;
            self.flush_full()?;
        }
    }

    /// Appends these bytes.
    ///
    /// # Errors
    /// Like [`PartWriter::copy`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.grow(bytes.len())?;
        self.hasher.update(bytes);
        let mut left = bytes;
        let begins_page = self.filled == 0 && bytes.as_ptr().align_offset(PAGE) == 0;
        if begins_page && bytes.len() >= AS_IT_IS_MIN {
            let unit = self.compressor.as_ref().map_or(PAGE, |_| FRAME);
            let (whole, rest) = bytes.split_at(bytes.len() / unit * unit);
            self.put(Some(whole))?;
            left = rest;
        }
        while !left.is_empty() {
            let rest = self.room.rest(self.filled);
            let (first, more) = left.split_at(left.len().min(rest.len()));
            rest[..first.len()].copy_from_slice(first);
            self.filled += first.len();
            left = more;
            self.flush_full()?;
        }
        Ok(())
    }

    /// So many bytes come, if the quota lets them.
    fn grow(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        match self.compressor {
            None => self.fits(self.bytes),
            // It will be less.
            Some(_) => Ok(()),
        }
    }

    /// Whether the file may be so long. Others may have written meanwhile, or have been removed: the store
    /// says what there is room for now.
    fn fits(&mut self, bytes: u64) -> Result<(), StoreError> {
        if bytes > self.quota
            && let (Some(store), Some(path)) = (&self.store, &self.path)
        {
            let (_, written) = self.disk.open(path).step("look at", path)?;
            let wanted = bytes.saturating_sub(written).saturating_add(BUFFER as u64);
            match store.make_room(store.quota, wanted) {
                Ok(left) => self.quota = written.saturating_add(left),
                Err(StoreError::Full { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match bytes <= self.quota {
            true => Ok(()),
            false => Err(StoreError::Quota {
                path: self.path(),
                quota: self.quota,
            }),
        }
    }

    /// Writes what is in the room, if there is no more.
    fn flush_full(&mut self) -> Result<(), StoreError> {
        match self.filled < BUFFER {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.put(None)
    }

    /// Writes these bytes, or what is in the room.
    fn put(&mut self, bytes: Option<&[u8]>) -> Result<(), StoreError> {
        let filled = std::mem::take(&mut self.filled);
        let bytes = bytes.unwrap_or(self.room.came(0, filled));
        let written = match &mut self.compressor {
            None => self.file.write_all(bytes),
            Some(compressor) => compressor.write(bytes, &mut self.file),
        };
        written.step("write", &self.path())?;
        match &self.compressor {
            None => Ok(()),
            Some(compressor) => {
                let bytes = compressor.bytes();
                self.fits(bytes)
            }
        }
    }

    /// The hash of what was written so far.
    pub(crate) fn hash(&self) -> [u8; HASH] {
        self.hasher.finish()
    }

    /// How many bytes were written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes what is left, if there is room for it. Nothing is written after that.
    pub(crate) fn end(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        let Some(mut compressor) = self.compressor.take() else {
            return Ok(());
        };
        let finished = compressor.finish(&mut self.file);
        finished.step("write", &self.path())?;
        self.packed = Some(compressor.bytes());
        let bytes = compressor.bytes();
        self.fits(bytes)
    }

    /// Gives the part its name, when it is on the disk. It survives a power cut from here on, as a
    /// part of an unfinished checkpoint.
    ///
    /// # Errors
    /// [`StoreError::System`], [`StoreError::Quota`] if it is compressed; there is no such part then.
    pub fn finish(mut self) -> Result<Part, StoreError> {
        self.end()?;
        let path = self.path();
        self.disk.sync(&mut self.file).step("sync", &path)?;
        self.disk.leave_cache(&mut self.file);
        if let Some(new) = &self.path {
            self.disk.rename(new, &path).step("rename to", &path)?;
        }
        self.path = Some(path);
        let synced = self.disk.sync_dir(&self.folder);
        synced.step("sync", &self.folder)?;
        self.path = None;
        Ok(Part {
            name: std::mem::take(&mut self.name),
            bytes: self.bytes,
            hash: self.hash(),
            place: std::mem::take(&mut self.place),
            stored: self.bytes,
            packed: self.packed,
            base: None,
            copy: None,
        })
    }
}

impl<D: Disk> Drop for PartWriter<D> {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // What stays behind goes with the checkpoint, which cannot be committed with it.
            let _ = self.disk.remove(path);
        }
    }
}

/// Room for what goes into a part: it begins where a page begins, as a file takes it that bypasses
/// the cache ([`Disk::bypass_cache`]).
pub(crate) struct Room {
    memory: Memory,
    /// Where that is. Before it there is room for less than a block.
    start: usize,
}

enum Memory {
    Heap(Vec<u8>),
    Map(MmapMut),
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Room")
    }
}

impl Room {
    pub fn new() -> Self {
        let bytes = vec![0; 2 * PAGE + BUFFER];
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE) + PAGE;
        let memory = Memory::Heap(bytes);
        Room { memory, start }
    }

    /// Likewise, for much: in one large page, where the system has them. Of that the disk takes all at
    /// once, where it is given a list of hundreds of pages otherwise.
    pub fn in_large_page() -> Self {
        let Ok(map) = MmapMut::map_anon(2 * LARGE_PAGE) else {
            return Room::new();
        };
        // Without them it is as good as on the heap.
        let _ = map.advise(Advice::HugePage);
        let start = map.as_ptr().align_offset(LARGE_PAGE).min(LARGE_PAGE) + PAGE;
        let memory = Memory::Map(map);
        Room { memory, start }
    }

    fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(bytes) => bytes,
            Memory::Map(map) => map,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Heap(bytes) => bytes,
            Memory::Map(map) => map,
        }
    }

    /// All of it but so many bytes at its beginning.
    pub fn rest(&mut self, filled: usize) -> &mut [u8] {
        let start = self.start;
        &mut self.bytes_mut()[start..][filled..BUFFER]
    }

    /// Reads until it is full, or to the end.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<usize> {
        let room = self.rest(0);
        let mut filled = 0;
        while filled < BUFFER {
            match retry(|| from.read(&mut room[filled..]))? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }

    /// So many bytes that came last, and before them so many that were kept.
    pub fn came(&self, kept: usize, came: usize) -> &[u8] {
        &self.bytes()[self.start - kept..self.start + came]
    }

    /// Keeps so many bytes at its end, less than a block, when it is filled again.
    pub fn keep(&mut self, bytes: usize) {
        let (start, end) = (self.start, self.start + BUFFER);
        self.bytes_mut()
            .copy_within(end - bytes..end, start - bytes);
    }
}

/// Makes a file that must not be there.
pub(crate) fn create<D: Disk>(disk: &D, path: &Path) -> Result<D::File, StoreError> {
    disk.create(path).map_err(|cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists {
            path: path.to_owned(),
        },
        _ => StoreError::System {
            step: "make",
            path: path.to_owned(),
            cause,
        },
    })
}

/// Sees to it that there is no such file.
pub(crate) fn absent<D: Disk>(
    disk: &D,
    path: &Path,
    there: impl FnOnce(PathBuf) -> StoreError,
) -> Result<(), StoreError> {
    match disk.open(path) {
        Ok(_) => Err(there(path.to_owned())),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(cause).step("look for", path),
    }
}

/// A part that is being read, and verified with that: its last bytes come only when all of it has
/// proved to be what the manifest says, so whoever has them has a part that is whole.
#[derive(Debug)]
pub struct PartReader<D: Disk = System> {
    source: Source<D>,
    path: PathBuf,
    hasher: Hasher,
    /// What it has to hash to.
    expected: [u8; HASH],
    /// Bytes that are still to come.
    left: u64,
}

#[derive(Debug)]
enum Source<D: Disk> {
    /// Its file holds all of it.
    Full(Content<D::File>),
    /// It is put together of an increment and its base.
    Increment(Box<IncrementReader<D>>),
}

impl<D: Disk> PartReader<D> {
    /// Whether it is put together of an increment and its base.
    pub fn is_increment(&self) -> bool {
        matches!(self.source, Source::Increment(_))
    }

    /// Fills the buffer with what comes next, or a part of it at the end; 0 behind that. In place of
    /// the last bytes of a part that is damaged there is the error.
    ///
    /// # Errors
    /// [`StoreError::Part`], [`StoreError::Base`], [`StoreError::System`].
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, StoreError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.source.read(&mut buffer[filled..], &self.path)? {
                0 => break,
                read => filled += read,
            }
        }
        self.hasher.update(&buffer[..filled]);
        self.left = self.left.saturating_sub(filled as u64);
        if self.left == 0 || filled < buffer.len() {
            self.verify()?;
        }
        Ok(filled)
    }

    /// All of it was read, or there is no more: is it what the manifest says?
    fn verify(&mut self) -> Result<(), StoreError> {
        // Behind its last bytes an increment has its own hash.
        let more = self.source.read(&mut [0], &self.path)?;
        let found = self.hasher.finish();
        let flaw = match more {
            0 if found == self.expected => return Ok(()),
            0 => Flaw::Content {
                found,
                expected: self.expected,
            },
            _ => Flaw::Changed,
        };
        Err(match &self.source {
            Source::Full(_) => StoreError::Part {
                path: self.path.clone(),
                flaw,
            },
            // The increment held its own hash: what came of the base is not what it was.
            Source::Increment(reader) => reader.base_flaw(Flaw::Changed),
        })
    }
}

impl<D: Disk> Source<D> {
    fn read(&mut self, buffer: &mut [u8], path: &Path) -> Result<usize, StoreError> {
        match self {
            Source::Full(file) => retry(|| file.read(buffer)).step("read", path),
            Source::Increment(reader) => reader.fill(buffer),
        }
    }
}

impl<D: Disk> Read for PartReader<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fill(buffer).map_err(io::Error::other)
    }
}

/// Opens a part that is stored in full in a folder, if its file is there and has its length.
pub(crate) fn open_full<D: Disk>(
    disk: &D,
    folder: &Path,
    part: &Part,
) -> Result<PartReader<D>, StoreError> {
    let path = folder.join(&part.name);
    match open_file(disk, &path, part.file_bytes(), &part.place)? {
        Ok(file) => Ok(PartReader {
            source: Source::Full(Content::new(file, part.packed, part.stored)),
            path,
            hasher: Hasher::new(),
            expected: part.hash,
            left: part.bytes,
        }),
        Err(flaw) => Err(StoreError::Part { path, flaw }),
    }
}

/// Opens a part, if its file and that of its base are there and have the lengths that the manifest
/// says. Checkpoints are in folder `app`.
pub(crate) fn open<D: Disk>(
    disk: &D,
    app: &Path,
    id: CheckpointId,
    part: &Part,
) -> Result<PartReader<D>, StoreError> {
    if !name::is_part(&part.name) {
        let name = part.name.clone();
        return Err(StoreError::Name { name });
    }
    let path = app.join(id.to_string()).join(&part.name);
    let file = match open_file(disk, &path, part.file_bytes(), &part.place)? {
        Ok(file) => file,
        Err(flaw) => return Err(StoreError::Part { path, flaw }),
    };
    let reader = |source, path| PartReader {
        source,
        path,
        hasher: Hasher::new(),
        expected: part.hash,
        left: part.bytes,
    };
    let Some(base) = &part.base else {
        let content = Content::new(file, part.packed, part.stored);
        return Ok(reader(Source::Full(content), path));
    };
    let of = CheckpointId::new(base.generation, base.epoch);
    let base_path = app.join(of.to_string()).join(&part.name);
    match open_file(disk, &base_path, base.file_bytes(), &part.place)? {
        Ok(base_file) => {
            let (file, base_file) = ((file, path.clone()), (base_file, base_path));
            let increment = IncrementReader::new(part, base, file, base_file);
            Ok(reader(Source::Increment(Box::new(increment)), path))
        }
        Err(flaw) => Err(StoreError::Base {
            path,
            base: base_path,
            flaw,
        }),
    }
}

/// Opens a file, if it has this length; else says what is wrong with it.
pub(crate) fn open_file<D: Disk>(
    disk: &D,
    path: &Path,
    expected: u64,
    place: &str,
) -> Result<Result<D::File, Flaw>, StoreError> {
    match disk.open(path) {
        Ok((file, found)) if found == expected => Ok(Ok(file)),
        Ok((_, found)) => Ok(Err(Flaw::Length { found, expected })),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Err(Flaw::Missing {
            place: place.to_owned(),
        })),
        Err(cause) => Err(cause).step("open", path),
    }
}

/// Reads a part and compares it with what the manifest says.
pub(crate) fn verify<D: Disk>(
    disk: &D,
    app: &Path,
    id: CheckpointId,
    part: &Part,
) -> Result<(), StoreError> {
    let mut reader = open(disk, app, id, part)?;
    let mut buffer = vec![0; BUFFER];
    while reader.fill(&mut buffer)? > 0 {}
    Ok(())
}
