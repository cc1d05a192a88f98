//! A summary of an image, for users and for programs that read JSON.

use std::io::{Read, Seek};

use serde::Serialize;

use crate::{
    format::{Codec, Heads, ImageError, ImageReader},
    raw::records::{self, FileRecord, Name, ThreadRecord},
};

/// A summary of an image. The keys of its JSON are the names of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The path of the program's file.
    pub program: String,
    /// The name of the process.
    pub name: String,
    /// The command line, one entry for each argument.
    pub command: Vec<String>,
    /// The working directory.
    pub dir: String,
    /// The name of the host of the save.
    pub host: String,
    /// The release of the kernel of that host.
    pub kernel: String,
    /// The time of the save. Seconds since 1970.
    pub saved_at_s: u64,
    /// The process id at the save.
    pub pid: u32,
    /// The threads of the process.
    pub threads: Vec<ThreadSummary>,
    /// The open descriptors of the process.
    pub files: Vec<FileSummary>,
    /// The number of mappings.
    pub mappings: usize,
    /// The sum of the lengths of all mappings, whether in use or not. Bytes.
    pub mapped_bytes: u64,
    /// The memory in the image; `None` if only the first sections were read.
    pub pages: Option<Pages>,
}

/// A thread of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadSummary {
    /// The thread id at the save.
    pub tid: u32,
    /// The name of the thread.
    pub name: String,
}

/// An open descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSummary {
    /// The descriptor number.
    pub fd: u32,
    /// The kind of file.
    pub kind: FileKind,
    /// The path, or a description of a file without a path.
    pub path: String,
    /// The file position. Bytes.
    pub offset: u64,
    /// Flags as for `open`.
    pub flags: u32,
    /// Size of the file. Bytes.
    pub size: u64,
    /// The descriptor that this one is a duplicate of, and shares its position with.
    pub duplicate_of: Option<u32>,
    /// Whether the image carries the content of the file.
    pub carried: bool,
}

/// The kind of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file or a directory, which the restore opens by path.
    File,
    /// A device like `/dev/null`, which the restore opens by path.
    Device,
    /// A stream that the restored process inherits from the restoring process.
    Inherited,
    /// One end of a pipe within the process.
    Pipe,
    /// A regular file that was deleted while it was open.
    Unnamed,
    /// A file of the kernel's, such as those of `/proc`, which the restore opens by path.
    Kernel,
}

/// The memory in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pages {
    /// Bytes of memory that were saved; memory that was saved in several rounds counts in each.
    pub saved_bytes: u64,
    /// Size of the whole image. Bytes.
    pub stored_bytes: u64,
    /// The encoding of the memory.
    pub codec: Codec,
}

impl Summary {
    /// Reads an image to its end. A result means that the image is whole.
    ///
    /// # Errors
    /// As for [`ImageReader::next_section`].
    pub fn read(source: impl Read) -> Result<Self, ImageError> {
        Self::read_on(&mut ImageReader::new(source)?)
    }

    /// Reads an image to its end, but skips the content of memory and files: quick for images of
    /// any size. Damage in skipped content is not found.
    ///
    /// # Errors
    /// As for [`ImageReader::pass_section`].
    pub fn pass(source: impl Read + Seek) -> Result<Self, ImageError> {
        Self::pass_on(&mut ImageReader::new(source)?)
    }

    /// As [`Summary::read`], with a reader that may have read a part of the image.
    ///
    /// # Errors
    /// As for [`Summary::read`].
    pub fn read_on<R: Read>(image: &mut ImageReader<R>) -> Result<Self, ImageError> {
        while image.next_section()?.is_some() {}
        Ok(Self::of_whole(image))
    }

    /// As [`Summary::pass`], with a reader that may have read a part of the image.
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

    /// Reads an image up to its mappings. Nothing is known of the rest of the image then.
    ///
    /// # Errors
    /// As for [`ImageReader::next_section`].
    pub fn read_heads(source: impl Read) -> Result<Self, ImageError> {
        let mut image = ImageReader::new(source)?;
        image.read_heads().map(Self::of_heads)
    }

    /// The summary of the first sections, without [`Summary::pages`].
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

/// The arguments of a command line. Each ends with NUL; the last one may lack it.
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
