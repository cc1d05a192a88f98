//! The two halves of a channel between an ordered pair of tasks: the sender retains chunks, the
//! receiver takes chunks.
//!
//! The unit is the chunk, numbered from 1 per ordered pair. A [`Sender`] retains each chunk until
//! the library of the receiving task has acknowledged it. On a new route the sender sends again
//! from the first unacknowledged chunk. A [`Receiver`] drops duplicates and puts chunks of several
//! routes in order. So no daemon between the two retains any state, and delivery is exactly once
//! and in order as long as both ends live.
//!
//! Two limits hold a sender back. *Credit* counts chunks: the receiver states the last number that
//! the sender may send. The *window* counts bytes: at most that many bytes may be unacknowledged. A
//! receiver with a full inbox neither acknowledges nor grants credit (see [`Receiver::tell`]), so
//! its senders stop after one more window.

use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use vm_wire::{
    Body, Frame, Header,
    limits::{ACK_IDLE, CHUNK_OVERHEAD, REQUEST_RETRY, WINDOW_CHUNKS},
};

/// Bound on the doublings of the pause between repetitions. Each repetition without an
/// acknowledgement doubles the pause, so that a receiver that computes for an hour does not get the
/// same chunk every second.
const REPEAT_DOUBLINGS_MAX: u32 = 3;

/// Cost of a frame in a window: body and overhead. Bytes.
pub(crate) fn cost(frame: &Frame) -> u64 {
    frame.body.len() as u64 + CHUNK_OVERHEAD
}

/// The sending half: numbers chunks and retains them until they are acknowledged.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The last number given to a chunk.
    last: u64,
    /// The last number that may be given.
    credit: u64,
    /// Chunks that the receiver has not acknowledged, in order and without gaps.
    retained: VecDeque<Frame>,
    /// Cost of the retained chunks. Bytes.
    retained_bytes: u64,
    window_bytes: u64,
    /// Time of the last progress: an acknowledgement or a repetition.
    progress: Time,
    /// Repetitions since the last acknowledgement.
    repeats: u32,
}

impl Sender {
    /// A sender that has sent nothing. Its first credit is one window of chunks.
    pub fn new(window_bytes: u64) -> Self {
        Sender {
            last: 0,
            credit: WINDOW_CHUNKS,
            retained: VecDeque::new(),
            retained_bytes: 0,
            window_bytes,
            progress: Time::default(),
            repeats: 0,
        }
    }

    /// Number of the last chunk; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The unacknowledged chunks, in order.
    pub fn retained(&self) -> impl Iterator<Item = &Frame> {
        self.retained.iter()
    }

    /// Number of unacknowledged chunks.
    pub fn retained_count(&self) -> u64 {
        self.retained.len() as u64
    }

    /// Cost of the unacknowledged chunks: payload and overhead. Bytes.
    pub fn retained_bytes(&self) -> u64 {
        self.retained_bytes
    }

    /// Whether a chunk with a payload of `len` bytes may be sent. A window without unacknowledged
    /// chunks admits a chunk of any length.
    pub fn has_room(&self, len: usize) -> bool {
        let cost = len as u64 + CHUNK_OVERHEAD;
        self.last < self.credit
            && (self.retained.is_empty() || self.retained_bytes + cost <= self.window_bytes)
    }

