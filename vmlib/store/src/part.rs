//! Parts: written once, in one pass, hashed on the way.

use crate::{
    disk::{Disk, System},
    error::{Flaw, Step, StoreError},
    limits::BUFFER,
    manifest::Part,
    name,
};
use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

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
    bytes: u64,
    hasher: blake3::Hasher,
}

impl<D: Disk> PartWriter<D> {
    pub(crate) fn create(
        disk: D,
        folder: &Path,
        name: &str,
        place: &str,
        quota: Option<u64>,
    ) -> Result<Self, StoreError> {
        if !name::is_part(name) {
            let name = name.to_owned();
            return Err(StoreError::Name { name });
        }
        let path = folder.join(format!("{name}{}", name::NEW));
        let file = create(&disk, &path)?;
        let writer = PartWriter {
            folder: folder.to_owned(),
            path: Some(path),
            file,
            name: name.to_owned(),
            place: place.to_owned(),
            quota: quota.unwrap_or(u64::MAX),
            bytes: 0,
            hasher: blake3::Hasher::new(),
            disk,
        };
        // Looked for only now: whoever finished it before has no file of the other name any more.
        absent(&writer.disk, &folder.join(name), |path| {
            StoreError::Exists { path }
        })?;
        Ok(writer)
    }

    /// Appends all that `from` has, up to its end. Returns how many bytes that were.
    ///
    /// # Errors
    /// [`StoreError::Quota`], or [`StoreError::System`] when reading or writing fails. What was
    /// written is of no use then.
    pub fn copy(&mut self, from: &mut impl Read) -> Result<u64, StoreError> {
        let mut buffer = vec![0; BUFFER];
        let before = self.bytes;
        loop {
            let read = read(from, &mut buffer);
            let read = read.step("read what goes into", &self.folder.join(&self.name))?;
            if read == 0 {
                return Ok(self.bytes - before);
            }
            self.write(&buffer[..read])?;
        }
    }

    /// Appends these bytes. Slices of less than 16 KiB are hashed slowly.
    ///
    /// # Errors
    /// Like [`PartWriter::copy`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let path = || self.folder.join(&self.name);
        let grown = self.bytes.saturating_add(bytes.len() as u64);
        if grown > self.quota {
            return Err(StoreError::Quota {
                path: path(),
                quota: self.quota,
            });
        }
        self.hasher.update(bytes);
        let written = self.file.write_all(bytes);
        written.step("write", &path())?;
        self.bytes = grown;
        Ok(())
    }

    /// Gives the part its name, when it is on the disk. It survives a power cut from here on, as a
    /// part of an unfinished checkpoint.
    ///
    /// # Errors
    /// [`StoreError::System`]; there is no such part then.
    pub fn finish(mut self) -> Result<Part, StoreError> {
        let path = self.folder.join(&self.name);
        self.disk.sync(&mut self.file).step("sync", &path)?;
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
            hash: self.hasher.finalize().into(),
            place: std::mem::take(&mut self.place),
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

/// Opens a part, if it has the length that the manifest says.
pub(crate) fn open<D: Disk>(disk: &D, folder: &Path, part: &Part) -> Result<D::File, StoreError> {
    if !name::is_part(&part.name) {
        let name = part.name.clone();
        return Err(StoreError::Name { name });
    }
    let path = folder.join(&part.name);
    let flaw = match disk.open(&path) {
        Ok((file, found)) if found == part.bytes => return Ok(file),
        Ok((_, found)) => Flaw::Length {
            found,
            expected: part.bytes,
        },
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Flaw::Missing {
            place: part.place.clone(),
        },
        Err(cause) => return Err(cause).step("open", &path),
    };
    Err(StoreError::Part { path, flaw })
}

/// Reads a part and compares it with what the manifest says.
pub(crate) fn verify<D: Disk>(disk: &D, folder: &Path, part: &Part) -> Result<(), StoreError> {
    let mut file = open(disk, folder, part)?;
    let path = folder.join(&part.name);
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match read(&mut file, &mut buffer).step("read", &path)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        };
    }
    let found = hasher.finalize();
    if found == part.hash {
        return Ok(());
    }
    Err(StoreError::Part {
        path,
        flaw: Flaw::Content {
            found: found.into(),
            expected: part.hash,
        },
    })
}

/// Reads once, whatever signal comes.
fn read(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
