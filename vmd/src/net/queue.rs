//! The queue of frames for one socket: bounded, urgent frames first, many frames in one system
//! call.
//!
//! Every frame that leaves the daemon passes through a queue, and is written at the end of the turn
//! that made it. Frames that the socket does not take stay, in two lanes: urgent (frames that keep
//! the machine alive) and bulk (chunks of tasks' messages). A frame that is partly written is
//! finished first.
//!
//! The bulk lane has a bound, and all queues together have another one ([`Room`]). A chunk beyond a
//! bound is dropped, because its sender retains it. The queue records the channel that lost a
//! chunk. Once there is room again the daemon is told, so that it can request the chunks.

use rustix::{
    io::{Errno, write, writev},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};
use std::{
    collections::{BTreeSet, VecDeque},
    io::IoSlice,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};
use vm_wire::{
    Frame, HEADER_LEN, Op, Tid,
    limits::{QUEUE_BYTES, QUEUES_BYTES_ALL},
};

/// Bound on the frames of one system call.
const BATCH: usize = 16;
/// Bound on the bytes that are handed to the socket at once. Urgent frames wait behind them.
const BATCH_BYTES: usize = 256 * 1024;
/// Up to this length, in bytes, a frame is copied before it is written.
const SMALL_MAX: usize = 512;
/// Bound on the bytes that are written to one socket in one turn, before other sockets are written.
const TURN_BYTES: usize = 512 * 1024;

/// Bytes that wait in all queues of the daemon.
#[derive(Debug, Default)]
pub struct Room {
    used: usize,
}

impl Room {
    fn has(&self, bytes: usize) -> bool {
        self.used + bytes <= QUEUES_BYTES_ALL
    }

    /// Whether at most half of the bound is in use.
    pub fn is_half_empty(&self) -> bool {
        self.used <= QUEUES_BYTES_ALL / 2
    }
}

/// The order of frames in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    /// Frames keep the order in which they were pushed, as consoles need it.
    One,
    /// All other frames overtake the chunks of tasks' messages.
    Two,
}

/// The result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// The frame will be written.
    Kept,
    /// The frame, a chunk or an acknowledgement, was dropped because there is no room.
    Dropped,
    /// There is no room for a frame that may not be dropped: the other end does not read.
    Stuck,
}

/// Largest number of descriptors that go with a frame: those of a ring.
const DESCRIPTORS_MAX: usize = 3;

/// The queue of one socket.
#[derive(Debug)]
pub struct FrameQueue {
    lanes: Lanes,
    /// Frames that were taken from the lanes, in the order of writing.
    leaving: VecDeque<Frame>,
    /// Bytes in `leaving`.
    leaving_bytes: usize,
    /// Bytes of the first frame of `leaving` that are written.
    written: usize,
    urgent: VecDeque<Frame>,
    bulk: VecDeque<Frame>,
    /// Bytes in `leaving`, `urgent` and `bulk`.
    bytes: usize,
    /// The descriptors that go with each `RingOpen` and `DirectOpen` of the queue, in their order.
    descriptors: VecDeque<Vec<OwnedFd>>,
    /// The channels of which chunks were dropped.
    losers: BTreeSet<(Tid, Tid)>,
}

impl FrameQueue {
    /// An empty queue.
    pub fn new(lanes: Lanes) -> FrameQueue {
        FrameQueue {
            lanes,
            leaving: VecDeque::new(),
            leaving_bytes: 0,
            written: 0,
            urgent: VecDeque::new(),
            bulk: VecDeque::new(),
            bytes: 0,
            descriptors: VecDeque::new(),
            losers: BTreeSet::new(),
        }
    }

    /// Whether the queue has no frame.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes in the queue.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the descriptors, [`DESCRIPTORS_MAX`] at most, that go with the `RingOpen` or `DirectOpen`
    /// that is pushed next.
    pub fn attach(&mut self, descriptors: Vec<OwnedFd>) {
        debug_assert!(descriptors.len() <= DESCRIPTORS_MAX);
        self.descriptors.push_back(descriptors);
    }

    /// Adds a frame, if there is room for it.
    pub fn push(&mut self, frame: Frame, room: &mut Room) -> Pushed {
        let length = frame.len();
        let bulk = matches!(frame.header.op, Op::Data | Op::Ack | Op::Resend);
        if bulk && (self.bytes + length > QUEUE_BYTES || !room.has(length)) {
            self.losers.insert((frame.header.from, frame.header.to));
            return Pushed::Dropped;
        }
        // The bound for frames that may not be dropped is twice as high, so that bulk alone never
        // keeps them out.
        if self.bytes + length > 2 * QUEUE_BYTES.max(frame.header.op.body_max()) {
            return Pushed::Stuck;
        }
        self.bytes += length;
        room.used += length;
        let overtaken = self.lanes == Lanes::Two
            && frame.header.op == Op::Data
            && !frame.header.from.is_daemon();
        if overtaken {
            self.bulk.push_back(frame);
        } else {
            self.urgent.push_back(frame);
        }
        Pushed::Kept
    }