    /// Number of the last chunk that the receiver has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.last - self.retained_count()
    }

    /// Number of the next chunk.
    pub fn next(&self) -> u64 {
        self.last + 1
    }

    /// Retains the next chunk, which has the number [`Sender::next`] and is sent now.
    pub fn push(&mut self, now: Time, chunk: Frame) {
        debug_assert!(self.has_room(chunk.body.len()) && chunk.header.seq == self.next());
        self.last += 1;
        self.retain(now, chunk);
    }

    /// Retains a chunk that the sender of an ended task numbered. Returns false if the chunk is
    /// already retained.
    pub fn adopt(&mut self, now: Time, chunk: Frame) -> bool {
        let new = chunk.header.seq > self.last;
        if new {
            self.last = chunk.header.seq;
            self.retain(now, chunk);
        }
        new
    }

    fn retain(&mut self, now: Time, chunk: Frame) {
        if self.retained.is_empty() {
            self.progress = now;
            self.repeats = 0;
        }
        self.retained_bytes += cost(&chunk);
        self.retained.push_back(chunk);
    }

    /// Takes an acknowledgement of all chunks up to `ack`, and credit up to chunk `credit`. Values
    /// older than the known ones change nothing, and neither does an `ack` above the last number.
    pub fn acknowledge(&mut self, now: Time, ack: u64, credit: u64) {
        self.credit = self.credit.max(credit);
        if ack > self.last {
            return;
        }
        while let Some(chunk) = self.retained.pop_front_if(|chunk| chunk.header.seq <= ack) {
            self.retained_bytes -= cost(&chunk);
            self.progress = now;
            self.repeats = 0;
        }
    }

    /// Time at which the first unacknowledged chunk is to be sent again.
    pub fn repeat_due(&self) -> Option<Time> {
        let patience: Duration = REQUEST_RETRY * (1 << self.repeats.min(REPEAT_DOUBLINGS_MAX));
        (!self.retained.is_empty()).then(|| self.progress + patience)
    }

    /// The first unacknowledged chunk, to be sent again now.
    pub fn repeat(&mut self, now: Time) -> Option<&Frame> {
        self.progress = now;
        self.repeats = self.repeats.saturating_add(1);
        self.retained.front()
    }

    /// Notes that all unacknowledged chunks were sent again on a new route: the pauses start anew.
    pub fn resent(&mut self, now: Time) {
        self.progress = now;
        self.repeats = 0;
    }

    /// The part of the sender that an image records.
    pub(crate) fn state(&self) -> SenderState {
        SenderState {
            last: self.last,
            credit: self.credit,
            retained: self.retained.iter().map(Frame::to_body).collect(),
        }
    }

    /// A sender with a recorded state. The caller sends its retained chunks again on a new route.
    pub(crate) fn of(now: Time, state: &SenderState, window_bytes: u64) -> Self {
        let mut sender = Sender::new(window_bytes);
        for chunk in state.retained.iter().filter_map(|it| Frame::of_body(it)) {
            sender.retain(now, chunk);
        }
        sender.last = state.last;
        sender.credit = state.credit;
        sender
    }

    /// Releases the retained chunks, because the receiver has ended.
    pub fn forget(&mut self) {
        self.retained = VecDeque::new();
        self.retained_bytes = 0;
    }
}

/// The receiving half: takes chunks in order, each once.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// The last chunk that went into the inbox.
    taken: u64,
    /// The last chunk that was acknowledged to the sender.
    told: u64,
    /// The last chunk that the sender has credit for.
    credit: u64,
    /// Cost of the chunks that were taken and not acknowledged. Bytes.
    untold_bytes: u64,
    /// Chunks beyond a gap, by number.
    ahead: BTreeMap<u64, Frame>,
    ahead_bytes: u64,
    window_bytes: u64,
    /// Time at which the sender gets an acknowledgement at the latest.
    due: Option<Time>,
    /// The sender was killed: later chunks count as taken and are dropped.
    closed: bool,
}

impl Receiver {
    /// A receiver that has taken nothing.
    pub fn new(window_bytes: u64) -> Self {
        Receiver {
            taken: 0,
            told: 0,
            credit: WINDOW_CHUNKS,
            untold_bytes: 0,
            ahead: BTreeMap::new(),
            ahead_bytes: 0,
            window_bytes,
            due: None,
            closed: false,
        }
    }

