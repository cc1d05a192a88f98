//! Memory that is lent to a pipe: what it holds is handed to the reader without being copied into
//! the pipe first.
//!
//! A pipe holds no more bytes than its capacity. So once that many were lent after a piece of
//! memory, its reader has taken that piece, and its place may be used again: the memory here is a
//! ring of that size and some pieces.

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
    /// What follows is free.
    end: usize,
    /// From here to the end is filled, and not lent yet.
    start: usize,
    /// Bytes of one piece at most.
    piece: usize,
}

impl Lender {
    /// Lends to that pipe, in pieces of so many bytes at most.
    ///
    /// # Errors
    /// It is no pipe.
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

    /// Room for one piece. If that is elsewhere than the last one was, `ahead` bytes of that, which
    /// were not said to be filled, are at its beginning too.
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

    /// So many bytes at the beginning of that room are filled.
    pub fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Hands on all that was filled.
    ///
    /// # Errors
    /// The reader has gone.
    pub fn lend(&mut self) -> anyhow::Result<()> {
        while self.start < self.end {
            let slices = [IoSliceRaw::from_slice(&self.ring[self.start..self.end])];
            // SAFETY: the memory lives as long as this process, or is dropped when nothing more is
            // said over the pipe; its pages are changed only when as much was lent after them as the
            // pipe holds, so that they were read.
            match unsafe { vmsplice(&self.pipe, &slices, SpliceFlags::empty()) } {
                Ok(count) => self.start += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("handing on the image"),
            }
        }
        Ok(())
    }
}
