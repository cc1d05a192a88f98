//! Writes an image from records: for tools that make or change images. A process that saves
//! itself writes the same bytes by code that may run in a signal handler.

use serde::Serialize;
use std::io::{self, Write};

use crate::raw::{
    checksum::mixed,
    records::{
        CONTENT, END, End, FACTS, FILES, Facts, FileRecord, LZ4, MAPPINGS, Mapping, NAMES, Name,
        OFFSET_BITS, PAGES, Plain, Prefix, Section, THREADS, ThreadRecord, X86_64,
    },
};

/// How memory is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// As it is.
    Plain,
    /// As LZ4 blocks, where that makes it less.
    Lz4,
}

/// Writes an image in one pass. It numbers the sections and makes the checksums; that the records
/// make sense, and that they come in their order, is the caller's part, and
/// [`ImageReader`](super::ImageReader) tells.
#[derive(Debug)]
pub struct RecordWriter<W> {
    out: W,
    codec: Codec,
    bytes: u64,
    index: u32,
    sum: u64,
}

impl<W: Write> RecordWriter<W> {
    /// Begins an image of x86-64. `page_size` is in bytes. A section of which LZ4 makes no less
    /// is written plain.
    ///
    /// # Errors
    /// Those of `out`; so with all methods.
    pub fn new(mut out: W, page_size: u32, codec: Codec) -> io::Result<Self> {
        out.write_all(Prefix::new(X86_64, page_size).bytes())?;
        Ok(RecordWriter {
            out,
            codec,
            bytes: Prefix::LEN as u64,
            index: 0,
            sum: 0,
        })
    }

    /// The host, and where the process resumes.
    ///
    /// # Errors
    /// Those of the output.
    pub fn facts(&mut self, facts: &Facts) -> io::Result<()> {
        self.section(FACTS, 0, facts.bytes())
    }

    /// The text that records point into.
    ///
    /// # Errors
    /// Those of the output.
    pub fn names(&mut self, names: &Names) -> io::Result<()> {
        self.section(NAMES, 0, &names.bytes)
    }

    /// The threads.
    ///
    /// # Errors
    /// Those of the output.
    pub fn threads(&mut self, threads: &[ThreadRecord]) -> io::Result<()> {
        self.section(THREADS, 0, ThreadRecord::all_bytes(threads))
    }

    /// The open descriptors.
    ///
    /// # Errors
    /// Those of the output.
    pub fn files(&mut self, files: &[FileRecord]) -> io::Result<()> {
        self.section(FILES, 0, FileRecord::all_bytes(files))
    }

    /// The mappings, by address.
    ///
    /// # Errors
    /// Those of the output.
    pub fn mappings(&mut self, mappings: &[Mapping]) -> io::Result<()> {
        self.section(MAPPINGS, 0, Mapping::all_bytes(mappings))
    }

    /// Whole pages of one mapping, by address.
    ///
    /// # Errors
    /// Those of the output.
    pub fn pages(&mut self, address: u64, pages: &[u8]) -> io::Result<()> {
        self.section(PAGES, address, pages)
    }

    /// A part of what the file of this record held, from `offset` on.
    ///
    /// # Errors
    /// Those of the output.
    pub fn content(&mut self, file: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let address = (u64::from(file) << OFFSET_BITS) + offset;
        self.section(CONTENT, address, bytes)
    }

    /// A section of any kind.
    ///
    /// # Errors
    /// Those of the output.
    pub fn section(&mut self, kind: u16, address: u64, content: &[u8]) -> io::Result<()> {
        let mut head = Section::new(kind, self.index, address, content);
        let smaller = match self.codec {
            Codec::Plain => None,
            Codec::Lz4 => Some(lz4_flex::block::compress(content)),
        };
        match smaller.filter(|block| block.len() < content.len()) {
            Some(block) => {
                head.codec = LZ4;
                head.stored_len = block.len() as u64;
                head.check = head.sum();
                self.put(&head, &block)
            }
            None => self.put(&head, content),
        }
    }

    /// Ends the image; without this it is not whole.
    ///
    /// # Errors
    /// Those of the output.
    pub fn end(mut self) -> io::Result<W> {
        let end = End {
            sections: u64::from(self.index),
            bytes: self.bytes,
            sum: self.sum,
        };
        self.put(&Section::new(END, self.index, 0, end.bytes()), end.bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, head: &Section, payload: &[u8]) -> io::Result<()> {
        self.out.write_all(head.bytes())?;
        self.out.write_all(payload)?;
        self.bytes += (Section::LEN + payload.len()) as u64;
        self.sum = self.sum.wrapping_add(mixed(head.check, head.index));
        self.index += 1;
        Ok(())
    }
}

/// Gathers the text that records point into.
#[derive(Clone, Debug, Default)]
pub struct Names {
    bytes: Vec<u8>,
}

impl Names {
    /// None so far.
    pub fn new() -> Self {
        Names::default()
    }

    /// Adds one, and tells where it is. All of them together have at most
    /// [`NAMES_MAX`](crate::raw::records::NAMES_MAX) bytes.
    pub fn add(&mut self, name: impl AsRef<[u8]>) -> Name {
        let (at, name) = (self.bytes.len() as u32, name.as_ref());
        self.bytes.extend_from_slice(name);
        let len = name.len() as u32;
        Name { at, len }
    }
}
