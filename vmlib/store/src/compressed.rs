//! Compressed files: what the file of a part would hold, in frames that are compressed one by one.
//!
//! ```text
//! magic | version | frame, frame ... | hash of all before
//! ```
//!
//! A frame is its length and as many bytes: [`FRAME`] bytes of the content, the last frame what is
//! left of it, as one block of LZ4; or as they are, if they have the content's length. So it is known
//! which frame has a byte of the content, and an increment takes from its base what it needs and no
//! more.
//!
//! What is read of a file that may be anything takes no more memory than some frames: a length beyond
//! that of the content is refused, and a block is given room for its content alone.

use crate::{
    error::Flaw,
    hash::Hasher,
    limits::{BUFFER, FRAME, FRAMES_KEPT},
    room::{Room, retry},
    sealed::Sealed,
};
use lz4_flex::block;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The first bytes of every compressed file.
const MAGIC: [u8; 8] = *b"VMPRESS\n";
const VERSION: u32 = 1;
const PREFIX: usize = MAGIC.len() + 4;
/// The length of a frame.
const HEAD: usize = 4;
const NOT_ONE: &str = "it does not begin like one of version 1";
const EARLY: &str = "it ends early";
const SEAL: &str = "its hash differs";

// Whoever writes in whole buffers writes whole frames.
const _: () = assert!(BUFFER.is_multiple_of(FRAME) && FRAME <= u32::MAX as usize);

/// Compresses what goes into a file.
#[derive(Debug)]
pub(crate) struct Compressor {
    frame: Vec<u8>,
    out: Out,
}

/// What comes out, up to where it goes into the file.
#[derive(Debug)]
struct Out {
    room: Room,
    filled: usize,
    /// Of the file, as its length.
    hasher: Hasher,
    bytes: u64,
}

impl Compressor {
    pub fn new() -> Self {
        Compressor {
            frame: vec![0; block::get_maximum_output_size(FRAME)],
            out: Out {
                room: Room::new(),
                filled: 0,
                hasher: Hasher::new(),
                bytes: 0,
            },
        }
    }

    /// Writes these bytes: whole frames, or the last ones of all.
    pub fn write(&mut self, content: &[u8], file: &mut impl Write) -> io::Result<()> {
        self.out.begin(file)?;
        for content in content.chunks(FRAME) {
            let frame = match block::compress_into(content, &mut self.frame) {
                Ok(len) if len < content.len() => &self.frame[..len],
                _ => content,
            };
            self.out.put(&(frame.len() as u32).to_le_bytes(), file)?;
            self.out.put(frame, file)?;
        }
        Ok(())
    }

    /// Ends the file.
    pub fn finish(&mut self, file: &mut impl Write) -> io::Result<()> {
        self.out.begin(file)?;
        let all = self.out.hasher.finish();
        self.out.put(&all, file)?;
        self.out.flush(file)
    }

    /// Length of the file so far.
    pub fn bytes(&self) -> u64 {
        self.out.bytes
    }
}

impl Out {
    /// Writes the magic and the version, before anything else.
    fn begin(&mut self, file: &mut impl Write) -> io::Result<()> {
        if self.bytes > 0 {
            return Ok(());
        }
        self.put(&MAGIC, file)?;
        self.put(&VERSION.to_le_bytes(), file)
    }

    fn put(&mut self, mut bytes: &[u8], file: &mut impl Write) -> io::Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let rest = self.room.rest(self.filled);
            let (first, more) = bytes.split_at(bytes.len().min(rest.len()));
            rest[..first.len()].copy_from_slice(first);
            self.filled += first.len();
            bytes = more;
            if self.filled == BUFFER {
                self.flush(file)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, file: &mut impl Write) -> io::Result<()> {
        let filled = std::mem::take(&mut self.filled);
        file.write_all(self.room.came(0, filled))
    }
}