    /// Number of the last chunk that was taken. All earlier chunks were taken as well.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes a chunk that has arrived. The chunk, and the chunks behind it that waited for it, go
    /// to `take` in order. A duplicate is dropped and acknowledged again. A chunk beyond a gap
    /// waits, if credit and window allow.
    pub fn offer(&mut self, now: Time, chunk: Frame, mut take: impl FnMut(Frame)) {
        let seq = chunk.header.seq;
        if self.closed {
            self.taken = self.taken.max(seq);
        } else if seq > self.taken + 1 {
            let cost = cost(&chunk);
            let fits = seq <= self.credit && self.ahead_bytes + cost <= self.window_bytes;
            if fits && !self.ahead.contains_key(&seq) {
                self.ahead_bytes += cost;
                self.ahead.insert(seq, chunk);
            }
            return;
        } else if seq == self.taken + 1 {
            self.taken = seq;
            self.untold_bytes += cost(&chunk);
            take(chunk);
            while let Some(chunk) = self.ahead.remove(&(self.taken + 1)) {
                self.taken += 1;
                self.ahead_bytes -= cost(&chunk);
                self.untold_bytes += cost(&chunk);
                take(chunk);
            }
        }
        self.due.get_or_insert(now + ACK_IDLE);
    }

    /// Counts the next chunk, with a payload of `len` bytes, as taken from a ring, where it is
    /// acknowledged, or from a direct connection; see [`Receiver::tell_soon`].
    pub fn took(&mut self, len: usize) {
        self.taken += 1;
        self.untold_bytes += len as u64 + CHUNK_OVERHEAD;
    }

    /// The chunk that waited for the one that was just taken, and counts as taken now.
    pub fn next_ahead(&mut self) -> Option<Frame> {
        let chunk = self.ahead.remove(&(self.taken + 1))?;
        self.ahead_bytes -= cost(&chunk);
        self.took(chunk.body.len());
        Some(chunk)
    }

    /// Whether the sender was killed, so that no chunk is taken any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Acknowledgement and credit for the next header to the sender. If the inbox is not `open`,
    /// both values stay as they were last sent.
    pub fn tell(&mut self, open: bool) -> (u64, u64) {
        (self.told, self.credit) = self.to_tell(open);
        if open {
            self.untold_bytes = 0;
        }
        self.due = None;
        (self.told, self.credit)
    }

    /// The same values for a header that may not be sent.
    pub fn to_tell(&self, open: bool) -> (u64, u64) {
        match open {
            true => (self.taken, self.taken.saturating_add(WINDOW_CHUNKS)),
            false => (self.told, self.credit),
        }
    }

    /// The sender gets an acknowledgement of what was taken, soon.
    pub fn tell_soon(&mut self, now: Time) {
        if self.withholds() {
            self.due.get_or_insert(now + ACK_IDLE);
        }
    }

    /// Whether some taken chunks are not acknowledged to the sender.
    pub fn withholds(&self) -> bool {
        self.told < self.taken
    }

    /// Whether half a window of chunks or bytes is not acknowledged, so that an acknowledgement is
    /// to be sent at once.
    pub fn is_urgent(&self) -> bool {
        self.withholds()
            && (self.untold_bytes >= self.window_bytes / 2
                || self.taken - self.told >= WINDOW_CHUNKS / 2)
    }

    /// Time at which an acknowledgement is to be sent at the latest.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// The part of the receiver that an image records. Chunks beyond a gap are not acknowledged,
    /// and the sender sends them again.
    pub(crate) fn state(&self) -> ReceiverState {
        ReceiverState {
            taken: self.taken,
            told: self.told,
            credit: self.credit,
            closed: self.closed,
        }
    }

    /// A receiver with a recorded state.
    pub(crate) fn of(state: &ReceiverState, window_bytes: u64) -> Self {
        let ReceiverState {
            taken,
            told,
            credit,
            closed,
        } = *state;
        Receiver {
            taken,
            told,
            credit,
            closed,
            ..Receiver::new(window_bytes)
        }
    }

    /// Drops the chunks beyond a gap, because the sender was killed and the gap will never be
    /// filled.
    pub fn close(&mut self) {
        self.closed = true;
        self.ahead = BTreeMap::new();
        self.ahead_bytes = 0;
    }
}

