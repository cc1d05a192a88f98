//! One connection to another daemon: the state of its handshake, and the writing of its bytes.

use crate::{
    context::Context,
    image::transfer,
    net::{
        queue::{Flushed, FrameQueue, Lanes},
        secure::{SEALED_MAX, Secure},
        sockets::{READ_MIN, SERVE_BYTES},
    },
};
use mio::net::TcpStream;
use rustix::{
    io::{Errno, write},
    net::{RecvFlags, recv},
};
use std::net::SocketAddr;
use vm_machine::{ConnId, Time, link::Maker};
use vm_wire::{
    Frame, FrameReader, HostId,
    direct::{self, PROOF},
};

/// Bytes that are sealed in one go. Urgent frames wait behind them.
const SEAL_BATCH: usize = 2 * SEALED_MAX;
/// Bound on the bytes that are written to one link in one turn.
const TURN_BYTES: usize = 512 * 1024;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The system is still connecting.
    Connecting,
    /// The handshake, or the other daemon's Hello, is awaited.
    Stranger,
    /// A link to this host.
    Up(HostId),
    /// The connection of a daemon that wants to join.
    Joiner,
    /// Refused: the queued bytes are written, then the other daemon has a moment to read them.
    Leaving,
}

/// The kind of a connection, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The connection is not an image's, so the handshake of links judges it.
    Link,
    /// The connection brings an image; the number is its ticket.
    Image(u64),
    /// A task of another host opens a direct connection: its number, and the proof.
    Direct(u64, [u8; PROOF]),
    /// Too few bytes have come.
    Awaited,
}

/// A connection to another daemon.
pub struct Conn {
    /// The number of this connection.
    pub id: ConnId,
    /// The TCP socket.
    pub socket: TcpStream,
    /// The address of the other end.
    pub addr: SocketAddr,
    /// The host that this daemon connected to; none for a connection that the other daemon made.
    pub wanted: Option<HostId>,
    /// The state of the connection.
    pub state: State,
    /// The handshake and the sealed records.
    pub secure: Secure,
    /// Whether the first bytes are still to be examined.
    opening: bool,
    /// Whether this daemon's Hello was sealed for sending.
    said_hello: bool,
    /// Frames from the other end.
    pub reader: FrameReader,
    /// Frames for the other end.
    pub queue: FrameQueue,
    /// Sealed bytes to write. The first `out_at` of them are written.
    pub out: Vec<u8>,
    out_at: usize,
    /// The other end has closed the connection.
    pub closed: bool,
    /// Whether the connection is in the list of sources with bytes to write.
    pub dirty: bool,
    /// A fault for tests: nothing is written until this time.
    pub held_until: Option<Time>,
}

impl Conn {
    /// A new connection: to the host `wanted`, or, without one, made by another daemon. `out` holds
    /// the first bytes to send.
    pub fn new(
        id: ConnId,
        socket: TcpStream,
        addr: SocketAddr,
        wanted: Option<HostId>,
        secure: Secure,
        out: Vec<u8>,
    ) -> Conn {
        Conn {
            id,
            socket,
            addr,
            wanted,
            state: match wanted {
                Some(_) => State::Connecting,
                None => State::Stranger,
            },
            secure,
            opening: true,
            said_hello: false,
            reader: FrameReader::new(),
            queue: FrameQueue::new(Lanes::Two),
            out,
            out_at: 0,
            closed: false,
            dirty: false,
            held_until: None,
        }
    }

    /// Whether another daemon made the connection and its first bytes are still to be examined.
    pub fn is_new(&self) -> bool {
        self.opening && self.maker() == Maker::Them
    }

    /// Examines the first bytes without taking them. Only the bytes of the opening of an image or of a
    /// direct connection are taken.
    pub fn opening(&mut self) -> Opening {
        let mut bytes = [0; direct::OPENING];
        let seen = match recv(
            &self.socket,
            &mut bytes,
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        ) {
            Ok((len, _)) => len,
            // The next read reports the error.
            Err(_) => return Opening::Link,
        };
        let opening = opening_of(&bytes, seen);
        let taken = match opening {
            Opening::Awaited => 0,
            Opening::Link => {
                self.opening = false;
                0
            }
            Opening::Image(_) => transfer::OPENING,
            Opening::Direct(..) => direct::OPENING,
        };
        if taken > 0 {
            // All these bytes have arrived, as the peek showed.
            let _ = recv(&self.socket, &mut bytes[..taken], RecvFlags::DONTWAIT);
        }
        opening
    }

