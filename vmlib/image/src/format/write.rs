//! Writes an image from records, for tools that make or change images. A process that saves itself
//! writes the same bytes with other code, which may run in a signal handler.

use serde::Serialize;
use std::io::{self, Write};

use crate::raw::{
    checksum::mixed,
    records::{
        CONTENT, END, End, FACTS, FILES, Facts, FileRecord, LZ4, MAPPINGS, Mapping, NAMES, Name,
        OFFSET_BITS, PAGES, Plain, Prefix, Section, THREADS, ThreadRecord, X86_64,
    },
};

/// The encoding of section contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// Uncompressed.
    Plain,
    /// LZ4 blocks, where the block is shorter than the content.
    Lz4,
}

/// Writes an image in one pass. The writer numbers the sections and makes the checksums. The writer
/// does not check that records are valid or in order, which is the caller's duty;
/// [`ImageReader`](super::ImageReader) finds such mistakes.
#[derive(Debug)]
pub struct RecordWriter<W> {
    out: W,
    codec: Codec,
    bytes: u64,
    index: u32,
    sum: u64,
}

impl<W: Write> RecordWriter<W> {
    /// Begins an image for x86-64. `page_size` is in bytes. With [`Codec::Lz4`], a section that LZ4
    /// does not make shorter is written plain.
    ///
    /// # Errors
    /// Errors of `out`; the same holds for all methods.
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

    /// Writes FACTS: the host, and the address at which the process resumes.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn facts(&mut self, facts: &Facts) -> io::Result<()> {
        self.section(FACTS, 0, facts.bytes())
    }

    /// Writes NAMES: the text that records point into.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn names(&mut self, names: &Names) -> io::Result<()> {
        self.section(NAMES, 0, &names.bytes)
    }

    /// Writes THREADS.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn threads(&mut self, threads: &[ThreadRecord]) -> io::Result<()> {
        self.section(THREADS, 0, ThreadRecord::all_bytes(threads))
    }

    /// Writes FILES: one record for each open descriptor.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn files(&mut self, files: &[FileRecord]) -> io::Result<()> {
        self.section(FILES, 0, FileRecord::all_bytes(files))
    }

    /// Writes MAPPINGS, which must be in ascending order of addresses.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn mappings(&mut self, mappings: &[Mapping]) -> io::Result<()> {
        self.section(MAPPINGS, 0, Mapping::all_bytes(mappings))
    }

    /// Writes PAGES: whole pages of one mapping. Sections of pages must ascend by address.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn pages(&mut self, address: u64, pages: &[u8]) -> io::Result<()> {
        self.section(PAGES, address, pages)
    }

    /// Writes CONTENT: a part of the content of the file with record number `file`, from byte
    /// `offset` on.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn content(&mut self, file: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let address = (u64::from(file) << OFFSET_BITS) + offset;
        self.section(CONTENT, address, bytes)
    }

    /// Writes a section of any kind.
    ///
    /// # Errors
    /// Errors of the output.
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

    /// Writes END. An image without END is not whole.
    ///
    /// # Errors
    /// Errors of the output.
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

/// Collects the text that records point into.
#[derive(Clone, Debug, Default)]
pub struct Names {
    bytes: Vec<u8>,
}

impl Names {
    /// An empty collection.
    pub fn new() -> Self {
        Names::default()
    }

    /// Adds a name and returns its place. All names together may have at most
    /// [`NAMES_MAX`](crate::raw::records::NAMES_MAX) bytes; the limit is not checked here.
    pub fn add(&mut self, name: impl AsRef<[u8]>) -> Name {
        let (at, name) = (self.bytes.len() as u32, name.as_ref());
        self.bytes.extend_from_slice(name);
        let len = name.len() as u32;
        Name { at, len }
    }
}
