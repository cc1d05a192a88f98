//! Why an image cannot be read, where in it, and what to do about it.

use std::{fmt, io};

use crate::raw::records::{self, VERSION};

/// Why an image cannot be read. Positions are bytes from the image's beginning.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The first bytes are not those of an image.
    #[error("this is no image of a process: it begins differently; give a file that a save wrote")]
    NotAnImage,
    /// Another version of the format.
    #[error(
        "the image has format version {found}, and only version {VERSION} can be read here: \
         use the release that saved it"
    )]
    OtherVersion {
        /// The image's version.
        found: u32,
    },
    /// Another kind of processor.
    #[error(
        "the image was saved on another architecture (number {found} of ELF; x86-64 is {}): \
         restore the process on such a host, with a release made for it",
        records::X86_64
    )]
    OtherMachine {
        /// ELF's number of the image's architecture.
        found: u32,
    },
    /// The image ends too early.
    #[error(
        "the image ends at byte {at}, in {place}: it was not written or not copied to its end; \
         copy it again, or use another image"
    )]
    Truncated {
        /// The image's length.
        at: u64,
        /// What would have come there.
        place: Location,
    },
    /// Bytes were changed, lost or doubled after they were written.
    #[error(
        "the image is damaged in {place} at byte {at}: {what}; copy it again, or use another image"
    )]
    Damaged {
        /// Where the damaged part begins.
        at: u64,
        /// What it is.
        place: Location,
        /// How the damage shows.
        what: Damage,
    },
    /// The checksums hold, but no process is like that: it was made by mistake or by malice.
    #[error(
        "the image contradicts itself in {place} at byte {at}: {what}; \
         do not use it, and report it if a save wrote it"
    )]
    Impossible {
        /// Where the part in question begins.
        at: u64,
        /// What it is.
        place: Location,
        /// The contradiction.
        what: Impossible,
    },
    /// The file or socket failed.
    #[error(
        "cannot read the image at byte {at}, in {place}: {source}; check where it is stored, \
         then try again"
    )]
    Io {
        /// Bytes that were read before.
        at: u64,
        /// What would have come.
        place: Location,
        /// The system's reason.
        source: io::Error,
    },
    /// The reader was used again after it had failed.
    #[error("the image was already found to be bad: begin anew to read it again")]
    Stopped,
}

impl ImageError {
    /// Where in the image it is, if at one place. Bytes from the image's beginning.
    pub fn at(&self) -> Option<u64> {
        match self {
            ImageError::Truncated { at, .. }
            | ImageError::Damaged { at, .. }
            | ImageError::Impossible { at, .. }
            | ImageError::Io { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The first bytes.
    Prefix,
    /// The head of the section of this number.
    Head(u32),
    /// What follows the head.
    Payload {
        /// The section's number.
        section: u32,
        /// Its kind.
        kind: u16,
    },
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Location::Prefix => write!(f, "the prefix"),
            Location::Head(section) => write!(f, "the head of section {section}"),
            Location::Payload { section, kind } => {
                write!(f, "section {section} ({})", kind_name(kind))
            }
        }
    }
}

/// The name of a kind of section.
pub(super) fn kind_name(kind: u16) -> &'static str {
    match kind {
        records::FACTS => "FACTS",
        records::NAMES => "NAMES",
        records::THREADS => "THREADS",
        records::FILES => "FILES",
        records::MAPPINGS => "MAPPINGS",
        records::PAGES => "PAGES",
        records::CONTENT => "CONTENT",
        records::END => "END",
        _ => "unknown",
    }
}

/// How damage shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Checksum of the prefix or of a section's head.
    #[error("the head's checksum is wrong")]
    HeadSum,
    /// Checksum of a section's content.
    #[error("the content's checksum is wrong")]
    ContentSum,
    /// No section begins where one should.
    #[error("no section begins here")]
    NoSection,
    /// The LZ4 block cannot be decoded.
    #[error("the payload cannot be decoded")]
    Undecodable,
    /// Sections are lost, doubled or out of place.
    #[error("this is section {found} of the image it belongs to")]
    Displaced {
        /// The number that the section's head has.
        found: u32,
    },
    /// The last section tells of another number of sections.
    #[error("it was written after {said} sections")]
    Sections {
        /// What the last section says.
        said: u64,
    },
    /// The last section tells of another length.
    #[error("it was written after {said} bytes")]
    Bytes {
        /// What the last section says.
        said: u64,
    },
    /// The last section was written after other sections.
    #[error("it belongs to other sections than those before it")]
    OtherSections,
}

/// A contradiction. Records are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// A part without a meaning in this version is not zero.
    #[error("a reserved part is not zero")]
    Reserved,
    /// No page size of a processor.
    #[error("{0} bytes are no page size")]
    PageSize(u32),
    /// No kind of section.
    #[error("there is no section of kind {0}")]
    Kind(u16),
    /// No way to store a payload.
    #[error("there is no codec {0}")]
    Codec(u16),
    /// The sections are not in their order.
    #[error("{} comes where {} has to be", kind_name(*.found), kind_name(*.wanted))]
    Order {
        /// The kind that came.
        found: u16,
        /// The kind that has to come.
        wanted: u16,
    },
    /// More sections than can be counted.
    #[error("there are too many sections")]
    TooManySections,
    /// A length above its limit.
    #[error("{len} bytes are above the limit of {max}")]
    TooLong {
        /// The length.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// A length that is no multiple of what it consists of, or that is zero where it cannot be.
    #[error("{len} bytes are no whole number of parts of {part} bytes")]
    Uneven {
        /// The length.
        len: u64,
        /// Of one part.
        part: u64,
    },
    /// The lengths before and after decoding cannot belong together.
    #[error("a payload of {stored} bytes cannot hold {raw} bytes")]
    Lengths {
        /// Of the payload.
        stored: u64,
        /// Of the content.
        raw: u64,
    },
    /// A name outside of the names.
    #[error("a name of record {0} is outside of the names")]
    Name(usize),
    /// Before early rounds there is another processor than in the facts.
    #[error("it names two processors")]
    TwoProcessors,
    /// The count of threads is not the number of their records.
    #[error("{said} threads are announced, and {found} follow")]
    Threads {
        /// In the facts.
        said: u32,
        /// Records.
        found: usize,
    },
    /// A file's kind, number, flag, or the record that it says it duplicates.
    #[error("record {0} is no open file")]
    File(usize),
    /// Two records of one descriptor.
    #[error("descriptor {0} is open twice")]
    FileTwice(u32),
    /// What was in a pipe is not in the process's memory.
    #[error("the content of the pipe in file record {0} is outside of the mappings")]
    Pipe(usize),
    /// A mapping's range, kind, protection or flags.
    #[error("record {0} is no mapping")]
    Mapping(usize),
    /// Mappings that overlap or are not in ascending order.
    #[error("the mapping of record {0} is not behind the one before it")]
    MappingOrder(usize),
    /// Pages that do not begin on a page.
    #[error("the address {0:#x} is not that of a page")]
    Unaligned(u64),
    /// Pages where there is no mapping, or that leave it.
    #[error("the pages at {0:#x} are not inside one mapping")]
    Unmapped(u64),
    /// Pages that overlap or are not in ascending order.
    #[error("the pages at {0:#x} are not behind those before them")]
    PageOrder(u64),
    /// Content of a file that is not in the list or not carried, or beyond its end.
    #[error("the content at {0:#x} belongs to no file that is carried")]
    Content(u64),
    /// Contents that overlap or are not in ascending order.
    #[error("the content at {0:#x} is not behind that before it")]
    ContentOrder(u64),
}
