//! Reads an image in one pass and verifies all of it on the way.
//!
//! Nothing is believed before it was checked: a section's head is verified and its lengths are
//! compared with the limits of its kind before memory is taken, its content before it is handed
//! out. The buffers are used again for each section, so a reader holds at most
//! [`SECTION_MAX`](crate::raw::records::SECTION_MAX)
//! bytes for a payload, as many again if it has to be decoded, and the first five sections.

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
    /// Bytes taken from the source.
    at: u64,
    /// Sections read.
    index: u32,
    /// Their checksums, gathered.
    sum: u64,
    /// The first address behind the pages read, of memory of the process's own and of shared
    /// memory.
    pages_end: [u64; 2],
    /// The address behind the content of files read.
    content_end: u64,
    memory: u64,
    compressed: bool,
    stored: Vec<u8>,
    decoded: Vec<u8>,
    heads: Heads,
}

impl<R: Read> ImageReader<R> {
    /// Begins to read an image: its prefix. Reads are large; the source needs no buffer.
    ///
    /// # Errors
    /// When this is no image, or one that another release or another architecture has to read.
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

    /// The image's prefix.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// What the image tells before its memory; `None` until the section of mappings was read.
    pub fn heads(&self) -> Option<&Heads> {
        let known = matches!(
            self.expected,
            Expected::Head(MEMORY) | Expected::Body | Expected::Whole
        );
        known.then_some(&self.heads)
    }

    /// Reads as far as [`ImageReader::heads`] needs it.
    ///
    /// # Errors
    /// As for [`ImageReader::next_section`].
    pub fn read_heads(&mut self) -> Result<&Heads, ImageError> {
        while self.heads().is_none() && self.next_section()?.is_some() {}
        Ok(self.heads().expect("the mappings come before the end"))
    }

    /// The memory read or passed over so far, and whether some of it is compressed. Bytes.
    pub fn memory(&self) -> (u64, bool) {
        (self.memory, self.compressed)
    }

    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next section and its content, decoded and verified. `None`: the last one was read, the
    /// image is whole, and nothing behind it was touched.
    ///
    /// # Errors
    /// When the image is not whole or cannot be right. The reader is of no use then.
    pub fn next_section(&mut self) -> Result<Option<(Section, &[u8])>, ImageError> {
        let Some((expected, head_at, section)) = self.begin_section()? else {
            return Ok(None);
        };
        self.finish_section(expected, head_at, section)
    }

    /// The next head and where it is; what has to come is [`Expected::Failed`] until it was taken.
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

    /// Goes on behind a section that was taken.
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

    /// A head that may come now, with lengths that may be believed.
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
        // What others can see is written before the rest.
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
            // Given back first: never two buffers at a time.
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

    /// Compares what the last section tells with what was read. Its content is in the buffers.
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
    /// As [`ImageReader::next_section`], but what memory and files hold is passed over unread. At
    /// the end it is known that all heads are those that were written, and that their payloads have
    /// room between them; not whether the payloads are good.
    ///
    /// # Errors
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

    /// As [`ImageReader::read_heads`], but the memory of early rounds is passed over.
    ///
    /// # Errors
    /// As for [`ImageReader::next_section`].
    pub fn pass_heads(&mut self) -> Result<&Heads, ImageError> {
        while self.heads().is_none() && self.pass_section()?.is_some() {}
        Ok(self.heads().expect("the mappings come before the end"))
    }

    /// Passes over `len` bytes, if there are so many; tells how many there are.
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

/// The content: the payload itself, or what it becomes in `buffer`.
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

/// Reads until `bytes` is full or the source ends; tells how many came.
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