    /// The end that made the connection.
    pub fn maker(&self) -> Maker {
        match self.wanted {
            Some(_) => Maker::Us,
            None => Maker::Them,
        }
    }

    /// Whether there is nothing left to write.
    pub fn is_idle(&self) -> bool {
        self.out.is_empty() && self.queue.is_empty()
    }

    /// Bytes to read at once: whole records for a link, but little for a peer that has not proved
    /// the secret.
    pub fn read_room(&self) -> usize {
        match self.state {
            State::Up(_) => {
                let missing = self.reader.missing().max(self.secure.missing());
                (missing + READ_MIN).min(SERVE_BYTES)
            }
            _ => READ_MIN,
        }
    }

    /// Seals Hello in a record of its own: on plain links it is the only sealed record.
    pub fn say_hello(&mut self, hello: &Frame) {
        self.said_hello = true;
        let mut plain = Vec::with_capacity(hello.len());
        hello.write_to(&mut plain);
        self.secure.seal(&plain, &mut self.out);
    }

    /// Whether this daemon's Hello was sealed for sending.
    pub fn said_hello(&self) -> bool {
        self.said_hello
    }

    /// Writes queued bytes, up to a turn's share. Returns whether nothing more can be written now.
    pub fn flush(&mut self, plain: &mut Vec<u8>, context: &mut Context) -> Result<bool, Errno> {
        let mut share = TURN_BYTES;
        loop {
            while self.out_at < self.out.len() {
                if share == 0 {
                    return Ok(false);
                }
                match write(&self.socket, &self.out[self.out_at..]) {
                    Ok(count) => {
                        self.out_at += count;
                        share = share.saturating_sub(count.max(1));
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return Ok(true),
                    Err(error) => return Err(error),
                }
            }
            self.out.clear();
            self.out_at = 0;
            if !self.said_hello || self.queue.is_empty() {
                return Ok(true);
            }
            if self.secure.sends_plain() {
                let flushed = self.queue.flush(&self.socket, &mut context.room)?;
                return Ok(flushed != Flushed::More);
            }
            plain.clear();
            while plain.len() < SEAL_BATCH
                && let Some(frame) = self.queue.pop(&mut context.room)
            {
                frame.write_to(plain);
            }
            for part in plain.chunks(SEALED_MAX) {
                self.secure.seal(part, &mut self.out);
            }
        }
    }
}

/// The kind of a connection whose first `seen` bytes have come.
fn opening_of(bytes: &[u8; direct::OPENING], seen: usize) -> Opening {
    let magic = [transfer::MAGIC, direct::MAGIC].into_iter().find(|magic| {
        let len = seen.min(magic.len());
        len > 0 && bytes[..len] == magic[..len]
    });
    let is_whole = |length| seen >= length;
    match magic {
        None => Opening::Link,
        Some(magic) if magic == direct::MAGIC && is_whole(direct::OPENING) => {
            match direct::read_opening(bytes) {
                Some((id, proof)) => Opening::Direct(id, proof),
                None => Opening::Link,
            }
        }
        Some(magic) if magic == transfer::MAGIC && is_whole(transfer::OPENING) => {
            let ticket = bytes[magic.len()..].first_chunk();
            ticket.map_or(Opening::Link, |it| Opening::Image(u64::from_le_bytes(*it)))
        }
        Some(_) => Opening::Awaited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(bytes: &[u8]) -> Opening {
        let mut seen = [0; direct::OPENING];
        let len = bytes.len().min(seen.len());
        seen[..len].copy_from_slice(&bytes[..len]);
        opening_of(&seen, len)
    }

    #[test]
    fn the_first_bytes_of_a_connection_tell_its_kind_once_all_of_its_opening_is_there() {
        let image = [&transfer::MAGIC[..], &7u64.to_le_bytes()].concat();
        let direct = [&direct::MAGIC[..], &8u64.to_le_bytes(), &[9; PROOF]].concat();
        assert_eq!(opening(&image), Opening::Image(7));
        assert_eq!(opening(&direct), Opening::Direct(8, [9; PROOF]));
        for whole in [&image, &direct] {
            for len in 1..whole.len() {
                assert_eq!(opening(&whole[..len]), Opening::Awaited, "{len}");
            }
        }
        for other in [&b""[..], b"vm-link\x01e", b"GET / HTTP/1.1", b"vm-task\x02"] {
            assert_eq!(opening(other), Opening::Link);
        }
    }
}
