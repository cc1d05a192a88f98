//! Reads an image in one pass and verifies all of it.
//!
//! Nothing is trusted before it was checked. The reader verifies a section's head and compares its
//! lengths with the limits of its kind before it allocates memory. The reader verifies the content
//! before it returns the content. The buffers are reused for each section, so a reader holds at
//! most [`SECTION_MAX`](crate::raw::records::SECTION_MAX) bytes for a payload, as many again if the
//! payload is compressed, and the first sections.

use std::{
    io::{self, Read, Seek, SeekFrom},
    mem,
};

use crate::{
    format::{
        check::{Expected, MEMORY, check_integrity, check_lengths, check_order, check_prefix},
        error::{Damage, ImageError, Impossible, Location},
        heads::Heads,
    },
    raw::{
        checksum::{checksum, mixed},
        records::{
            CONTENT, CPU, END, End, FACTS, FileRecord, GONE, LZ4, MAGIC, MAPPINGS, OFFSET_BITS,
            PAGES, Plain as _, Prefix, SHARED, SPACE, Section,
        },
    },
};

/// Reads an image, section by section.
///
/// ```
/// # use vm_image::format::{ImageError, ImageReader};
/// # fn look(file: std::fs::File) -> Result<(), ImageError> {
/// let mut image = ImageReader::new(file)?;
/// while let Some((section, content)) = image.next_section()? {
///     println!("{} bytes at {:#x}", content.len(), section.address);
/// }
/// // Here the image is known to be whole.
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ImageReader<R> {
    source: R,
    prefix: Prefix,
    expected: Expected,
    /// Bytes read from the source.
    at: u64,
    /// Sections read.
    index: u32,
    /// The checksums of the heads, gathered for the comparison with END.
    sum: u64,
    /// The first address behind the last pages: of private memory, and of shared memory.
    pages_end: [u64; 2],
    /// The first address behind the last content of files.
    content_end: u64,
    memory: u64,
    compressed: bool,
    stored: Vec<u8>,
    decoded: Vec<u8>,
    heads: Heads,
}

impl<R: Read> ImageReader<R> {
    /// Begins to read an image by reading its prefix. Reads are large; the source needs no buffer.
    ///
    /// # Errors
    /// The bytes are not those of an image, or the image is of another version or architecture, or
    /// the source failed.
    pub fn new(mut source: R) -> Result<Self, ImageError> {
        let mut bytes = [0; Prefix::LEN];
        let place = Location::Prefix;
        let got = fill(&mut source, &mut bytes).map_err(|(got, source)| ImageError::Io {
            at: got as u64,
            place,
            source,
        })?;
        let told = got.min(MAGIC.len());
        if bytes[..told] != MAGIC[..told] {
            return Err(ImageError::NotAnImage);
        }
        if got < bytes.len() {
            let at = got as u64;
            return Err(ImageError::Truncated { at, place });
        }
        let prefix = Prefix::from_prefix(&bytes).expect("as many bytes as it has");
        check_prefix(&prefix)?;
        Ok(ImageReader {
            source,
            prefix,
            expected: Expected::Begin,
            at: Prefix::LEN as u64,
            index: 0,
            sum: 0,
            pages_end: [0; 2],
            content_end: 0,
            memory: 0,
            compressed: false,
            stored: Vec::new(),
            decoded: Vec::new(),
            heads: Heads::empty(),
        })
    }

    /// The prefix of the image.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// The content of the first sections; `None` until MAPPINGS was read.
    pub fn heads(&self) -> Option<&Heads> {
        let known = matches!(
            self.expected,
            Expected::Head(MEMORY) | Expected::Body | Expected::Whole
        );
        known.then_some(&self.heads)
    }

    /// Reads up to MAPPINGS, and returns the content of the first sections.
    ///
    /// # Errors
    /// As for [`ImageReader::next_section`].
    pub fn read_heads(&mut self) -> Result<&Heads, ImageError> {
        while self.heads().is_none() && self.next_section()?.is_some() {}
        Ok(self.heads().expect("the mappings come before the end"))
    }

    /// The bytes of memory that were read or skipped so far, and whether any of them are
    /// compressed.
    pub fn memory(&self) -> (u64, bool) {
        (self.memory, self.compressed)
    }

    /// The number of bytes read so far.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Reads the next section and returns it with its content, decoded and verified. `None`: END
    /// was read, the image is whole, and nothing behind END was read.
    ///
    /// # Errors
    /// The image is damaged, incomplete or contradictory, or the source failed. Each further call
    /// returns [`ImageError::Stopped`].
    pub fn next_section(&mut self) -> Result<Option<(Section, &[u8])>, ImageError> {
        let Some((expected, head_at, section)) = self.begin_section()? else {
            return Ok(None);
        };
        self.finish_section(expected, head_at, section)
    }

