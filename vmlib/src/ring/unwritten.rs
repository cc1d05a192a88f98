//! The frames of a direct connection that the kernel has not taken yet.
//!
//! Several frames go to the kernel in one call. The kernel sends what a call gives it at once, and a long
//! chunk with its header is slightly longer than the largest packet: a call for each chunk would make two
//! packets of it.

use super::keyed::{FLAGS, Keyed, OUTGOING};
use bytes::Bytes;
use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, sendmsg},
};
use std::{collections::VecDeque, io::IoSlice, ops::Range};
use vm_wire::{HEADER_LEN, Header, direct::LENGTH, seal::TAG};

/// Frames that wait at most, of a connection that does not seal: those of a message of 1 MiB.
const FRAMES_MAX: usize = 16;

/// The frames that wait for the kernel, in their order.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    pieces: VecDeque<Piece>,
    /// Bytes of the first one that the kernel has taken.
    written: usize,
    /// Where the next record begins in the memory of records.
    end: usize,
}

/// One frame.
#[derive(Debug)]
struct Piece {
    /// The number of the chunk; 0 for an acknowledgement, and for a chunk that went by the daemon.
    chunk: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// A record in the memory of records.
    Record(Range<usize>),
    /// A frame that is not sealed.
    Frame([u8; HEADER_LEN], Bytes),
}

impl Piece {
    fn len(&self) -> usize {
        match &self.content {
            Content::Record(bytes) => bytes.len(),
            Content::Frame(header, body) => header.len() + body.len(),
        }
    }
}

impl Unwritten {
    /// Whether the kernel has taken everything.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The first chunk that the kernel has not taken whole, and that did not go by the daemon; 0 if there
    /// is none.
    pub fn first_chunk(&self) -> u64 {
        let mut chunks = self.pieces.iter().map(|piece| piece.chunk);
        chunks.find(|chunk| *chunk != 0).unwrap_or(0)
    }

    /// The chunks went by the daemon as well. Bodies are not held any more: the peer may not read for
    /// long. A record stays, because the peer counts records; and so does a frame that was begun.
    pub fn went_by_daemon(&mut self) {
        let mut is_begun = self.written > 0;
        self.pieces.retain_mut(|piece| {
            let is_begun = std::mem::take(&mut is_begun);
            let is_chunk = std::mem::take(&mut piece.chunk) != 0;
            match &mut piece.content {
                Content::Frame(_, body) if is_chunk && is_begun => {
                    *body = Bytes::copy_from_slice(body);
                    true
                }
                Content::Frame(..) => !is_chunk,
                Content::Record(_) => true,
            }
        });
    }

    /// Whether there is room for a frame with a body of `len` bytes.
    pub fn has_room(&self, memory: &Keyed, len: usize) -> bool {
        match memory.is_sealed() {
            true => self.end + LENGTH + HEADER_LEN + len + TAG <= OUTGOING,
            false => self.pieces.len() < FRAMES_MAX,
        }
    }

    /// Adds a frame, for which there is room. `false` if the connection is closed.
    pub fn push(&mut self, memory: &mut Keyed, header: &Header, body: &Bytes) -> bool {
        let bytes = header.to_bytes(body.len());
        let content = match memory.is_sealed() {
            true => match self.seal(memory, &bytes, body) {
                Some(record) => Content::Record(record),
                None => return false,
            },
            false => Content::Frame(bytes, body.clone()),
        };
        self.pieces.push_back(Piece {
            chunk: header.seq,
            content,
        });
        true
    }

    /// Seals a frame into the memory of records.
    fn seal(&mut self, memory: &mut Keyed, header: &[u8], body: &[u8]) -> Option<Range<usize>> {
        let sealed = header.len() + body.len() + TAG;
        let record = self.end..self.end + LENGTH + sealed;
        let bytes = &mut memory.outgoing()[record.clone()];
        bytes[..LENGTH].copy_from_slice(&(sealed as u32).to_le_bytes());
        let (first, rest) = bytes[LENGTH..].split_at_mut(header.len());
        first.copy_from_slice(header);
        rest[..body.len()].copy_from_slice(body);
        if !memory.seal(record.start + LENGTH..record.end) {
            return None;
        }
        self.end = record.end;
        Some(record)
    }

    /// Writes as much as the kernel takes.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn write(&mut self, memory: &Keyed) -> Result<(), Errno> {
        while !self.is_empty() {
            match self.write_once(memory) {
                Ok(written) => self.wrote(written),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_once(&self, memory: &Keyed) -> Result<usize, Errno> {
        let socket = memory.socket().ok_or(Errno::BADF)?;
        let mut slices = [IoSlice::new(&[]); 2 * FRAMES_MAX];
        let mut written = self.written;
        let mut count = 0;
        for piece in self.pieces.iter().take(FRAMES_MAX) {
            let parts: [&[u8]; 2] = match &piece.content {
                Content::Record(record) => [&memory.records()[record.clone()], &[]],
                Content::Frame(header, body) => [header, body],
            };
            for bytes in parts {
                let taken = written.min(bytes.len());
                written -= taken;
                slices[count] = IoSlice::new(&bytes[taken..]);
                count += 1;
            }
        }
        let mut control = SendAncillaryBuffer::default();
        sendmsg(socket, &slices[..count], &mut control, FLAGS)
    }

    /// The kernel has taken so many bytes.
    fn wrote(&mut self, mut count: usize) {
        count += self.written;
        while let Some(piece) = self.pieces.front()
            && count >= piece.len()
        {
            count -= piece.len();
            self.pieces.pop_front();
        }
        self.written = count;
        if self.pieces.is_empty() {
            self.end = 0;
        }
    }
}
