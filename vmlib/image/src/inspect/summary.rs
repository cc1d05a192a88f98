//! What an image is about, for people and for programs that read JSON.

use std::io::{Read, Seek};

use serde::Serialize;

use crate::{
    format::{Codec, Heads, ImageError, ImageReader},
    raw::records::{self, FileRecord, Name, ThreadRecord},
};

/// What an image is about. As JSON its keys are the names of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The program's file.
    pub program: String,
    /// The process's name.
    pub name: String,
    /// The command line.
    pub command: Vec<String>,
    /// The working directory.
    pub dir: String,
    /// The name of the host where it was saved.
    pub host: String,
    /// The release of the kernel there.
    pub kernel: String,
    /// When it was saved. Seconds since 1970.
    pub saved_at_s: u64,
    /// The process's id there.
    pub pid: u32,
    /// Its threads.
    pub threads: Vec<ThreadSummary>,
    /// Its open descriptors.
    pub files: Vec<FileSummary>,
    /// Its mappings.
    pub mappings: usize,
    /// Bytes of addresses in them, whether in use or not.
    pub mapped_bytes: u64,
    /// The memory in the image; `None` when only the heads were read.
    pub pages: Option<Pages>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadSummary {
    /// Its id at the save.
    pub tid: u32,
    /// Its name.
    pub name: String,
}

/// An open descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSummary {
    /// Its number.
    pub fd: u32,
    /// What it is.
    pub kind: FileKind,
    /// Its path, or what it is called instead.
    pub path: String,
    /// The file position.
    pub offset: u64,
    /// As for `open`.
    pub flags: u32,
    /// Bytes of the file.
    pub size: u64,
    /// The descriptor that it shares its position with, if it is a duplicate.
    pub duplicate_of: Option<u32>,
    /// Whether the image has its content.
    pub carried: bool,
}

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file or a directory, opened again by its path.
    File,
    /// A device like `/dev/null`, opened again by its path.
    Device,
    /// Taken over from the restoring process.
    Inherited,
    /// One end of a pipe within the process.
    Pipe,
    /// A regular file that was deleted while it was open.
    Unnamed,
    /// A file of the kernel's, as those of `/proc`: opened again by its path.
    Kernel,
}

/// The memory in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pages {
    /// Bytes of memory that were saved; what was saved in several rounds counts in each.
    pub saved_bytes: u64,
    /// Bytes of the whole image.
    pub stored_bytes: u64,
    /// How the memory is stored.
    pub codec: Codec,
}

impl Summary {
    /// Reads an image to its end. Without an error it is whole.
    ///
    /// # Errors
    /// When it is not whole or cannot be right.
    pub fn read(source: impl Read) -> Result<Self, ImageError> {
        Self::read_on(&mut ImageReader::new(source)?)
    }

    /// Reads an image to its end, but passes over what memory and files hold: quick for any size.
    /// Damage in what was passed over does not show.
    ///
    /// # Errors
    /// As for [`Summary::read`].
    pub fn pass(source: impl Read + Seek) -> Result<Self, ImageError> {
        Self::pass_on(&mut ImageReader::new(source)?)
    }

    /// As [`Summary::read`], with a reader that may have been used.
    ///
    /// # Errors
    /// As for [`Summary::read`].
    pub fn read_on<R: Read>(image: &mut ImageReader<R>) -> Result<Self, ImageError> {
        while image.next_section()?.is_some() {}
        Ok(Self::of_whole(image))
    }

    /// As [`Summary::pass`], with a reader that may have been used.
    ///
    /// # Errors
    /// As for [`Summary::read`].
    pub fn pass_on<R: Read + Seek>(image: &mut ImageReader<R>) -> Result<Self, ImageError> {
        while image.pass_section()?.is_some() {}
        Ok(Self::of_whole(image))
    }

    fn of_whole<R: Read>(image: &ImageReader<R>) -> Self {
        let (saved_bytes, compressed) = image.memory();
        let heads = image.heads().expect("the mappings come before the end");
        Summary {
            pages: Some(Pages {
                saved_bytes,
                stored_bytes: image.position(),
                codec: if compressed { Codec::Lz4 } else { Codec::Plain },
            }),
            ..Self::of_heads(heads)
        }
    }

    /// Reads an image up to its mappings. Whether the rest is there and good is not known then.
    ///
    /// # Errors
    /// When so much of it is not there or cannot be right.
    pub fn read_heads(source: impl Read) -> Result<Self, ImageError> {
        let mut image = ImageReader::new(source)?;
        image.read_heads().map(Self::of_heads)
    }

    /// What the heads of an image tell.
    pub fn of_heads(heads: &Heads) -> Self {
        let facts = heads.facts();
        let text = |name: Name| heads.name(name).into_owned();
        let mapped = heads.mappings().iter().map(|one| one.end - one.start);
        Summary {
            program: text(facts.exe),
            name: text(facts.comm),
            command: arguments(heads.name_bytes(facts.command)),
            dir: text(facts.dir),
            host: text(facts.host),
            kernel: text(facts.kernel),
            saved_at_s: facts.saved_at_ns / 1_000_000_000,
            pid: facts.pid,
            threads: heads.threads().iter().map(thread).collect(),
            files: heads.files().iter().map(|one| file(heads, one)).collect(),
            mappings: heads.mappings().len(),
            mapped_bytes: mapped.sum(),
            pages: None,
        }
    }
}

/// Each ends with NUL, the last one perhaps without.
fn arguments(command: &[u8]) -> Vec<String> {
    let command = command.strip_suffix(&[0]).unwrap_or(command);
    if command.is_empty() {
        return Vec::new();
    }
    let lossy = |one| String::from_utf8_lossy(one).into_owned();
    command.split(|byte| *byte == 0).map(lossy).collect()
}

fn thread(record: &ThreadRecord) -> ThreadSummary {
    let name = record.name.split(|byte| *byte == 0).next();
    ThreadSummary {
        tid: record.tid,
        name: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
    }
}

fn file(heads: &Heads, record: &FileRecord) -> FileSummary {
    FileSummary {
        fd: record.fd,
        kind: match record.kind {
            records::FD_FILE => FileKind::File,
            records::FD_DEVICE => FileKind::Device,
            records::FD_INHERITED => FileKind::Inherited,
            records::FD_UNNAMED => FileKind::Unnamed,
            records::FD_KERNEL => FileKind::Kernel,
            _ => FileKind::Pipe,
        },
        path: heads.name(record.name).into_owned(),
        offset: record.offset,
        flags: record.flags,
        size: record.size,
        duplicate_of: (record.original != record.fd).then_some(record.original),
        carried: heads.is_carried(record),
    }
}
