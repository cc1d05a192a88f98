//! Reads parts and verifies them in the same pass: `open` checks the files and their lengths,
//! [`PartReader::fill`] gives out the bytes and hashes them, and the end of the part is given out
//! only if the hash is right. A part is stored in full or as an increment; both kinds are read
//! alike.

use crate::{
    compressed::Content,
    disk::{Disk, System},
    error::{Flaw, Step, StoreError},
    hash::{HASH, Hasher},
    increment::IncrementReader,
    limits::BUFFER,
    manifest::Part,
    name,
    room::retry,
};
use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};
use vm_wire::CheckpointId;

/// A part that is being read. The reader gets the last bytes only when the whole part has the hash
/// in the manifest, so a part that was read to its end is whole.
#[derive(Debug)]
pub struct PartReader<D: Disk = System> {
    source: Source<D>,
    path: PathBuf,
    hasher: Hasher,
    /// The hash in the manifest.
    expected: [u8; HASH],
    /// Bytes that were not read yet.
    left: u64,
}

#[derive(Debug)]
enum Source<D: Disk> {
    /// The file of a part that is stored in full.
    Full(Content<D::File>),
    /// The files of an increment and of its base.
    Increment(Box<IncrementReader<D>>),
}

impl<D: Disk> PartReader<D> {
    /// Whether the part is stored as an increment.
    pub fn is_increment(&self) -> bool {
        matches!(self.source, Source::Increment(_))
    }

    /// Fills the buffer with the next bytes of the part, and returns their number: less than the
    /// buffer's length at the end, 0 behind it. The last bytes of a damaged part are replaced by
    /// the error.
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

    /// Compares the part, which was read to its end, with the manifest.
    fn verify(&mut self) -> Result<(), StoreError> {
        // This read checks the hash at the end of an increment.
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
            // The hash at the end of the increment was right, so the base has changed.
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

/// Opens a part that is stored in full in a folder, if its file exists and has its length.
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

/// Opens a part, if its file and that of its base exist and have the lengths in the manifest. `app`
/// is the folder of the application.
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

/// Opens a file, if it has the expected length; otherwise returns its flaw.
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

/// Reads a part and compares it with the manifest.
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
