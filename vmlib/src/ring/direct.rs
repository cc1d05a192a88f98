//! One direct connection: messages between two tasks of different hosts, past their daemons.
//!
//! The connection carries chunks and acknowledgements, each a frame ([`vm_wire::direct`]). The socket
//! never waits. Frames that the kernel does not take whole stay with the connection, and go on in a later
//! call ([`super::unwritten`]). A send waits a moment for the rest of its chunks, and then they go by the
//! daemon as well ([`crate::send`]). So no message waits for another call of its sender.
//!
//! The task that dials writes the opening, and then awaits the first frame of its peer before it sends:
//! the peer's daemon may refuse the connection.

use super::{
    keyed::{FLAGS, INCOMING, Keyed},
    until::Until,
    unwritten::Unwritten,
};
use bytes::Bytes;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{OwnedFd, RawFd},
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType, connect, send, socket_with,
        sockopt::set_tcp_nodelay,
    },
};
use std::{net::SocketAddr, ops::Range, time::Duration};
use vm_endpoint::{Endpoint, Received, Ring, RingError, RingRead, RingUse, Room, Time};
use vm_wire::{
    Frame, HEADER_LEN, Header, Op, Tid,
    direct::{CONTENT_MAX, LENGTH, OPENING, SEALED_MAX},
    limits,
    seal::TAG,
    task::RouteEnd,
};

/// Stage of a connection, by the directions that are in use.
#[derive(Debug)]
pub(super) enum Stage {
    /// The connection is being made. The opening follows.
    Dials {
        opening: [u8; OPENING],
        /// Then the daemon is told that it cannot be made.
        until: Time,
    },
    /// The first frame of the peer is awaited, so long.
    Awaits { until: Time },
    /// Both directions are in use.
    Open,
    /// Nothing is written any more. The rest of the peer's bytes is read, until its end or that time.
    Drains { until: Time },
}

/// The direct connection to one peer.
#[derive(Debug)]
pub(super) struct Direct {
    pub peer: Tid,
    pub id: u64,
    pub stage: Stage,
    memory: Keyed,
    /// Where the bytes are, of those in the buffer, that were read and not used.
    unread: Range<usize>,
    /// The frame at the beginning of `unread`: its header, and the bytes up to its end. It was opened
    /// and not taken.
    opened: Option<(Header, usize)>,
    unwritten: Unwritten,
    /// Frames that were written and read.
    frames: [u64; 2],
    used_for: RingUse,
    /// The next chunk waits for earlier ones, which come by the daemon.
    is_early: bool,
    /// The last read ended before it had looked at all that was read from the socket.
    has_more: bool,
    /// The peer writes no more, or the connection is broken.
    pub has_ended: bool,
    /// Nothing can be written.
    pub has_failed: bool,
}

/// A socket that is being connected to that address.
///
/// # Errors
/// Why there is none: the host cannot be reached, or this process can have no more sockets.
pub(super) fn dial(address: &str) -> Result<OwnedFd, RouteEnd> {
    let address: SocketAddr = address.parse().map_err(|_| RouteEnd::NotMade)?;
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None);
    let socket = socket.map_err(|_| RouteEnd::GivenUp)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        // No local port is free.
        Err(Errno::ADDRNOTAVAIL) => Err(RouteEnd::GivenUp),
        Err(_) => Err(RouteEnd::NotMade),
    }
}

/// The next frame of a connection.
enum Next {
    /// A whole frame is at the beginning of the unread bytes.
    Frame(Header, usize),
    /// More bytes are needed.
    Incomplete,
    /// The peer has written what no task writes.
    Broken,
}

impl Direct {
    pub fn new(peer: Tid, id: u64, stage: Stage, memory: Keyed) -> Self {
        if let Some(socket) = memory.socket() {
            // Not every socket of a test is one of TCP.
            let _ = set_tcp_nodelay(socket, true);
        }
        Direct {
            peer,
            id,
            stage,
            memory,
            unread: 0..0,
            opened: None,
            unwritten: Unwritten::default(),
            frames: [0; 2],
            used_for: RingUse::default(),
            is_early: false,
            has_more: false,
            has_ended: false,
            has_failed: false,
        }
    }

    /// Whether a freeze has closed the connection.
    pub fn is_closed(&self) -> bool {
        !self.memory.place().is_open()
    }

    /// Whether chunks that went by the connection are to be sent again: see [`super::area`].
    pub fn is_lost(&self) -> bool {
        self.is_closed() || self.memory.place().is_lost()
    }

