//! Increments: an increment is the file of a part with only the bytes that its base, the part of an
//! earlier checkpoint, does not have.
//!
//! ```text
//! magic | version | step, step ... | last step | hash of all before
//! ```
//!
//! A step is two numbers. The first number is the offset in the base of the next bytes of the
//! image, and the second number is their length. Or the first number is `HERE`: the bytes follow
//! the step. The last step is `END` and the length of the image.

use crate::{
    compressed::{BaseFile, Content},
    disk::Disk,
    error::{Flaw, Step, StoreError},
    hash::Hasher,
    index::Index,
    limits::BUFFER,
    manifest::{Base, Part},
    part::PartWriter,
    room::retry,
    sealed::Sealed,
};
use std::{
    io::{self, Read},
    path::PathBuf,
};

/// The first bytes of every increment.
const MAGIC: [u8; 8] = *b"VMDELTA\n";
const VERSION: u32 = 2;
/// In place of an offset in the base: the bytes follow the step.
const HERE: u64 = u64::MAX;
/// In place of an offset in the base: the image ends.
const END: u64 = u64::MAX - 1;
const STEP: usize = 16;

/// An increment that is being written.
#[derive(Debug)]
pub(crate) struct IncrementWriter<D: Disk> {
    file: PartWriter<D>,
    index: Index,
    base: Base,
    /// Hash of the image.
    hasher: Hasher,
    bytes: u64,
    out: Vec<u8>,
    last: Last,
}

/// The last step, which the next piece may extend.
#[derive(Debug)]
enum Last {
    Complete,
    /// `len` bytes of the base. The step is not in `out` yet.
    Copy {
        at: u64,
        len: u64,
    },
    /// Bytes from `step` to the end of `out`. The length in the step is not set yet.
    Bytes {
        step: usize,
    },
}

impl<D: Disk> IncrementWriter<D> {
    pub fn new(file: PartWriter<D>, index: Index, base: Base) -> Self {
        let mut out = Vec::with_capacity(BUFFER * 2);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        IncrementWriter {
            file,
            index,
            base,
            hasher: Hasher::new(),
            bytes: 0,
            out,
            last: Last::Complete,
        }
    }

    /// Hashes the next bytes of the image. [`IncrementWriter::add`] then gets the same bytes in
    /// pieces.
    pub fn take(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Adds a piece. Only blocks are looked up in the base.
    pub fn add(&mut self, piece: &[u8], block: bool) -> Result<(), StoreError> {
        match block.then(|| self.index.find(piece)).flatten() {
            Some(at) => self.copy(at, piece.len() as u64),
            None => {
                if !matches!(self.last, Last::Bytes { .. }) {
                    self.complete();
                    self.last = Last::Bytes {
                        step: self.out.len(),
                    };
                    self.step(HERE, 0);
                }
                self.out.extend(piece);
            }
        }
        match self.out.len() < BUFFER {
            true => Ok(()),
            false => self.flush(),
        }
    }

    /// Gives the increment its name.
    pub fn finish(mut self) -> Result<Part, StoreError> {
        self.complete();
        self.step(END, self.bytes);
        self.flush()?;
        let all = self.file.hash();
        self.file.write(&all)?;
        let file = self.file.finish()?;
        Ok(Part {
            bytes: self.bytes,
            hash: self.hasher.finish(),
            base: Some(self.base),
            ..file
        })
    }

    fn copy(&mut self, at: u64, more: u64) {
        if let Last::Copy { at: first, len } = &mut self.last
            && *first + *len == at
        {
            *len += more;
            return;
        }
        self.complete();
        self.last = Last::Copy { at, len: more };
    }

    fn complete(&mut self) {
        match std::mem::replace(&mut self.last, Last::Complete) {
            Last::Complete => {}
            Last::Copy { at, len } => self.step(at, len),
            Last::Bytes { step } => {
                let len = (self.out.len() - step - STEP) as u64;
                self.out[step + 8..step + STEP].copy_from_slice(&len.to_le_bytes());
            }
        }
    }

    fn step(&mut self, at: u64, len: u64) {
        self.out.extend(at.to_le_bytes());
        self.out.extend(len.to_le_bytes());
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.complete();
        self.file.write(&self.out)?;
        self.out.clear();
        Ok(())
    }
}

/// Composes an image from an increment and its base.
#[derive(Debug)]
pub(crate) struct IncrementReader<D: Disk> {
    file: Sealed<Content<D::File>>,
    path: PathBuf,
    base: BaseFile<D::File>,
    base_path: PathBuf,
    base_bytes: u64,
    /// Step that is being read.
    doing: Doing,
    /// Bytes of the image behind this step.
    left: u64,
}

#[derive(Debug, Clone, Copy)]
enum Doing {
    /// Magic and version come next.
    None,
    Copy(u64),
    Bytes(u64),
    /// All steps were read, and the hash was right.
    End,
}

impl<D: Disk> IncrementReader<D> {
    /// Reads the increment and its base from their beginnings. The files have the lengths in
    /// `part`.
    pub(crate) fn new(
        part: &Part,
        base: &Base,
        (file, path): (D::File, PathBuf),
        (base_file, base_path): (D::File, PathBuf),
    ) -> Self {
        IncrementReader {
            file: Sealed::new(Content::new(file, part.packed, part.stored), part.stored),
            path,
            base: BaseFile::new(base_file, base.packed.is_some(), base.bytes),
            base_path,
            base_bytes: base.bytes,
            doing: Doing::None,
            left: part.bytes,
        }
    }