    /// Reads the next head and returns it with its position. `self.expected` is
    /// [`Expected::Failed`] until the section is counted, so that a failed reader stays failed.
    fn begin_section(&mut self) -> Result<Option<(Expected, u64, Section)>, ImageError> {
        match mem::replace(&mut self.expected, Expected::Failed) {
            Expected::Whole => {
                self.expected = Expected::Whole;
                Ok(None)
            }
            Expected::Failed => Err(ImageError::Stopped),
            expected => {
                let head_at = self.at;
                let section = self.read_head(expected)?;
                Ok(Some((expected, head_at, section)))
            }
        }
    }

    fn finish_section(
        &mut self,
        expected: Expected,
        head_at: u64,
        section: Section,
    ) -> Result<Option<(Section, &[u8])>, ImageError> {
        let payload_at = self.at;
        let place = payload_place(&section);
        self.read_payload(&section, place)?;
        let damaged = |what| ImageError::Damaged {
            at: payload_at,
            place,
            what,
        };
        let content = decoded(&section, &self.stored, &mut self.decoded).map_err(damaged)?;
        if checksum(content) != section.content_check {
            return Err(damaged(Damage::ContentSum));
        }
        if section.kind == END {
            self.check_end(&section, head_at).map_err(damaged)?;
            self.expected = Expected::Whole;
            return Ok(None);
        }
        let kind = section.kind;
        if kind <= MAPPINGS || kind == SPACE || kind == CPU {
            let page_size = u64::from(self.prefix.page_size);
            self.heads
                .take(kind, content, page_size)
                .map_err(|what| ImageError::Impossible {
                    at: payload_at,
                    place,
                    what,
                })?;
        }
        self.count(&section, expected, payload_at)?;
        let content = match section.codec {
            LZ4 => &self.decoded[..section.raw_len as usize],
            _ => &self.stored[..],
        };
        Ok(Some((section, content)))
    }