/// The part of a [`Sender`] that an image records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SenderState {
    last: u64,
    credit: u64,
    /// The unacknowledged chunks, each a header and a body.
    retained: Vec<Body>,
}

/// The part of a [`Receiver`] that an image records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ReceiverState {
    taken: u64,
    told: u64,
    credit: u64,
    closed: bool,
}

/// Whether a frame is a chunk that an ended task left to its daemon.
pub(crate) fn is_left(header: &Header) -> bool {
    header.flags & Header::KEEP != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use vm_wire::Op;

    const NOW: Time = Time(0);

    fn chunk(seq: u64, len: usize) -> Frame {
        let mut header = Header::new(Op::Data);
        header.seq = seq;
        header.total = len as u64;
        Frame::new(header, Bytes::from(vec![0; len]))
    }

    /// The numbers of the chunks that the receiver takes when `chunks` arrive.
    fn taken(receiver: &mut Receiver, chunks: &[Frame]) -> Vec<u64> {
        let mut taken = Vec::new();
        for chunk in chunks {
            receiver.offer(NOW, chunk.clone(), |chunk| taken.push(chunk.header.seq));
        }
        taken
    }

    #[test]
    fn empty_chunks_are_held_back_by_credit_and_by_what_they_cost() {
        let mut sender = Sender::new(u64::MAX);
        for _ in 0..WINDOW_CHUNKS {
            assert!(sender.has_room(0));
            sender.push(NOW, chunk(sender.next(), 0));
        }
        assert!(!sender.has_room(0));
        sender.acknowledge(NOW, 1, WINDOW_CHUNKS + 1);
        assert!(sender.has_room(0));

        let mut sender = Sender::new(2 * CHUNK_OVERHEAD);
        sender.push(NOW, chunk(sender.next(), 0));
        assert!(sender.has_room(0));
        sender.push(NOW, chunk(sender.next(), 0));
        assert!(!sender.has_room(0));
    }

    #[test]
    fn what_was_never_sent_cannot_be_acknowledged_nor_credit_be_taken_back() {
        let mut sender = Sender::new(u64::MAX);
        sender.push(NOW, chunk(sender.next(), 8));
        sender.acknowledge(NOW, 2, 0);
        assert_eq!(sender.retained().count(), 1);
        assert!(sender.has_room(8));
        sender.acknowledge(NOW, 1, 0);
        assert_eq!((sender.retained().count(), sender.retained_bytes()), (0, 0));
    }

    #[test]
    fn a_gap_that_is_filled_lets_all_behind_it_go() {
        let mut receiver = Receiver::new(1 << 20);
        let ahead: Vec<Frame> = (2..=9).map(|seq| chunk(seq, 8)).collect();
        assert_eq!(taken(&mut receiver, &ahead), []);
        assert_eq!(
            taken(&mut receiver, &[chunk(1, 8)]),
            (1..=9).collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_waits_behind_a_gap_is_within_credit_and_window() {
        let mut receiver = Receiver::new(2 * (1000 + CHUNK_OVERHEAD));
        for first in [1, 5] {
            // Duplicates cost nothing. There is room for two chunks, so the third chunk is dropped.
            let ahead = [1, 1, 2, 3].map(|gap| chunk(first + gap, 1000));
            assert_eq!(taken(&mut receiver, &ahead), []);
            let all = taken(&mut receiver, &[chunk(first, 8), chunk(first + 3, 8)]);
            assert_eq!(all, [first, first + 1, first + 2, first + 3]);
        }

        let mut receiver = Receiver::new(u64::MAX);
        let ahead = [chunk(WINDOW_CHUNKS, 0), chunk(WINDOW_CHUNKS + 1, 0)];
        assert_eq!(taken(&mut receiver, &ahead), []);
        let rest: Vec<Frame> = (1..WINDOW_CHUNKS).map(|seq| chunk(seq, 0)).collect();
        assert_eq!(taken(&mut receiver, &rest).last(), Some(&WINDOW_CHUNKS));
    }
}
