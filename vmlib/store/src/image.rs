//! The image of a task on its way into the store. The image is stored in full, with or without an
//! index beside it, or as an increment of the image of the same task in an earlier checkpoint. The
//! bytes are cut into pieces (`crate::blocks`), and the writer of an index or an increment looks at
//! each piece.

use crate::{
    blocks::Blocks,
    disk::{Disk, System},
    error::{Step, StoreError},
    increment::IncrementWriter,
    index::IndexedWriter,
    limits::BUFFER,
    manifest::Part,
    part::PartWriter,
    room::Room,
};
use std::{io::Read, path::PathBuf};

/// An image that is being written. A writer that is dropped before [`ImageWriter::finish`] removes
/// its file.
#[derive(Debug)]
pub struct ImageWriter<D: Disk = System> {
    path: PathBuf,
    form: Form<D>,
    blocks: Blocks,
    /// Offset of the next piece in the image.
    at: u64,
}

#[derive(Debug)]
pub(crate) enum Form<D: Disk> {
    Full(Box<PartWriter<D>>),
    Indexed(Box<IndexedWriter<D>>),
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

    /// Appends all bytes of `from`, up to its end. Returns their number.
    ///
    /// # Errors
    /// [`StoreError::Quota`], or [`StoreError::System`] when reading or writing fails. The bytes
    /// written so far cannot be used then.
    pub fn copy(&mut self, from: &mut impl Read) -> Result<u64, StoreError> {
        if let Form::Full(writer) = &mut self.form {
            return writer.copy(from);
        }
        let before = self.at;
        let mut room = Room::in_large_page();
        // Number of bytes at the end of the previous buffer that make no piece yet. These bytes are
        // copied to the place right before the next buffer.
        let mut left = 0;
        loop {
            let came = room.fill(from).step("read what goes into", &self.path)?;
            self.form.take(room.came(0, came))?;
            let rest = self.pieces(room.came(left, came))?;
            if came < BUFFER {
                self.last(rest)?;
                return Ok(self.at - before);
            }
            left = rest.len();
            room.keep(left);
        }
    }

    /// Appends these bytes, which are the whole image. An image stored in full is written from this
    /// memory, without a copy.
    ///
    /// # Errors
    /// Like [`ImageWriter::copy`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let mut left = &bytes[..0];
        for (at, part) in (0..).step_by(BUFFER).zip(bytes.chunks(BUFFER)) {
            self.form.take(part)?;
            if let Form::Full(_) = self.form {
                continue;
            }
            // The bytes of the previous part that make no piece yet stand right before this part.
            left = self.pieces(&bytes[at - left.len()..at + part.len()])?;
        }
        self.last(left)
    }

    /// Adds the pieces at the beginning of these bytes. Returns the rest, which is too short for a
    /// piece.
    fn pieces<'b>(&mut self, mut bytes: &'b [u8]) -> Result<&'b [u8], StoreError> {
        while let Some(piece) = self.blocks.next(bytes) {
            let (first, rest) = bytes.split_at(piece.len);
            self.form.add(first, piece.block, self.at)?;
            self.at += piece.len as u64;
            bytes = rest;
        }
        Ok(bytes)
    }

    /// Adds the rest at the end of the image.
    fn last(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.form.add(bytes, false, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Syncs the image, then gives it its name.
    ///
    /// # Errors
    /// [`StoreError::System`]; the part does not exist then.
    pub fn finish(self) -> Result<Part, StoreError> {
        match self.form {
            Form::Full(writer) => writer.finish(),
            Form::Indexed(writer) => writer.finish(),
            Form::Increment(writer) => writer.finish(),
        }
    }
}

impl<D: Disk> Form<D> {
    /// Takes the next bytes for the file or the hash.
    fn take(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Form::Full(writer) => writer.write(bytes),
            Form::Indexed(writer) => writer.take(bytes),
            Form::Increment(writer) => {
                writer.take(bytes);
                Ok(())
            }
        }
    }

    /// Takes the same bytes again, in pieces. `at` is the offset of the piece in the image.
    fn add(&mut self, piece: &[u8], block: bool, at: u64) -> Result<(), StoreError> {
        match self {
            Form::Full(_) => Ok(()),
            _ if piece.is_empty() => Ok(()),
            Form::Indexed(writer) => writer.add(piece, block, at),
            Form::Increment(writer) => writer.add(piece, block),
        }
    }
}