    /// The chunks that went by the connection were sent again.
    pub fn lost_is_heeded(&self) {
        self.memory.place().lost_is_heeded();
    }

    /// Whether chunks may go by the connection.
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open) && !self.has_failed && !self.is_closed()
    }

    #[cfg(test)]
    pub fn socket(&self) -> Option<rustix::fd::BorrowedFd<'_>> {
        self.memory.socket()
    }

    /// Whether nothing is written any more.
    pub fn drains(&self) -> bool {
        matches!(self.stage, Stage::Drains { .. })
    }

    /// Whether a read may find more without the socket.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether the connection is being made.
    pub fn is_dialled(&self) -> bool {
        matches!(self.stage, Stage::Dials { .. })
    }

    /// Why the connection is given up, if it is in its present stage.
    pub fn end(&self) -> RouteEnd {
        match self.stage {
            Stage::Dials { .. } | Stage::Awaits { .. } => RouteEnd::NotMade,
            Stage::Open | Stage::Drains { .. } => RouteEnd::GivenUp,
        }
    }

    /// Whether the next chunk waits for earlier ones.
    pub fn is_early(&self) -> bool {
        self.is_early
    }

    /// Waits until the peer has written more, or has ended. `false` if it does not in that time, which is
    /// less than a second.
    pub fn await_more(&self, time: Duration) -> bool {
        let is_read = !self.is_early && !self.has_ended && !self.is_dialled();
        is_read && self.awaits(PollFlags::IN, time)
    }

    /// Waits until the connection is made, for that time, which is less than a second.
    pub fn await_room(&self, time: Duration) {
        self.awaits(PollFlags::OUT, time);
    }

    fn awaits(&self, events: PollFlags, time: Duration) -> bool {
        let Some(socket) = self.memory.socket() else {
            return false;
        };
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: time.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&socket, events)];
        match poll(&mut fds, Some(&time)) {
            Ok(count) => count > 0,
            // The caller looks how much of its time is left.
            Err(error) => error == Errno::INTR,
        }
    }

    /// The time of the stage is over, in which the program may have made no call: goes on as far as the
    /// connection does.
    pub fn catch_up(&mut self, endpoint: &mut Endpoint, now: Time) {
        let was_dialled = self.is_dialled();
        self.flush();
        if let Stage::Awaits { until } = &mut self.stage
            && was_dialled
        {
            *until = now + limits::DIRECT_DIAL;
        }
        self.read(endpoint, now, Until::Empty, false);
    }

    /// The time of the next change of the stage.
    pub fn due(&self) -> Option<Time> {
        match self.stage {
            Stage::Dials { until, .. } | Stage::Awaits { until } | Stage::Drains { until } => {
                Some(until)
            }
            Stage::Open => None,
        }
    }

    /// The first chunk that is not written whole, and did not go by the daemon; 0 if there is none.
    pub fn unwritten(&self) -> u64 {
        self.unwritten.first_chunk()
    }

    /// The unwritten chunks went by the daemon as well.
    pub fn rest_went_by_daemon(&mut self) {
        self.unwritten.went_by_daemon();
    }

    /// The socket and the events that end a wait: bytes of the peer if the wait `reads`, and room for what
    /// is not written.
    pub fn watched(&self, reads: bool) -> Option<(RawFd, PollFlags)> {
        let mut events = PollFlags::empty();
        let is_dialled = self.is_dialled();
        let is_read = reads && !is_dialled && !self.is_early && !self.has_ended;
        events.set(PollFlags::IN, is_read);
        let is_written = is_dialled || !self.unwritten.is_empty();
        events.set(PollFlags::OUT, is_written && !self.has_failed);
        let socket = self.memory.number();
        (!events.is_empty() && socket >= 0 && !self.is_closed()).then_some((socket, events))
    }

    /// Whether the connection was unused for long, and holds nothing.
    pub fn is_idle(&mut self, endpoint: &Endpoint, now: Time) -> bool {
        matches!(self.stage, Stage::Open)
            && self.used_for.is_idle(now, self.frames)
            && self.unread.is_empty()
            && self.unwritten.is_empty()
            && endpoint.is_settled(self.peer)
    }

    /// Writes the opening, or the frames that are not written, as far as the kernel takes them.
    pub fn flush(&mut self) {
        if let Stage::Dials { opening, until } = self.stage {
            self.write_opening(&opening, until);
        } else if !self.has_failed && !self.unwritten.is_empty() {
            self.has_failed = self.unwritten.write(&self.memory).is_err();
        }
    }

    fn write_opening(&mut self, opening: &[u8], until: Time) {
        let Some(socket) = self.memory.socket() else {
            return;
        };
        match send(socket, opening, FLAGS) {
            Ok(OPENING) => self.stage = Stage::Awaits { until },
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => self.has_failed = true,
        }
    }

    /// Takes a frame, which [`Direct::flush`] writes.
    fn write(&mut self, header: &Header, body: &Bytes) -> Result<(), RingError> {
        if !self.unwritten.has_room(&self.memory, body.len()) {
            self.flush();
        }
        if !self.is_open() {
            return Err(RingError::Closed);
        }
        if !self.unwritten.has_room(&self.memory, body.len()) {
            return Err(RingError::Full);
        }
        if !self.unwritten.push(&mut self.memory, header, body) {
            return Err(RingError::Closed);
        }
        self.frames[0] += 1;
        Ok(())
    }

    /// Writes an acknowledgement, if one is due and there is room.
    pub fn acknowledge(&mut self, endpoint: &mut Endpoint, now: Time) {
        if !endpoint.is_ack_due(now, self.peer) || !self.is_open() {
            return;
        }
        self.flush();
        if self.unwritten.is_empty() && !self.has_failed {
            self.greet(endpoint);
        }
    }

    /// Writes a frame with the acknowledgement and the credit for the peer.
    pub fn greet(&mut self, endpoint: &mut Endpoint) {
        let mut header = Header::new(Op::Ack);
        header.from = endpoint.me();
        header.to = self.peer;
        header.generation = endpoint.generation();
        (header.ack, header.credit) = endpoint.ring_ack(self.peer);
        // If it is not written, the acknowledgement comes by the daemon.
        if self.write(&header, &Bytes::new()).is_ok() {
            self.flush();
        }
    }

    /// Takes what the peer has written, up to a message that `until` names. Nothing is taken while
    /// the inbox is full, unless the peer `is_over`.
    pub fn read(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        until: Until<'_>,
        is_over: bool,
    ) -> Option<Received> {
        let before = self.frames[1];
        let found = self.read_frames(endpoint, now, until, is_over);
        if self.frames[1] != before {
            self.acknowledge(endpoint, now);
            endpoint.acknowledge_soon(now, self.peer);
        }
        found
    }

    fn read_frames(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        until: Until<'_>,
        is_over: bool,
    ) -> Option<Received> {
        if self.is_dialled() {
            return None;
        }
        self.is_early = false;
        self.has_more = false;
        let mut is_filled = true;
        loop {
            if !is_over && endpoint.inbox_full().is_some() {
                self.has_more = true;
                return None;
            }
            match self.next_frame(endpoint.me()) {
                Next::Frame(header, len) => {
                    let found = self.take(endpoint, now, until, &header, len);
                    let is_there = found.is_some() || until.has_landed(endpoint);
                    if is_there || self.is_early {
                        self.has_more = is_there;
                        return found;
                    }
                }
                Next::Incomplete if is_filled => is_filled = self.fill(),
                Next::Incomplete => return None,
                Next::Broken => {
                    log::warn!(
                        "{} wrote a frame on its direct connection that is none: the connection is closed",
                        self.peer
                    );
                    self.has_ended = true;
                    self.unread = 0..0;
                    return None;
                }
            }
        }
    }

    /// Takes the frame at the beginning of the unread bytes, unless earlier chunks are missing.
    fn take(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        until: Until<'_>,
        header: &Header,
        len: usize,
    ) -> Option<Received> {
        if let Stage::Awaits { .. } = self.stage {
            self.stage = Stage::Open;
            endpoint.ring_opened(self.peer);
        }
        let mut found = None;
        if header.generation == endpoint.generation() {
            endpoint.ring_acknowledged(now, self.peer, header.ack, header.credit);
        }
        if header.op == Op::Data {
            let end = self.frame_end(len);
            let body = &self.memory.incoming()[end - body_len(len)..end];
            let fill = |room: Room<'_>| {
                room.put(body);
                true
            };
            match endpoint.read_ring(header, body.len(), until.filter(), fill) {
                RingRead::Taken(message) => found = message,
                RingRead::Early | RingRead::Unread => {
                    self.is_early = true;
                    return None;
                }
            }
        }
        self.opened = None;
        self.frames[1] += 1;
        self.unread.start += self.record_len(len);
        found
    }

    /// Where the frame of `len` bytes at the beginning of the unread bytes ends.
    fn frame_end(&self, len: usize) -> usize {
        match self.memory.is_sealed() {
            true => self.unread.start + LENGTH + len,
            false => self.unread.start + len,
        }
    }

    /// The bytes of the record of a frame of `len` bytes.
    fn record_len(&self, len: usize) -> usize {
        match self.memory.is_sealed() {
            true => LENGTH + len + TAG,
            false => len,
        }
    }

    /// The next frame, which stays where it is: its header and its length.
    fn next_frame(&mut self, me: Tid) -> Next {
        if let Some((header, len)) = self.opened {
            return Next::Frame(header, len);
        }
        let read = match self.memory.is_sealed() {
            true => self.open_record(),
            false => self.plain_frame(),
        };
        let Ok(Some((header, len))) = read else {
            return match read {
                Ok(_) => Next::Incomplete,
                Err(Broken) => Next::Broken,
            };
        };
        let fits = (header.from, header.to) == (self.peer, me)
            && match header.op {
                Op::Ack => true,
                Op::Data => is_chunk(&header, body_len(len)),
                _ => false,
            };
        if !fits {
            return Next::Broken;
        }
        self.opened = Some((header, len));
        Next::Frame(header, len)
    }

    /// Opens the next record in place, if it is whole.
    fn open_record(&mut self) -> Result<Option<(Header, usize)>, Broken> {
        let unread = &self.memory.incoming()[self.unread.clone()];
        let Some(length) = unread.first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let sealed = u32::from_le_bytes(*length) as usize;
        if sealed > SEALED_MAX {
            return Err(Broken);
        }
        if unread.len() < LENGTH + sealed {
            return Ok(None);
        }
        let from = self.unread.start + LENGTH;
        let len = self.memory.open(from, sealed).ok_or(Broken)?;
        let content = &self.memory.incoming()[from..from + len];
        let (header, body) = header_of(content)?.ok_or(Broken)?;
        match HEADER_LEN + body == len {
            true => Ok(Some((header, len))),
            false => Err(Broken),
        }
    }

    /// The next frame that is not sealed, if it is whole.
    fn plain_frame(&mut self) -> Result<Option<(Header, usize)>, Broken> {
        let unread = &self.memory.incoming()[self.unread.clone()];
        let Some((header, body)) = header_of(unread)? else {
            return Ok(None);
        };
        let len = HEADER_LEN + body;
        if len > CONTENT_MAX {
            return Err(Broken);
        }
        Ok((unread.len() >= len).then_some((header, len)))
    }

    /// Reads once from the socket. Returns whether more may be there.
    fn fill(&mut self) -> bool {
        if self.has_ended {
            return false;
        }
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.start > 0 {
            self.memory.move_to_front(self.unread.clone());
            self.unread = 0..self.unread.len();
        }
        let room = INCOMING - self.unread.end;
        match self.memory.receive(self.unread.end) {
            Ok(0) => {
                self.has_ended = true;
                false
            }
            Ok(len) => {
                self.unread.end += len;
                len == room
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Err(_) => {
                self.has_ended = true;
                false
            }
        }
    }
}

/// The peer has written what no task writes.
struct Broken;

/// The header at the beginning of some bytes, and the length of its body; `None` if they are too few.
fn header_of(bytes: &[u8]) -> Result<Option<(Header, usize)>, Broken> {
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    Header::from_bytes(header).map(Some).map_err(|_| Broken)
}

/// Whether a header is that of a chunk with a body of `len` bytes.
fn is_chunk(header: &Header, len: usize) -> bool {
    let end = header.offset.checked_add(len as u64);
    header.seq != 0
        && len <= limits::CHUNK_MAX
        && header.total <= limits::MESSAGE_MAX
        && end.is_some_and(|end| end <= header.total)
}

/// The length of the body of a frame.
fn body_len(frame: usize) -> usize {
    frame - HEADER_LEN
}

impl Ring for Direct {
    fn chunk_max(&self, _: usize) -> usize {
        limits::CHUNK_MAX
    }

    fn push(&mut self, chunk: &Frame) -> Result<(), RingError> {
        self.write(&chunk.header, &chunk.body)
    }

    fn flush(&mut self) {
        Direct::flush(self);
    }

    fn carries_acks(&self) -> bool {
        true
    }
}