    /// Notes a section that was read, and determines which kinds may follow.
    fn count(
        &mut self,
        section: &Section,
        expected: Expected,
        payload_at: u64,
    ) -> Result<(), ImageError> {
        self.sum = self.sum.wrapping_add(mixed(section.check, section.index));
        let too_many = || ImageError::Impossible {
            at: payload_at,
            place: payload_place(section),
            what: Impossible::TooManySections,
        };
        self.index = self.index.checked_add(1).ok_or_else(too_many)?;
        self.expected = match section.kind {
            kind @ FACTS..=MAPPINGS => Expected::Head(kind + 1),
            CPU => Expected::Rounds,
            SPACE => Expected::Early,
            GONE => Expected::Head(MEMORY),
            PAGES if expected == Expected::Early => Expected::Early,
            _ => Expected::Body,
        };
        match section.kind {
            MAPPINGS => self.pages_end = [0; 2],
            PAGES => {
                self.memory += section.raw_len;
                self.compressed |= section.codec == LZ4;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads a head, and checks that its kind may come now and that its lengths are within the
    /// limits.
    fn read_head(&mut self, expected: Expected) -> Result<Section, ImageError> {
        let (at, place) = (self.at, Location::Head(self.index));
        let mut bytes = [0; Section::LEN];
        let got = fill(&mut self.source, &mut bytes).map_err(|(got, source)| ImageError::Io {
            at: at + got as u64,
            place,
            source,
        })?;
        self.at += got as u64;
        if got < bytes.len() {
            return Err(ImageError::Truncated { at: self.at, place });
        }
        let section = Section::from_prefix(&bytes).expect("as many bytes as it has");
        check_integrity(&section, self.index).map_err(|what| ImageError::Damaged {
            at,
            place,
            what,
        })?;
        self.check_sense(&section, expected)
            .map_err(|what| ImageError::Impossible { at, place, what })?;
        Ok(section)
    }

    fn check_sense(&mut self, section: &Section, expected: Expected) -> Result<(), Impossible> {
        if section.reserved != 0 || section.reserved_too != 0 {
            return Err(Impossible::Reserved);
        }
        check_order(section.kind, expected)?;
        check_lengths(section, u64::from(self.prefix.page_size))?;
        match section.kind {
            PAGES => self.check_pages(section, expected),
            CONTENT => self.check_content(section),
            _ => Ok(()),
        }
    }

    fn check_pages(&mut self, section: &Section, expected: Expected) -> Result<(), Impossible> {
        let Section {
            address, raw_len, ..
        } = *section;
        if address % u64::from(self.prefix.page_size) != 0 {
            return Err(Impossible::Unaligned(address));
        }
        if !self.heads.in_one_mapping(address, raw_len) {
            return Err(Impossible::Unmapped(address));
        }
        // Shared memory is written before private memory; each of the two ascends by itself.
        let shared = self
            .heads
            .mapping_at(address)
            .is_some_and(|mapping| mapping.kind == SHARED);
        let end = &mut self.pages_end[usize::from(shared)];
        if expected != Expected::Early && address < *end {
            return Err(Impossible::PageOrder(address));
        }
        *end = address + raw_len;
        Ok(())
    }

    fn check_content(&mut self, section: &Section) -> Result<(), Impossible> {
        let file = section.address >> OFFSET_BITS;
        let offset = section.address & ((1 << OFFSET_BITS) - 1);
        let file = self.heads.files().get(file as usize);
        let is_inside = |file: &FileRecord| offset + section.raw_len <= file.size;
        if !file.is_some_and(|file| file.carried == 1 && is_inside(file)) {
            return Err(Impossible::Content(section.address));
        }
        if section.address < self.content_end {
            return Err(Impossible::ContentOrder(section.address));
        }
        self.content_end = section.address + section.raw_len;
        Ok(())
    }

    fn read_payload(&mut self, section: &Section, place: Location) -> Result<(), ImageError> {
        let len = section.stored_len as usize;
        self.stored.clear();
        if self.stored.capacity() < len {
            // The old buffer is freed first, so that there are never two at a time.
            self.stored = Vec::new();
            self.stored.reserve_exact(len);
        }
        let outcome = (&mut self.source)
            .take(section.stored_len)
            .read_to_end(&mut self.stored);
        self.at += self.stored.len() as u64;
        let at = self.at;
        outcome.map_err(|source| ImageError::Io { at, place, source })?;
        if self.stored.len() < len {
            return Err(ImageError::Truncated { at, place });
        }
        Ok(())
    }

    /// Compares END with the sections that were read. The content of END is in the buffers.
    fn check_end(&self, section: &Section, head_at: u64) -> Result<(), Damage> {
        let content = match section.codec {
            LZ4 => &self.decoded,
            _ => &self.stored,
        };
        let end = End::from_prefix(content).expect("the length was checked");
        if end.sections != u64::from(self.index) {
            return Err(Damage::Sections { said: end.sections });
        }
        if end.bytes != head_at {
            return Err(Damage::Bytes { said: end.bytes });
        }
        if end.sum != self.sum {
            return Err(Damage::OtherSections);
        }
        Ok(())
    }
}

impl<R: Read + Seek> ImageReader<R> {
    /// As [`ImageReader::next_section`], but the payloads of PAGES and CONTENT are skipped by a
    /// seek. At the end, all heads are verified, and the source is known to have as many bytes as
    /// the heads say. The skipped payloads are not verified.
    ///
    /// # Errors
    /// As for [`ImageReader::next_section`].
    /// As for [`ImageReader::next_section`].
    pub fn pass_section(&mut self) -> Result<Option<Section>, ImageError> {
        let Some((expected, head_at, section)) = self.begin_section()? else {
            return Ok(None);
        };
        if section.kind != PAGES && section.kind != CONTENT {
            let section = self.finish_section(expected, head_at, section)?;
            return Ok(section.map(|(section, _)| section));
        }
        let at = self.at;
        let len = section.stored_len;
        let place = payload_place(&section);
        let room = self
            .pass(len)
            .map_err(|source| ImageError::Io { at, place, source })?;
        if room < len {
            let at = at + room;
            return Err(ImageError::Truncated { at, place });
        }
        self.at += len;
        self.count(&section, expected, at)?;
        Ok(Some(section))
    }

    /// As [`ImageReader::read_heads`], but the memory of early rounds is skipped.
    ///
    /// # Errors
    /// As for [`ImageReader::next_section`].
    pub fn pass_heads(&mut self) -> Result<&Heads, ImageError> {
        while self.heads().is_none() && self.pass_section()?.is_some() {}
        Ok(self.heads().expect("the mappings come before the end"))
    }

    /// Skips `len` bytes, or all that the source has left. Returns the number of skipped bytes.
    fn pass(&mut self, len: u64) -> io::Result<u64> {
        let at = self.source.stream_position()?;
        let room = self.source.seek(SeekFrom::End(0))?.saturating_sub(at);
        self.source.seek(SeekFrom::Start(at + len.min(room)))?;
        Ok(room.min(len))
    }
}

fn payload_place(section: &Section) -> Location {
    Location::Payload {
        section: section.index,
        kind: section.kind,
    }
}

/// The content of a section: the payload itself, or the payload decoded into `buffer`.
fn decoded<'a>(
    section: &Section,
    stored: &'a [u8],
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], Damage> {
    if section.codec != LZ4 {
        return Ok(stored);
    }
    let len = section.raw_len as usize;
    if buffer.len() < len {
        if buffer.capacity() < len {
            *buffer = Vec::new();
            buffer.reserve_exact(len);
        }
        buffer.resize(len, 0);
    }
    let content = &mut buffer[..len];
    match lz4_flex::block::decompress_into(stored, content) {
        Ok(got) if got == len => Ok(content),
        _ => Err(Damage::Undecodable),
    }
}

/// Reads until `bytes` is full or the source ends. Returns the number of bytes read.
fn fill(source: &mut impl Read, bytes: &mut [u8]) -> Result<usize, (usize, io::Error)> {
    let mut got = 0;
    while got < bytes.len() {
        match source.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((got, error)),
        }
    }
    Ok(got)
}
