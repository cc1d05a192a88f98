//! One connection to another daemon: what it is to us, and how its bytes are written.

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
use vm_wire::{Frame, FrameReader, HostId};

/// Plain bytes that are sealed at once; what is urgent waits behind them.
const SEAL_BATCH: usize = 2 * SEALED_MAX;
/// Bytes that are written to one link in one turn.
const TURN_BYTES: usize = 512 * 1024;

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The system connects.
    Connecting,
    /// Handshake, then the other's Hello.
    Stranger,
    /// A link.
    Up(HostId),
    /// A daemon that wants to join.
    Joiner,
    /// Refused: what waits is written, then the other end has a moment to read it.
    Leaving,
}

/// What the first bytes of a connection say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// It wants to be a link, as far as this part is asked.
    Link,
    /// It brings an image, and is known by this ticket.
    Image(u64),
    /// It has not said enough.
    Awaited,
}

/// A connection to another daemon.
pub struct Conn {
    /// Its number.
    pub id: ConnId,
    /// Its socket.
    pub socket: TcpStream,
    /// The other end.
    pub addr: SocketAddr,
    /// Whom it was made to.
    pub wanted: Option<HostId>,
    /// How far it is.
    pub state: State,
    /// The handshake and the seals.
    pub secure: Secure,
    /// Its first bytes were not looked at yet.
    opening: bool,
    /// Whether our Hello is on its way.
    said_hello: bool,
    /// Frames of the other end.
    pub reader: FrameReader,
    /// Frames for the other end.
    pub queue: FrameQueue,
    /// Sealed bytes, and how many of them are out.
    pub out: Vec<u8>,
    out_at: usize,
    /// The other end has closed.
    pub closed: bool,
    /// It is in the list of those that have something to write.
    pub dirty: bool,
    /// A fault for tests: until then nothing is written.
    pub held_until: Option<Time>,
}

impl Conn {
    /// A connection that we make to the host `wanted`, or that another daemon made; `out` is what
    /// we say first.
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

    /// Whether its first bytes were not looked at yet.
    pub fn is_new(&self) -> bool {
        self.opening && self.maker() == Maker::Them
    }

    /// Looks at the first bytes; those of a link stay where they are.
    pub fn opening(&mut self) -> Opening {
        let mut bytes = [0; transfer::OPENING];
        let seen = match recv(
            &self.socket,
            &mut bytes,
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        ) {
            Ok((len, _)) => &bytes[..len],
            // The next read says what is wrong.
            Err(_) => return Opening::Link,
        };
        let magic = transfer::MAGIC;
        let len = seen.len().min(magic.len());
        if seen[..len] != magic[..len] || seen.is_empty() {
            self.opening = false;
            return Opening::Link;
        }
        match seen.get(magic.len()..).and_then(|rest| rest.first_chunk()) {
            Some(ticket) => {
                let ticket = u64::from_le_bytes(*ticket);
                // They are there, all of them.
                let _ = recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT);
                Opening::Image(ticket)
            }
            None => Opening::Awaited,
        }
    }

    /// Who made the connection.
    pub fn maker(&self) -> Maker {
        match self.wanted {
            Some(_) => Maker::Us,
            None => Maker::Them,
        }
    }

    /// Whether nothing waits to be written.
    pub fn is_idle(&self) -> bool {
        self.out.is_empty() && self.queue.is_empty()
    }

    /// How much to read: whole records, but little from who has not proved anything.
    pub fn read_room(&self) -> usize {
        match self.state {
            State::Up(_) => {
                let missing = self.reader.missing().max(self.secure.missing());
                (missing + READ_MIN).min(SERVE_BYTES)
            }
            _ => READ_MIN,
        }
    }

    /// Seals Hello. Alone, because on plain links it is all that is sealed.
    pub fn say_hello(&mut self, hello: &Frame) {
        self.said_hello = true;
        let mut plain = Vec::with_capacity(hello.len());
        hello.write_to(&mut plain);
        self.secure.seal(&plain, &mut self.out);
    }

    /// Whether our Hello is on its way.
    pub fn said_hello(&self) -> bool {
        self.said_hello
    }

    /// Writes what waits, up to a turn's share. Returns whether that was all that is possible now.
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
