//! Errors of reading an image: the cause, the place in the image, and the remedy.

use std::{fmt, io};

use crate::raw::records::{self, VERSION};

/// Why an image cannot be read. Positions are bytes from the beginning of the image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The first bytes are not those of an image.
    #[error(
        "this is not an image of a process: it begins with other bytes; give a file that a save wrote"
    )]
    NotAnImage,
    /// The image has another version of the format.
    #[error(
        "the image has format version {found}, and only version {VERSION} can be read here: \
         use the release that saved it"
    )]
    OtherVersion {
        /// The image's version.
        found: u32,
    },
    /// The image is of another processor architecture.
    #[error(
        "the image was saved on another architecture (number {found} of ELF; x86-64 is {}): \
         restore the process on such a host, with a release made for it",
        records::X86_64
    )]
    OtherMachine {
        /// ELF's number of the architecture.
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
        /// The part of the image that is cut off.
        place: Location,
    },
    /// Bytes were changed, lost or duplicated after they were written.
    #[error(
        "the image is damaged in {place} at byte {at}: {what}; copy it again, or use another image"
    )]
    Damaged {
        /// Where the damaged part begins.
        at: u64,
        /// The damaged part.
        place: Location,
        /// How the damage was found.
        what: Damage,
    },
    /// The checksums are right, but no process has such a state: the image was made by a faulty
    /// program or by malice.
    #[error(
        "the image contradicts itself in {place} at byte {at}: {what}; \
         do not use it, and report it if a save wrote it"
    )]
    Impossible {
        /// Where the contradictory part begins.
        at: u64,
        /// The contradictory part.
        place: Location,
        /// The contradiction.
        what: Impossible,
    },
    /// The file or socket of the image failed.
    #[error(
        "cannot read the image at byte {at}, in {place}: {source}; check where it is stored, \
         then try again"
    )]
    Io {
        /// Bytes that were read before the failure.
        at: u64,
        /// The part that was to be read.
        place: Location,
        /// The error that the system reported.
        source: io::Error,
    },
    /// The reader was called again after it had failed.
    #[error("an error was already found in the image: open it again to read it again")]
    Stopped,
}

impl ImageError {
    /// The position of the error, if it has one. Bytes from the beginning of the image.
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
    /// The head of the section with this number.
    Head(u32),
    /// The payload of a section.
    Payload {
        /// The section's number.
        section: u32,
        /// The section's kind.
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

/// How damage was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The checksum of the prefix or of a section's head is wrong.
    #[error("the head's checksum is wrong")]
    HeadSum,
    /// The checksum of a section's content is wrong.
    #[error("the content's checksum is wrong")]
    ContentSum,
    /// The bytes are not the head of a section.
    #[error("no section begins here")]
    NoSection,
    /// The LZ4 block cannot be decoded.
    #[error("the payload cannot be decoded")]
    Undecodable,
    /// A section is lost, duplicated or out of place.
    #[error("the section has number {found}")]
    Displaced {
        /// The number in the section's head.
        found: u32,
    },
    /// END states another number of sections.
    #[error("it states that {said} sections precede it")]
    Sections {
        /// The number that END states.
        said: u64,
    },
    /// END states another number of bytes.
    #[error("it states that {said} bytes precede it")]
    Bytes {
        /// The number that END states.
        said: u64,
    },
    /// END does not belong to the sections that came before.
    #[error("it belongs to other sections than those before it")]
    OtherSections,
}

/// A contradiction in an image. Records are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// A field without a meaning in this version is not zero.
    #[error("a reserved field is not zero")]
    Reserved,
    /// The number is not the page size of a processor. Bytes.
    #[error("{0} bytes are not a page size")]
    PageSize(u32),
    /// The number is not a kind of section.
    #[error("there is no section of kind {0}")]
    Kind(u16),
    /// The number is not a codec.
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
    /// There are more sections than a section number can count.
    #[error("there are too many sections")]
    TooManySections,
    /// A length is above its limit.
    #[error("{len} bytes are above the limit of {max}")]
    TooLong {
        /// The length.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// A length is not a multiple of its parts, or is zero where it must not be.
    #[error("{len} bytes are not a multiple of {part} bytes, or too few")]
    Uneven {
        /// The length.
        len: u64,
        /// The length of one part. Bytes.
        part: u64,
    },
    /// The lengths before and after decoding exclude each other.
    #[error("a payload of {stored} bytes cannot hold {raw} bytes")]
    Lengths {
        /// The length of the payload. Bytes.
        stored: u64,
        /// The length of the content. Bytes.
        raw: u64,
    },
    /// A name lies outside of NAMES.
    #[error("a name of record {0} is outside of the names")]
    Name(usize),
    /// CPU, before the early rounds, and FACTS name different processors.
    #[error("CPU and FACTS name different processors")]
    TwoProcessors,
    /// The number of threads in FACTS is not the number of their records.
    #[error("{said} threads are announced, and {found} follow")]
    Threads {
        /// The number in FACTS.
        said: u32,
        /// The number of records.
        found: usize,
    },
    /// The kind, number, flag or original of a file record is not allowed.
    #[error("record {0} is not a valid open file")]
    File(usize),
    /// Two file records have the same descriptor.
    #[error("descriptor {0} is open twice")]
    FileTwice(u32),
    /// The content of a pipe is not in the memory of the process.
    #[error("the content of the pipe in file record {0} is outside of the mappings")]
    Pipe(usize),
    /// The range, kind, protection or flags of a mapping are not allowed.
    #[error("record {0} is not a valid mapping")]
    Mapping(usize),
    /// Mappings overlap or are not in ascending order.
    #[error("the mapping of record {0} is not behind the one before it")]
    MappingOrder(usize),
    /// Pages do not begin at a page boundary.
    #[error("the address {0:#x} is not that of a page")]
    Unaligned(u64),
    /// Pages lie outside of all mappings, or cross the end of a mapping.
    #[error("the pages at {0:#x} are not inside one mapping")]
    Unmapped(u64),
    /// Pages overlap or are not in ascending order.
    #[error("the pages at {0:#x} are not behind those before them")]
    PageOrder(u64),
    /// Content of a file that has no record or is not carried, or content behind the end of the
    /// file.
    #[error("the content at {0:#x} belongs to no file that is carried")]
    Content(u64),
    /// Contents overlap or are not in ascending order.
    #[error("the content at {0:#x} is not behind that before it")]
    ContentOrder(u64),
}