    /// The next bytes of the image; 0 at its end, when the hash of the increment was right. Bytes
    /// of the base are not verified here: the hash of the image covers them.
    ///
    /// # Errors
    /// [`StoreError::Part`] for the increment, [`StoreError::Base`], [`StoreError::System`].
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, StoreError> {
        if let Doing::None = self.doing {
            let magic = self.array()?;
            let version = u32::from_le_bytes(self.array()?);
            if magic != MAGIC || version != VERSION {
                return Err(self.flaw("it does not begin like one of version 2"));
            }
            self.doing = Doing::Bytes(0);
        }
        while let Doing::Copy(0) | Doing::Bytes(0) = self.doing {
            self.doing = self.next()?;
        }
        let (Doing::Copy(len) | Doing::Bytes(len)) = self.doing else {
            return Ok(0);
        };
        let wanted = len.min(buffer.len() as u64) as usize;
        let wanted = &mut buffer[..wanted];
        let read = match &mut self.doing {
            Doing::Copy(len) => {
                let read = retry(|| self.base.read(wanted)).step("read", &self.base_path);
                let read = match read {
                    Err(StoreError::Part { flaw, .. }) => return Err(self.base_flaw(flaw)),
                    read => read?,
                };
                if read == 0 && !wanted.is_empty() {
                    return Err(self.base_flaw(Flaw::Changed));
                }
                *len -= read as u64;
                read
            }
            Doing::Bytes(len) => {
                let read = retry(|| self.file.read(wanted)).step("read", &self.path)?;
                if read == 0 && !wanted.is_empty() {
                    return Err(self.flaw("it ends early"));
                }
                *len -= read as u64;
                read
            }
            Doing::None | Doing::End => 0,
        };
        Ok(read)
    }

    fn next(&mut self) -> Result<Doing, StoreError> {
        let at = u64::from_le_bytes(self.array()?);
        let len = u64::from_le_bytes(self.array()?);
        if at == END {
            let whole = retry(|| self.file.holds()).step("read", &self.path)?;
            return match whole && self.left == 0 {
                true => Ok(Doing::End),
                false => Err(self.flaw("its hash differs, or its length")),
            };
        }
        let left = self.left.checked_sub(len).filter(|_| len > 0);
        self.left = left.ok_or_else(|| self.flaw("its steps do not make the image's length"))?;
        if at == HERE {
            return Ok(Doing::Bytes(len));
        }
        if at.checked_add(len).is_none_or(|end| end > self.base_bytes) {
            return Err(self.flaw("it names bytes behind the end of its base"));
        }
        let sought = self.base.seek_to(at);
        sought.step("read", &self.base_path)?;
        Ok(Doing::Copy(len))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        match self.file.array() {
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.flaw("it ends early"))
            }
            done => done.step("read", &self.path),
        }
    }

    /// The error of an increment whose steps contradict each other. The rest of the file is read
    /// first: a frame of a compressed file is used before the hash of the whole file is checked,
    /// and damage of the compressed file must be reported as such.
    fn flaw(&mut self, what: &'static str) -> StoreError {
        let rest = io::copy(&mut self.file, &mut io::sink());
        let seal = rest.and_then(|_| retry(|| self.file.holds()));
        match seal.step("read", &self.path) {
            Err(damaged @ StoreError::Part { .. }) => damaged,
            _ => StoreError::Part {
                path: self.path.clone(),
                flaw: Flaw::Increment { what },
            },
        }
    }

    /// The error of a base with which the image cannot be composed.
    pub(crate) fn base_flaw(&self, flaw: Flaw) -> StoreError {
        StoreError::Base {
            path: self.path.clone(),
            base: self.base_path.clone(),
            flaw,
        }
    }
}
