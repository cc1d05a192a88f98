//! The writing end of a lane: chunks as slots.

use super::{
    lane::{BODIES, INLINE_MAX, Lane, SLOTS, Sleep, State, Words, cookie as cookie_of},
    lent::{LEND_MIN, LENT_MESSAGE_MIN},
    reader::{KIND_BODY, KIND_INLINE, KIND_LENT},
};
use rustix::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use vm_endpoint::{Ring, RingError};
use vm_wire::{Frame, limits};

/// Bytes of a body in the lane, of a message of several chunks.
const PIECE: usize = 16 * 1024;

/// Where a task writes its outgoing lane.
#[derive(Debug)]
pub(crate) struct Writer {
    lane: Lane,
    /// Slots that were written, and slots that the reader had read at the last look.
    head: u64,
    tail: u64,
    /// Bytes of bodies that were written since the ring was opened, unused ones included; by slot
    /// the number after the slot's body.
    bodies: u64,
    ends: Box<[u64; SLOTS as usize]>,
    /// The cookies of slots with lent bodies, and the number that they are made from.
    cookies: Box<[AtomicU64; SLOTS as usize]>,
    nonce: u64,
    /// The last chunk whose body was lent.
    pub lent: u64,
    /// The eventfd that wakes the reader.
    pub wake: RawFd,
}

impl Writer {
    pub fn new(lane: Lane) -> Self {
        let cookies = Box::new([const { AtomicU64::new(0) }; SLOTS as usize]);
        let mut nonce = [0; 8];
        // Without random bytes, nothing is lent.
        match rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty()) {
            Ok(8) => {}
            _ => lane.lends_not().store(1, Relaxed),
        }
        let nonce = u64::from_ne_bytes(nonce);
        lane.set_cookies(cookies.as_ptr() as u64, nonce);
        Writer {
            lane,
            head: 0,
            tail: 0,
            bodies: 0,
            ends: Box::new([0; SLOTS as usize]),
            cookies,
            nonce,
            lent: 0,
            wake: -1,
        }
    }

    /// Whether `len` bytes for a body, after `skipped` unused ones, and a slot are free.
    fn has_room(&self, skipped: u64, len: u64) -> bool {
        let read = match self.tail {
            0 => 0,
            tail => self.ends[((tail - 1) % SLOTS) as usize],
        };
        self.head - self.tail < SLOTS && self.bodies + skipped + len - read <= BODIES
    }

    /// Whether bodies of a message of `total` bytes are lent.
    fn lends(&self, total: u64) -> bool {
        total >= LENT_MESSAGE_MIN && self.lane.lends_not().load(Relaxed) == 0
    }

    /// The next body is at the beginning if the reader has read all: the caches hold that memory, and
    /// not the memory that was written a round ago.
    fn begin_anew_if_empty(&mut self) {
        if self.tail != self.head {
            self.look();
        }
        if self.tail == self.head && self.head > 0 {
            self.bodies = self.bodies.next_multiple_of(BODIES);
            self.ends[((self.head - 1) % SLOTS) as usize] = self.bodies;
        }
    }

    /// Slots that were written.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Slots that the reader had read at the last look.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Looks how far the reader is. A reader that claims more than was written, or less than before,
    /// is not believed.
    pub fn look(&mut self) {
        let (tail, ..) = self.lane.progress();
        if (self.tail..=self.head).contains(&tail) {
            self.tail = tail;
        }
    }
}

impl Ring for Writer {
    fn chunk_max(&self, total: usize) -> usize {
        match self.lends(total as u64) {
            true => limits::CHUNK_MAX,
            // The reader reads one while this task writes the next.
            false => PIECE,
        }
    }

    fn push(&mut self, chunk: &Frame) -> Result<(), RingError> {
        if self.lane.state() != State::Reads {
            return Err(RingError::Closed);
        }
        let (header, body) = (&chunk.header, &chunk.body);
        let is_inline = body.len() <= INLINE_MAX && header.total == body.len() as u64;
        let is_lent = body.len() >= LEND_MIN && self.lends(header.total);
        let len = match is_inline || is_lent {
            true => 0,
            false => body.len() as u64,
        };
        if len > 0 {
            self.begin_anew_if_empty();
        }
        // A body is in one piece.
        let skipped = match BODIES - self.bodies % BODIES {
            left if left < len => left,
            _ => 0,
        };
        if !self.has_room(skipped, len) {
            self.look();
            if !self.has_room(skipped, len) {
                wake_if(self.lane.reader_sleeps(), Sleep::UntilLong, self.wake);
                return Err(RingError::Full);
            }
        }
        let kind = match (is_inline, is_lent) {
            (true, _) => KIND_INLINE,
            (_, true) => KIND_LENT,
            _ => KIND_BODY,
        };
        let mut words: Words = [
            header.seq,
            u64::from(header.context) | (header.tag as u32 as u64) << 32,
            u64::from(header.generation) | u64::from(header.epoch) << 32,
            kind | (body.len() as u64) << 32,
            0,
            header.offset,
            header.total,
        ];
        if is_inline {
            let mut bytes = [0; INLINE_MAX];
            bytes[..body.len()].copy_from_slice(body);
            for (word, bytes) in words[4..].iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        } else if is_lent {
            words[4] = body.as_ptr() as u64;
            let cookie = &self.cookies[(self.head % SLOTS) as usize];
            cookie.store(cookie_of(self.nonce, self.head), Relaxed);
            self.lent = header.seq;
        } else {
            self.bodies += skipped;
            words[4] = self.bodies % BODIES;
            self.lane.write_body(words[4], body);
            self.bodies += len;
        }
        self.ends[(self.head % SLOTS) as usize] = self.bodies;
        self.lane.write(self.head, &words);
        self.head += 1;
        let is_short = header.total == body.len() as u64 && !is_lent;
        let least = if is_short {
            Sleep::UntilAny
        } else {
            Sleep::UntilLong
        };
        wake_if(self.lane.reader_sleeps(), least, self.wake);
        match self.lane.state() {
            State::Reads => Ok(()),
            State::Absent | State::Closed => Err(RingError::Closed),
        }
    }
}

/// Wakes the other task if its [`Sleep`] is `least` or a later one. What it waits for was written before.
pub(super) fn wake_if(sleeps: &AtomicU32, least: Sleep, wake: RawFd) {
    fence(SeqCst);
    let awake = Sleep::Awake as u32;
    if sleeps.load(Relaxed) >= least as u32 && sleeps.swap(awake, SeqCst) != awake {
        wake_by(wake);
    }
}

/// Writes to an eventfd that wakes a task; -1 for none.
pub(super) fn wake_by(wake: RawFd) {
    if wake >= 0 {
        // SAFETY: the descriptor is open as long as the ring, or as this process.
        let wake = unsafe { BorrowedFd::borrow_raw(wake) };
        // An eventfd that is full wakes as well.
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    }
}
