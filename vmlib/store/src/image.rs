//! The image of a task on its way into the store: in full with an index beside it, or as an
//! increment of the image of the same task in an earlier checkpoint.

use crate::{
    blocks::Blocks,
    disk::{Disk, System},
    error::{Step, StoreError},
    increment::{IncrementWriter, retry},
    index::FullWriter,
    limits::BUFFER,
    manifest::Part,
};
use std::{io::Read, path::PathBuf};

/// An image that is being written. Dropped before [`ImageWriter::finish`] it removes what it wrote.
#[derive(Debug)]
pub struct ImageWriter<D: Disk = System> {
    path: PathBuf,
    form: Form<D>,
    blocks: Blocks,
    /// Where the next piece stands in the image.
    at: u64,
}

#[derive(Debug)]
pub(crate) enum Form<D: Disk> {
    Full(Box<FullWriter<D>>),
    Increment(Box<IncrementWriter<D>>),
}

impl<D: Disk> ImageWriter<D> {
    pub(crate) fn new(path: PathBuf, form: Form<D>) -> Self {
        ImageWriter {
            path,
            form,
            blocks: Blocks::new(),
            at: 0,
        }
    }

    /// Appends all that `from` has, up to its end. Returns how many bytes that were.
    ///
    /// # Errors
    /// [`StoreError::Quota`], or [`StoreError::System`] when reading or writing fails. What was
    /// written is of no use then.
    pub fn copy(&mut self, from: &mut impl Read) -> Result<u64, StoreError> {
        let before = self.at;
        let mut buffer = vec![0; BUFFER];
        // What has come and is not yet a piece.
        let mut len = 0;
        loop {
            let read = retry(|| from.read(&mut buffer[len..]));
            let read = read.step("read what goes into", &self.path)?;
            self.form.take(&buffer[len..len + read])?;
            len += read;
            let mut done = 0;
            while let Some(piece) = self.blocks.next(&buffer[done..len]) {
                let bytes = &buffer[done..done + piece.len];
                self.form.add(bytes, piece.block, self.at)?;
                self.at += piece.len as u64;
                done += piece.len;
            }
            if read == 0 {
                self.form.add(&buffer[done..len], false, self.at)?;
                self.at += (len - done) as u64;
                return Ok(self.at - before);
            }
            buffer.copy_within(done..len, 0);
            len -= done;
        }
    }

    /// Gives the image its name, when it is on the disk.
    ///
    /// # Errors
    /// [`StoreError::System`]; there is no such part then.
    pub fn finish(self) -> Result<Part, StoreError> {
        match self.form {
            Form::Full(writer) => writer.finish(),
            Form::Increment(writer) => writer.finish(),
        }
    }
}

impl<D: Disk> Form<D> {
    /// Takes what has come.
    fn take(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Form::Full(writer) => writer.take(bytes),
            Form::Increment(writer) => {
                writer.take(bytes);
                Ok(())
            }
        }
    }

    /// The same again, in pieces: `at` is where it stands in the image.
    fn add(&mut self, piece: &[u8], block: bool, at: u64) -> Result<(), StoreError> {
        match self {
            _ if piece.is_empty() => Ok(()),
            Form::Full(writer) => writer.add(piece, block, at),
            Form::Increment(writer) => writer.add(piece, block),
        }
    }
}
