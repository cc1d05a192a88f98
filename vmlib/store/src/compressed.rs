//! Compressed files: the content of a part's file, in frames that are compressed one by one.
//!
//! ```text
//! magic | version | frame, frame ... | hash of all before
//! ```
//!
//! A frame is a length and as many bytes. Each frame holds [`FRAME`] bytes of the content, the last
//! frame holds the rest. The bytes are one block of LZ4, or the content itself if the length is
//! that of the content. So a reader knows which frame has a byte of the content, and an increment
//! reads only the frames of its base that it needs.
//!
//! A damaged or forged file takes no more memory than some frames: a length above the length of the
//! content is refused, and a block is expanded into a buffer of that length only.

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
/// Length of the length of a frame. Bytes.
const HEAD: usize = 4;
const NOT_ONE: &str = "it does not begin like one of version 1";
const EARLY: &str = "it ends early";
const SEAL: &str = "its hash differs";

// A writer of whole buffers writes whole frames.
const _: () = assert!(BUFFER.is_multiple_of(FRAME) && FRAME <= u32::MAX as usize);

/// Compresses the content of a file.
#[derive(Debug)]
pub(crate) struct Compressor {
    frame: Vec<u8>,
    out: Out,
}

/// Buffer of compressed bytes on their way to the file.
#[derive(Debug)]
struct Out {
    room: Room,
    filled: usize,
    /// Hash of the file so far; `bytes` is its length.
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

    /// Writes these bytes: whole frames, or the rest of the content.
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

    /// Writes the hash and ends the file.
    pub fn finish(&mut self, file: &mut impl Write) -> io::Result<()> {
        self.out.begin(file)?;
        let all = self.out.hasher.finish();
        self.out.put(&all, file)?;
        self.out.flush(file)
    }

    /// Length of the file so far. Bytes.
    pub fn bytes(&self) -> u64 {
        self.out.bytes
    }
}

impl Out {
    /// Writes the magic and the version, if the file is empty.
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

/// The content of a part's file, read from its beginning to its end.
#[derive(Debug)]
pub(crate) enum Content<F> {
    Plain(F),
    Compressed(Box<Expander<F>>),
}

impl<F: Read> Content<F> {
    /// The content of a file whose first byte has not been read yet. `packed` is the length of the
    /// file, if the file is compressed; `bytes` is the length of the content.
    pub fn new(file: F, packed: Option<u64>, bytes: u64) -> Self {
        match packed {
            None => Content::Plain(file),
            Some(packed) => Content::Compressed(Box::new(Expander::new(file, packed, bytes))),
        }
    }
}

impl<F: Read> Read for Content<F> {
    /// If a compressed file is damaged, the cause of the error is [`Flaw::Compressed`]. The error
    /// comes at the latest in place of the bytes of the last frame.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Content::Plain(file) => file.read(buffer),
            Content::Compressed(expander) => expander.read(buffer),
        }
    }
}

/// Expands a compressed file in order, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Expander<F> {
    file: Sealed<F>,
    /// Bytes of the content in the frames that are not read yet.
    left: u64,
    begun: bool,
    packed: Vec<u8>,
    frame: Vec<u8>,
    /// Number of bytes of the frame that were read.
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

    /// Reads the next frame, if there is one. The last frame is given out only if the hash of the
    /// file is right.
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

/// The file of a base, of which only some bytes are read.
#[derive(Debug)]
pub(crate) enum BaseFile<F> {
    Plain(F),
    Compressed(Box<Frames<F>>),
}

impl<F: Read + Seek> BaseFile<F> {
    /// The content of a file, which is compressed or not. `bytes` is the length of the content.
    pub fn new(file: F, compressed: bool, bytes: u64) -> Self {
        match compressed {
            false => BaseFile::Plain(file),
            true => BaseFile::Compressed(Box::new(Frames::new(file, bytes))),
        }
    }

    /// Sets the offset in the content of the next read. The offset is not behind the end of the
    /// content.
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
    /// Errors are those of [`Content`], but the hash of the file is not checked.
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
    /// Offsets of the first frames, as far as they are known. The head of the last of these frames
    /// has not been read yet.
    starts: Vec<u64>,
    /// Frames in memory. Frame `n` has place `n % FRAMES_KEPT`: a block that is frequent in an
    /// image is copied from one place of the base again and again, between blocks of other frames.
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
        // The frame is taken out: if reading fails, the place stays empty.
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

/// The length of a frame that holds `content` bytes of the content.
fn check_head(head: [u8; HEAD], content: usize) -> io::Result<usize> {
    let len = u32::from_le_bytes(head) as usize;
    match (1..=content).contains(&len) {
        true => Ok(len),
        false => Err(flaw("it has a frame of a length that none has")),
    }
}

/// Expands a frame that holds `content` bytes of the content.
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

/// Turns an early end of the file into a flaw.
fn early(cause: io::Error) -> io::Error {
    match cause.kind() {
        io::ErrorKind::UnexpectedEof => flaw(EARLY),
        _ => cause,
    }
}