    /// The channels that lost chunks, once there is room again; empty before.
    pub fn take_losers(&mut self, room: &Room) -> Vec<(Tid, Tid)> {
        if self.losers.is_empty() || self.bytes > QUEUE_BYTES / 2 || !room.is_half_empty() {
            return Vec::new();
        }
        std::mem::take(&mut self.losers).into_iter().collect()
    }

    /// Whether a channel has lost chunks and was not returned by `take_losers` yet.
    pub fn has_losers(&self) -> bool {
        !self.losers.is_empty()
    }

    /// Takes the next frame in the order of writing.
    pub fn pop(&mut self, room: &mut Room) -> Option<Frame> {
        debug_assert!(self.leaving.is_empty());
        let frame = self.urgent.pop_front().or_else(|| self.bulk.pop_front())?;
        self.forget(frame.len(), room);
        Some(frame)
    }

    /// Writes what the socket takes, up to a turn's share.
    ///
    /// # Errors
    /// The error of the system call; the connection cannot be used any more.
    pub fn flush(&mut self, socket: impl AsFd, room: &mut Room) -> Result<Flushed, Errno> {
        let mut share = TURN_BYTES;
        loop {
            while self.leaving.len() < BATCH
                && self.leaving_bytes < BATCH_BYTES
                && let Some(frame) = self.urgent.pop_front().or_else(|| self.bulk.pop_front())
            {
                self.leaving_bytes += frame.len();
                self.leaving.push_back(frame);
            }
            if self.leaving.is_empty() {
                return Ok(Flushed::Empty);
            }
            if share == 0 {
                return Ok(Flushed::More);
            }
            match self.write_some(&socket) {
                Ok(count) => {
                    self.advance(count, room);
                    share = share.saturating_sub(count.max(1));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Flushed::Blocked),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes a frame with descriptors alone: they belong to its first byte.
    fn write_with_descriptors(&mut self, socket: impl AsFd) -> Result<usize, Errno> {
        let Some(frame) = self.leaving.front() else {
            return Ok(0);
        };
        let mut bytes = Vec::with_capacity(frame.len());
        frame.write_to(&mut bytes);
        let Some(descriptors) = self.descriptors.front() else {
            return write(socket, &bytes);
        };
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let count = sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags)?;
        self.descriptors.pop_front();
        Ok(count)
    }

    fn write_some(&mut self, socket: impl AsFd) -> Result<usize, Errno> {
        let has_descriptors =
            |frame: &Frame| matches!(frame.header.op, Op::RingOpen | Op::DirectOpen);
        if self.written == 0 && self.leaving.front().is_some_and(has_descriptors) {
            return self.write_with_descriptors(socket);
        }
        // For one small frame, as in a round trip, a copy is cheaper than a gathering write.
        if let [frame] = self.leaving.as_slices().0
            && frame.len() <= SMALL_MAX
        {
            let mut bytes = [0; SMALL_MAX];
            frame.write_to(&mut &mut bytes[..]);
            return write(socket, &bytes[self.written..frame.len()]);
        }
        let others = self.leaving.iter().skip(1);
        let count = 1 + others.take_while(|it| !has_descriptors(it)).count();
        let mut headers = [[0; HEADER_LEN]; BATCH];
        for (bytes, frame) in headers.iter_mut().zip(&self.leaving).take(count) {
            *bytes = frame.header.to_bytes(frame.body.len());
        }
        let mut slices = [IoSlice::new(&[]); 2 * BATCH];
        let frames = headers.iter().zip(&self.leaving).take(count);
        for (index, (header, frame)) in frames.enumerate() {
            let out = if index == 0 { self.written } else { 0 };
            slices[2 * index] = IoSlice::new(&header[out.min(HEADER_LEN)..]);
            slices[2 * index + 1] = IoSlice::new(&frame.body[out.saturating_sub(HEADER_LEN)..]);
        }
        writev(socket, &slices[..2 * count])
    }

    fn advance(&mut self, count: usize, room: &mut Room) {
        self.written += count;
        while let Some(frame) = self.leaving.front() {
            let length = frame.len();
            if self.written < length {
                return;
            }
            self.written -= length;
            self.leaving_bytes -= length;
            self.leaving.pop_front();
            self.forget(length, room);
        }
    }

    fn forget(&mut self, length: usize, room: &mut Room) {
        self.bytes -= length;
        room.used -= length;
    }

    /// Empties the queue of a closed connection.
    pub fn clear(&mut self, room: &mut Room) {
        room.used -= self.bytes;
        *self = FrameQueue::new(self.lanes);
    }
}

/// The result of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// The queue is empty.
    Empty,
    /// The socket is full. An event follows when it has room again.
    Blocked,
    /// The turn's share is used up, but the socket may take more.
    More,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, os::unix::net::UnixStream};
    use vm_wire::{FrameReader, Header, HostId, MachineId, limits::CHUNK_MAX};

