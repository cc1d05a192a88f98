//! The bytes of the connection to the daemon: frames in, frames out. The
//! [`Client`](crate::client::Client) waits for replies; a [`run`](crate::run) also waits for events
//! of other descriptors.

use crate::failure::ClientError;
use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};
use vm_wire::{Frame, FrameReader};

/// Bytes that one read takes from the socket.
const READ_BYTES: usize = 64 * 1024;

/// A socket with the daemon at its other end, and the bytes that were read from it.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    reader: FrameReader,
    /// Frames that came while a reply was awaited.
    kept: VecDeque<Frame>,
}

impl Connection {
    /// A connection from which nothing was read yet.
    pub fn new(stream: UnixStream) -> Self {
        Connection {
            stream,
            reader: FrameReader::new(),
            kept: VecDeque::new(),
        }
    }

    /// Makes reads and writes return at once from now on.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)
    }

    /// Writes a frame; for a connection that blocks.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn send(&mut self, frame: &Frame) -> Result<(), ClientError> {
        let mut bytes = Vec::with_capacity(frame.len());
        frame.write_to(&mut bytes);
        self.stream
            .write_all(&bytes)
            .map_err(|cause| ClientError::Lost(Some(cause)))
    }

    /// Writes as many of `bytes` as the socket takes.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    /// Keeps a frame for [`Connection::next_frame`].
    pub fn keep(&mut self, frame: Frame) {
        self.kept.push_back(frame);
    }

    /// The first kept frame for which `is_it` holds.
    pub fn take_kept(&mut self, is_it: impl Fn(&Frame) -> bool) -> Option<Frame> {
        let at = self.kept.iter().position(is_it)?;
        self.kept.remove(at)
    }

    /// The next frame that was read, kept frames first; `None` if none is whole yet.
    ///
    /// # Errors
    /// [`ClientError::Frame`].
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ClientError> {
        match self.kept.pop_front() {
            Some(frame) => Ok(Some(frame)),
            None => self.fresh_frame(),
        }
    }

    /// As [`Connection::next_frame`], without the kept frames.
    ///
    /// # Errors
    /// As [`Connection::next_frame`].
    pub fn fresh_frame(&mut self) -> Result<Option<Frame>, ClientError> {
        Ok(self.reader.next_frame()?)
    }

    /// Reads once. The end of the stream is an error.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn read_some(&mut self) -> Result<(), ClientError> {
        let mut buffer = [0; READ_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(ClientError::Lost(None)),
            Ok(count) => {
                self.reader.push(&buffer[..count]);
                Ok(())
            }
            Err(cause)
                if matches!(
                    cause.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                Ok(())
            }
            Err(cause) => Err(ClientError::Lost(Some(cause))),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
