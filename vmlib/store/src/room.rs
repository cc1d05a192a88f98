//! The buffer of a part that is being written, and the repetition of calls that signals interrupt.
//! A large page for the buffer saves the disk driver a long list of small pages.

use crate::{disk::PAGE, limits::BUFFER};
use memmap2::{Advice, MmapMut};
use std::{
    fmt,
    io::{self, Read},
};

/// The size of a large page of x86-64, and of aarch64 with pages of 4 KiB. Bytes.
const LARGE_PAGE: usize = 2 << 20;

/// A buffer of [`BUFFER`] bytes for a part. The buffer begins at the beginning of a page, because a
/// file that bypasses the page cache needs that
/// ([`Disk::bypass_cache`](crate::disk::Disk::bypass_cache)).
pub(crate) struct Room {
    memory: Memory,
    /// Offset of the buffer in the memory. Before it there is room for less than a block.
    start: usize,
}

enum Memory {
    Heap(Vec<u8>),
    Map(MmapMut),
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Room")
    }
}

impl Room {
    pub fn new() -> Self {
        let bytes = vec![0; 2 * PAGE + BUFFER];
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE) + PAGE;
        let memory = Memory::Heap(bytes);
        Room { memory, start }
    }

    /// A buffer for many bytes: in one large page, where the system has large pages. The disk gets
    /// one piece of memory, in place of a list of hundreds of pages.
    pub fn in_large_page() -> Self {
        let Ok(map) = MmapMut::map_anon(2 * LARGE_PAGE) else {
            return Room::new();
        };
        // Without large pages the map serves as well as the heap.
        let _ = map.advise(Advice::HugePage);
        let start = map.as_ptr().align_offset(LARGE_PAGE).min(LARGE_PAGE) + PAGE;
        let memory = Memory::Map(map);
        Room { memory, start }
    }

    fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(bytes) => bytes,
            Memory::Map(map) => map,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Heap(bytes) => bytes,
            Memory::Map(map) => map,
        }
    }

    /// The buffer without its first `filled` bytes.
    pub fn rest(&mut self, filled: usize) -> &mut [u8] {
        let start = self.start;
        &mut self.bytes_mut()[start..][filled..BUFFER]
    }

    /// Reads until the buffer is full or `from` ends. Returns the number of bytes.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<usize> {
        let room = self.rest(0);
        let mut filled = 0;
        while filled < BUFFER {
            match retry(|| from.read(&mut room[filled..]))? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }

    /// The last `kept` bytes of the previous buffer ([`Room::keep`]), and the first `came` bytes of
    /// this buffer.
    pub fn came(&self, kept: usize, came: usize) -> &[u8] {
        &self.bytes()[self.start - kept..self.start + came]
    }

    /// Copies the last `bytes` bytes of the buffer, less than a block, to the place before its
    /// beginning. The copy stays when the buffer is filled again.
    pub fn keep(&mut self, bytes: usize) {
        let (start, end) = (self.start, self.start + BUFFER);
        self.bytes_mut()
            .copy_within(end - bytes..end, start - bytes);
    }
}

/// Repeats a call for as long as signals interrupt it.
pub(crate) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