    fn task(number: u32) -> Tid {
        Tid::new(MachineId::from_bits(1), HostId(1), number)
    }

    fn chunk(seq: u64, length: usize) -> Frame {
        let mut header = Header::new(Op::Data);
        header.seq = seq;
        header.total = length as u64;
        Frame::new(header, vec![7; length].into()).between(task(1), task(2))
    }

    fn control(request: u64) -> Frame {
        Frame::new(Header::new(Op::Alive), vec![1; 10].into()).asked(request)
    }

    fn pair() -> (UnixStream, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        near.set_nonblocking(true).expect("nonblocking");
        far.set_nonblocking(true).expect("nonblocking");
        (near, far)
    }

    /// Reads all bytes that are available, and returns the frames.
    fn read_some(far: &mut UnixStream, reader: &mut FrameReader) -> Vec<Frame> {
        let mut bytes = vec![0; 100_000];
        while let Ok(count @ 1..) = far.read(&mut bytes) {
            reader.push(&bytes[..count]);
        }
        std::iter::from_fn(|| reader.next_frame().expect("good frames")).collect()
    }

    #[test]
    fn urgent_frames_overtake_chunks_but_never_split_one() {
        let (near, mut far) = pair();
        let (mut queue, mut room) = (FrameQueue::new(Lanes::Two), Room::default());
        for seq in 1..=40 {
            assert_eq!(queue.push(chunk(seq, CHUNK_MAX), &mut room), Pushed::Kept);
        }
        assert_eq!(queue.flush(&near, &mut room), Ok(Flushed::Blocked));
        queue.push(control(9), &mut room);
        let mut reader = FrameReader::new();
        let mut seen = Vec::new();
        while seen.len() < 41 {
            seen.extend(read_some(&mut far, &mut reader));
            queue.flush(&near, &mut room).expect("open");
        }
        let place = seen.iter().position(|frame| frame.header.op == Op::Alive);
        // The urgent frame comes after what the system and the current batch hold.
        assert!(place.is_some_and(|place| place < 12), "{place:?}");
        let chunks: Vec<u64> = seen
            .iter()
            .filter(|frame| frame.header.op == Op::Data)
            .map(|frame| frame.header.seq)
            .collect();
        assert_eq!(chunks, (1..=40).collect::<Vec<_>>());
        assert!(queue.is_empty() && room.used == 0);
    }

    #[test]
    fn one_lane_keeps_the_order() {
        let (mut queue, mut room) = (FrameQueue::new(Lanes::One), Room::default());
        queue.push(chunk(1, 10), &mut room);
        queue.push(control(1), &mut room);
        assert_eq!(queue.pop(&mut room).map(|f| f.header.op), Some(Op::Data));
        assert_eq!(queue.pop(&mut room).map(|f| f.header.op), Some(Op::Alive));
        assert_eq!(queue.pop(&mut room), None);
    }

    #[test]
    fn chunks_beyond_the_bound_are_dropped_and_reported_once_there_is_room() {
        let (mut queue, mut room) = (FrameQueue::new(Lanes::Two), Room::default());
        let mut kept = 0;
        while queue.push(chunk(kept + 1, CHUNK_MAX), &mut room) == Pushed::Kept {
            kept += 1;
        }
        assert!(queue.bytes() <= QUEUE_BYTES && kept > 200);
        assert_eq!(queue.push(control(1), &mut room), Pushed::Kept);
        assert!(queue.take_losers(&room).is_empty(), "still full");
        while queue.bytes() > QUEUE_BYTES / 2 {
            queue.pop(&mut room);
        }
        assert_eq!(queue.take_losers(&room), vec![(task(1), task(2))]);
        assert!(!queue.has_losers());
    }

    #[test]
    fn a_peer_that_never_reads_gets_stuck() {
        let (mut queue, mut room) = (FrameQueue::new(Lanes::Two), Room::default());
        let answer = Frame::new(Header::new(Op::Hosts), vec![0; 1 << 20].into());
        let kept = (0..1000)
            .take_while(|_| queue.push(answer.clone(), &mut room) == Pushed::Kept)
            .count();
        assert!((20..40).contains(&kept), "{kept}");
        assert_eq!(queue.push(answer, &mut room), Pushed::Stuck);
        queue.clear(&mut room);
        assert_eq!((queue.bytes(), room.used), (0, 0));
    }

    #[test]
    fn all_queues_together_have_a_bound() {
        let mut room = Room::default();
        let mut queues: Vec<FrameQueue> = (0..40).map(|_| FrameQueue::new(Lanes::Two)).collect();
        let body = vec![0; CHUNK_MAX];
        let mut frame = chunk(1, 0);
        frame.header.total = CHUNK_MAX as u64;
        frame.body = body.into();
        for queue in &mut queues {
            while queue.push(frame.clone(), &mut room) == Pushed::Kept {}
        }
        assert!(room.used <= QUEUES_BYTES_ALL && !room.is_half_empty());
        let last = queues.last_mut().expect("forty");
        assert!(last.is_empty() && last.has_losers());
    }
}
