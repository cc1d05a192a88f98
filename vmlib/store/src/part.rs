//! Writes parts, each once and in one pass. A writer creates a file under a temporary name, writes
//! and hashes the bytes on the way (compressed or not), syncs the file, and gives it its name.
//! Bytes of large pieces go to the disk from the caller's memory; small pieces go through a buffer.

use crate::{
    compressed::Compressor,
    disk::{Disk, PAGE, System},
    error::{Step, StoreError},
    hash::{HASH, Hasher},
    limits::{BUFFER, FRAME},
    manifest::Part,
    name,
    room::{Room, retry},
    store::Store,
};
use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// A piece of this length or more is written from the caller's memory, if it begins at a page. A
/// shorter piece is copied into the buffer. Bytes.
const AS_IT_IS_MIN: usize = 64 * 1024;

/// A part that is being written. A writer that is dropped before [`PartWriter::finish`] removes its
/// file.
#[derive(Debug)]
pub struct PartWriter<D: Disk = System> {
    disk: D,
    folder: PathBuf,
    /// File to remove on drop; `None` once the part is finished.
    path: Option<PathBuf>,
    file: D::File,
    name: String,
    place: String,
    quota: u64,
    /// The store that the quota belongs to. The store can make room for more.
    store: Option<Box<Store<D>>>,
    bytes: u64,
    hasher: Hasher,
    /// Next bytes of the file; the first `filled` bytes of the buffer are used.
    room: Room,
    filled: usize,
    compressor: Option<Box<Compressor>>,
    /// Length of the compressed file, once it has ended. Bytes.
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
        // The check comes after the creation of the new file: a process that finished the part
        // earlier has renamed its new file.
        absent(&writer.disk, &folder.join(name), |path| {
            StoreError::Exists { path }
        })?;
        Ok(writer)
    }

    /// Begins a part that replaces an existing part, if there is one, when it is finished.
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

    /// Makes room for the part in `store`, if the store has a quota.
    pub(crate) fn within(mut self, store: &Store<D>) -> Result<Self, StoreError> {
        if store.quota > 0 {
            self.quota = self.quota.min(store.make_room(store.quota, 1)?);
            self.store = Some(Box::new(store.clone()));
        }
        Ok(self)
    }

    /// Compresses the content. The quota then bounds the length of the compressed file.
    pub(crate) fn compressed(mut self) -> Self {
        self.compressor = Some(Box::new(Compressor::new()));
        self
    }

    /// Writes the content through the page cache.
    pub(crate) fn cached(mut self) -> Self {
        self.disk.bypass_cache(&mut self.file, false);
        self
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Appends all bytes of `from`, up to its end. Returns their number.
    ///
    /// # Errors
    /// [`StoreError::Quota`], or [`StoreError::System`] when reading or writing fails. The bytes
    /// written so far cannot be used then.
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

    /// Appends these bytes to the part.
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

    /// Counts `bytes` more bytes, if the quota allows them.
    fn grow(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        match self.compressor {
            None => self.fits(self.bytes),
            // The compressed length is checked after the compression.
            Some(_) => Ok(()),
        }
    }

    /// Checks that the file may have `bytes` bytes. Other files may have been written or removed
    /// meanwhile, so the store computes the room anew.
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

    /// Writes the buffer, if it is full.
    fn flush_full(&mut self) -> Result<(), StoreError> {
        match self.filled < BUFFER {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.put(None)
    }

    /// Writes these bytes, or the filled part of the buffer.
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

    /// Hash of the bytes written so far, before compression.
    pub(crate) fn hash(&self) -> [u8; HASH] {
        self.hasher.finish()
    }

    /// Number of bytes written so far, before compression.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the rest of the file, if the quota allows it. Nothing may be written after this call.
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

    /// Syncs the part, then gives it its name. The part survives a power cut from then on, as a
    /// part of an unfinished checkpoint.
    ///
    /// # Errors
    /// [`StoreError::System`], or [`StoreError::Quota`] if the part is compressed. The part does
    /// not exist then.
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
            // A file that stays is removed with the checkpoint. The checkpoint cannot be committed
            // with that file.
            let _ = self.disk.remove(path);
        }
    }
}

/// Creates a file; a file of this name must not exist.
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

/// Checks that a file does not exist; `there` makes the error.
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