/// What the file of a part holds, from its beginning to its end.
#[derive(Debug)]
pub(crate) enum Content<F> {
    Plain(F),
    Compressed(Box<Expander<F>>),
}

impl<F: Read> Content<F> {
    /// Of a file of which nothing was read; it has that length, if it is compressed. What it holds
    /// has `bytes`.
    pub fn new(file: F, packed: Option<u64>, bytes: u64) -> Self {
        match packed {
            None => Content::Plain(file),
            Some(packed) => Content::Compressed(Box::new(Expander::new(file, packed, bytes))),
        }
    }
}

impl<F: Read> Read for Content<F> {
    /// Of a compressed file that is damaged, [`Flaw::Compressed`] comes as the cause of the error, in
    /// place of the bytes of the last frame at the latest.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Content::Plain(file) => file.read(buffer),
            Content::Compressed(expander) => expander.read(buffer),
        }
    }
}

/// Reads a compressed file in order, and all of it.
#[derive(Debug)]
pub(crate) struct Expander<F> {
    file: Sealed<F>,
    /// Of the content, what the frames to come have.
    left: u64,
    begun: bool,
    packed: Vec<u8>,
    frame: Vec<u8>,
    /// So much of the frame was read.
    taken: usize,
}

impl<F: Read> Expander<F> {
    fn new(file: F, packed: u64, bytes: u64) -> Self {
        Expander {
            file: Sealed::new(file, packed),
            left: bytes,
            begun: false,
            packed: Vec::new(),
            frame: Vec::new(),
            taken: 0,
        }
    }

    /// The next frame, if there is one. The last one only if the file has proved whole.
    fn next(&mut self) -> io::Result<()> {
        let begins = !std::mem::replace(&mut self.begun, true);
        if begins {
            check_prefix(self.file.array().map_err(early)?)?;
        }
        self.taken = 0;
        if self.left == 0 && !begins {
            self.frame.clear();
            return Ok(());
        }
        if self.left > 0 {
            let content = self.left.min(FRAME as u64) as usize;
            self.left -= content as u64;
            let packed = check_head(self.file.array().map_err(early)?, content)?;
            self.packed.resize(packed, 0);
            let read = self.file.read_exact(&mut self.packed);
            read.map_err(early)?;
            expand(&self.packed, content, &mut self.frame)?;
        }
        match self.left > 0 || retry(|| self.file.holds()).map_err(early)? {
            true => Ok(()),
            false => Err(flaw(SEAL)),
        }
    }
}

impl<F: Read> Read for Expander<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.frame.len()
            && let Err(cause) = self.next()
        {
            self.frame.clear();
            return Err(cause);
        }
        let count = buffer.len().min(self.frame.len() - self.taken);
        buffer[..count].copy_from_slice(&self.frame[self.taken..][..count]);
        self.taken += count;
        Ok(count)
    }
}

/// The file of a base, of which some is read.
#[derive(Debug)]
pub(crate) enum BaseFile<F> {
    Plain(F),
    Compressed(Box<Frames<F>>),
}

impl<F: Read + Seek> BaseFile<F> {
    /// Of a file, which is compressed or not. What it holds has `bytes`.
    pub fn new(file: F, compressed: bool, bytes: u64) -> Self {
        match compressed {
            false => BaseFile::Plain(file),
            true => BaseFile::Compressed(Box::new(Frames::new(file, bytes))),
        }
    }

    /// What is read next stands there in the content, and not behind its end.
    pub fn seek_to(&mut self, at: u64) -> io::Result<()> {
        match self {
            BaseFile::Plain(file) => file.seek(SeekFrom::Start(at)).map(drop),
            BaseFile::Compressed(frames) => {
                frames.at = at;
                Ok(())
            }
        }
    }
}

impl<F: Read + Seek> Read for BaseFile<F> {
    /// As of [`Content`]; but the hash of the file is not looked at.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            BaseFile::Plain(file) => file.read(buffer),
            BaseFile::Compressed(frames) => frames.read(buffer),
        }
    }
}

