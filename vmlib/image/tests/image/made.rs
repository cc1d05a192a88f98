//! Images made from records, with correct checksums after their bytes were changed.

use std::io::{self, Read};

use vm_image::{
    format::{
        self, Codec, END, End, FD_FILE, FD_INHERITED, FD_PIPE, Facts, FileRecord, ImageError,
        ImageReader, LZ4, Mapping, Names, PAGES, Plain, Prefix, RecordWriter, SECTION_MAX, Section,
        ThreadRecord,
    },
    raw::checksum::{checksum, mixed},
};

pub const PAGE: u32 = 4096;
pub const CODE: u64 = 0x40_0000;
pub const STACK: u64 = 0x7ffd_0000_0000;

/// The parts of an image, to be changed before the image is written.
pub struct Made {
    pub facts: Facts,
    pub names: Names,
    pub threads: Vec<ThreadRecord>,
    pub files: Vec<FileRecord>,
    pub mappings: Vec<Mapping>,
    /// Kind, address, content.
    pub body: Vec<(u16, u64, Vec<u8>)>,
    pub page_size: u32,
}

impl Made {
    /// The image of a small process.
    pub fn small() -> Self {
        let mut names = Names::new();
        let mut facts = Facts::from_prefix(&[0; Facts::LEN]).unwrap();
        facts.saved_at_ns = 1_700_000_000_123_456_789;
        facts.pid = 4711;
        facts.threads = 2;
        facts.cpu.leaf_1_ecx = 1 << 20;
        facts.kernel = names.add("6.18.0");
        facts.host = names.add("alpha");
        facts.exe = names.add("/usr/bin/dream");
        facts.command = names.add("dream\0--of\0sheep\0");
        facts.dir = names.add("/home/\u{e4}\u{f6}");
        facts.comm = names.add("dream");
        let threads = [(4711, b"dream"), (4712, b"sheep")].map(|(tid, text)| {
            let mut name = [0; 16];
            name[..5].copy_from_slice(text);
            let reserved = 0;
            ThreadRecord {
                tid,
                reserved,
                name,
            }
        });
        let file = |fd, kind, original, name| FileRecord {
            fd,
            kind,
            original,
            name,
            ..FileRecord::default()
        };
        let mut files = vec![
            file(0, FD_INHERITED, 0, names.add("a terminal")),
            file(3, FD_FILE, 3, names.add("/var/log/dream")),
            file(4, FD_FILE, 3, names.add("/var/log/dream")),
            file(5, FD_PIPE, 5, names.add("pipe:[77]")),
        ];
        (files[1].offset, files[1].size, files[1].flags) = (10, 100, 2);
        (files[1].mode, files[1].carried) = (0o100_644, 1);
        (files[3].content, files[3].content_len) = (STACK + 8, 4);
        let mapping = |start, pages: u64, prot, flags, name| Mapping {
            start,
            end: start + pages * u64::from(PAGE),
            prot,
            flags,
            name,
            ..Mapping::default()
        };
        let mappings = vec![
            mapping(CODE, 1, 5, 0, facts.exe),
            mapping(STACK, 4, 3, format::GROWS_DOWN, names.add("[stack]")),
        ];
        let noise = (0..PAGE).map(|at| if at < 64 { (at * 37) as u8 } else { 9 });
        Made {
            facts,
            names,
            threads: threads.to_vec(),
            files,
            mappings,
            body: vec![
                (PAGES, STACK + u64::from(PAGE), noise.collect()),
                (format::CONTENT, (1 << 48) + 10, b"counting".to_vec()),
            ],
            page_size: PAGE,
        }
    }

    pub fn write(&self, codec: Codec) -> Vec<u8> {
        let mut image = RecordWriter::new(Vec::new(), self.page_size, codec).unwrap();
        image.facts(&self.facts).unwrap();
        image.names(&self.names).unwrap();
        image.threads(&self.threads).unwrap();
        image.files(&self.files).unwrap();
        image.mappings(&self.mappings).unwrap();
        for (kind, address, content) in &self.body {
            image.section(*kind, *address, content).unwrap();
        }
        image.end().unwrap()
    }
}

/// Every section with its content, if the image is whole.
pub type Sections = Vec<(Section, Vec<u8>)>;

/// Reads all of an image.
pub fn read(source: impl Read) -> Result<Sections, ImageError> {
    let mut image = ImageReader::new(source)?;
    let mut all = Vec::new();
    while let Some((section, content)) = image.next_section()? {
        all.push((section, content.to_vec()));
    }
    assert!(image.next_section().unwrap().is_none());
    Ok(all)
}

/// Corrects all checksums, numbers and totals of a changed image as far as its sections can be
/// found, so that the tests reach the checks behind those of the checksums. Version and machine
/// stay as they are.
pub fn reseal(image: &mut [u8]) {
    fn put(image: &mut [u8], at: usize, record: &impl Plain) {
        let bytes = record.bytes();
        image[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let Some(mut prefix) = Prefix::from_prefix(image) else {
        return;
    };
    prefix.magic = format::MAGIC;
    prefix.check = prefix.sum();
    put(image, 0, &prefix);
    let (mut at, mut index, mut sum) = (Prefix::LEN, 0, 0u64);
    while let Some(mut head) = image.get(at..).and_then(Section::from_prefix) {
        let payload = at + Section::LEN;
        let stored = usize::try_from(head.stored_len).ok();
        let behind = stored
            .and_then(|len| payload.checked_add(len))
            .filter(|behind| *behind <= image.len());
        if let Some(behind) = behind {
            if head.kind == END && head.codec == format::PLAIN && behind - payload >= End::LEN {
                let end = End {
                    sections: u64::from(index),
                    bytes: at as u64,
                    sum,
                };
                put(image, payload, &end);
            }
            let stored = &image[payload..behind];
            if head.codec == LZ4 && head.raw_len <= SECTION_MAX as u64 {
                let raw = lz4_flex::block::decompress(stored, head.raw_len as usize);
                head.content_check = raw.map_or(0, |raw| checksum(&raw));
            } else {
                head.content_check = checksum(stored);
            }
        }
        head.magic = format::SECTION_MAGIC;
        head.index = index;
        head.check = head.sum();
        put(image, at, &head);
        sum = sum.wrapping_add(mixed(head.check, index));
        index += 1;
        match behind {
            Some(behind) => at = behind,
            None => return,
        }
    }
}

/// A source that returns pieces of changing length, and reports interruptions.
pub struct Short<'a> {
    pub bytes: &'a [u8],
    pub turn: usize,
}

impl Read for Short<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        if self.turn.is_multiple_of(5) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = buffer.len().min(1 + self.turn % 7);
        self.bytes.read(&mut buffer[..len])
    }
}
