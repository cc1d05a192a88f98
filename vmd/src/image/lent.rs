//! A ring of memory that is lent to a pipe: the reader of the pipe gets the bytes without a copy
//! into the pipe.
//!
//! A pipe holds no more bytes than its capacity. So once that number of bytes was lent after a
//! piece of memory, the reader has taken that piece, and the piece may be written again. The ring
//! therefore has the pipe's capacity and a few pieces.

use anyhow::Context as _;
use rustix::{
    fd::OwnedFd,
    io::Errno,
    pipe::{IoSliceRaw, SpliceFlags, fcntl_getpipe_size, vmsplice},
};

/// A pipe, and the memory that is lent to it.
pub struct Lender {
    pipe: OwnedFd,
    ring: Vec<u8>,
    /// Offset of the first free byte.
    end: usize,
    /// Bytes from `start` to `end` are filled, and not lent yet.
    start: usize,
    /// Bound on the bytes of one piece.
    piece: usize,
}

impl Lender {
    /// A ring for `pipe`, in pieces of at most `piece` bytes.
    ///
    /// # Errors
    /// When the descriptor is not a pipe.
    pub fn new(pipe: OwnedFd, piece: usize) -> anyhow::Result<Lender> {
        let capacity = fcntl_getpipe_size(&pipe).context("looking at the pipe")?;
        Ok(Lender {
            pipe,
            ring: vec![0; capacity + 3 * piece],
            end: 0,
            start: 0,
            piece,
        })
    }

    /// Returns room for one piece. If the room is at the beginning of the ring again, it begins
    /// with the `ahead` bytes that were written behind the filled ones of the former room.
    ///
    /// # Errors
    /// As for [`Lender::lend`].
    pub fn room(&mut self, ahead: usize) -> anyhow::Result<&mut [u8]> {
        if self.end - self.start >= self.piece {
            self.lend()?;
        }
        if self.end + self.piece > self.ring.len() {
            self.lend()?;
            self.ring.copy_within(self.end..self.end + ahead, 0);
            (self.start, self.end) = (0, 0);
        }
        Ok(&mut self.ring[self.end..self.end + self.piece])
    }

    /// Marks `count` bytes at the beginning of the room as filled.
    pub fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Lends all filled bytes to the pipe.
    ///
    /// # Errors
    /// The reader has gone.
    pub fn lend(&mut self) -> anyhow::Result<()> {
        while self.start < self.end {
            let slices = [IoSliceRaw::from_slice(&self.ring[self.start..self.end])];
            // SAFETY: the memory lives as long as this process, or is dropped after the last bytes
            // went through the pipe. A page is changed only after as many bytes as the pipe holds
            // were lent behind it, so the reader has taken it.
            match unsafe { vmsplice(&self.pipe, &slices, SpliceFlags::empty()) } {
                Ok(count) => self.start += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("handing on the image"),
            }
        }
        Ok(())
    }
}