/// Reads frames of a compressed file in any order.
#[derive(Debug)]
pub(crate) struct Frames<F> {
    file: F,
    /// Length of the content. Bytes.
    bytes: u64,
    at: u64,
    /// Where the first frames begin, as far as that is known: of the next one the head was not read.
    starts: Vec<u64>,
    /// Frames that were read, each in the place that its number has among so many: blocks that stand
    /// often in an image are taken from one place, between blocks of others.
    kept: [Option<(u64, Vec<u8>)>; FRAMES_KEPT],
    packed: Vec<u8>,
}

impl<F: Read + Seek> Frames<F> {
    fn new(file: F, bytes: u64) -> Self {
        Frames {
            file,
            bytes,
            at: 0,
            starts: Vec::new(),
            kept: Default::default(),
            packed: Vec::new(),
        }
    }

    fn load(&mut self, number: u64, frame: &mut Vec<u8>) -> io::Result<()> {
        if self.starts.is_empty() {
            self.file.seek(SeekFrom::Start(0))?;
            check_prefix(self.array()?)?;
            self.starts.push(PREFIX as u64);
        }
        loop {
            let known = self.starts.len() as u64;
            let next = number.min(known - 1);
            let start = self.starts[next as usize];
            self.file.seek(SeekFrom::Start(start))?;
            let content = (self.bytes - next * FRAME as u64).min(FRAME as u64) as usize;
            let packed = check_head(self.array()?, content)?;
            if next == known - 1 {
                self.starts.push(start + (HEAD + packed) as u64);
            }
            if next == number {
                self.packed.resize(packed, 0);
                let read = self.file.read_exact(&mut self.packed);
                read.map_err(early)?;
                return expand(&self.packed, content, frame);
            }
        }
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).map_err(early)?;
        Ok(bytes)
    }
}

impl<F: Read + Seek> Read for Frames<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.bytes {
            return Ok(0);
        }
        let number = self.at / FRAME as u64;
        let place = (number % FRAMES_KEPT as u64) as usize;
        // Taken out: if it cannot be read, nothing is kept there.
        let (kept, mut frame) = self.kept[place].take().unwrap_or((u64::MAX, Vec::new()));
        if kept != number {
            self.load(number, &mut frame)?;
        }
        let (_, frame) = self.kept[place].insert((number, frame));
        let rest = &frame[(self.at % FRAME as u64) as usize..];
        let count = buffer.len().min(rest.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

fn check_prefix(prefix: [u8; PREFIX]) -> io::Result<()> {
    let version = VERSION.to_le_bytes();
    match prefix.strip_prefix(&MAGIC) == Some(&version[..]) {
        true => Ok(()),
        false => Err(flaw(NOT_ONE)),
    }
}

/// The length of a frame that has so much of the content.
fn check_head(head: [u8; HEAD], content: usize) -> io::Result<usize> {
    let len = u32::from_le_bytes(head) as usize;
    match (1..=content).contains(&len) {
        true => Ok(len),
        false => Err(flaw("it has a frame of a length that none has")),
    }
}

/// What a frame holds, which has that length.
fn expand(packed: &[u8], content: usize, frame: &mut Vec<u8>) -> io::Result<()> {
    frame.resize(content, 0);
    if packed.len() == content {
        frame.copy_from_slice(packed);
        return Ok(());
    }
    match block::decompress_into(packed, frame) {
        Ok(len) if len == content => Ok(()),
        _ => Err(flaw("it has a frame that cannot be expanded")),
    }
}

fn flaw(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Flaw::Compressed { what })
}

/// Whoever reads it expects more.
fn early(cause: io::Error) -> io::Error {
    match cause.kind() {
        io::ErrorKind::UnexpectedEof => flaw(EARLY),
        _ => cause,
    }
}
