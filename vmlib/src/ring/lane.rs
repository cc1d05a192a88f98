//! One direction of a ring: memory that one task writes and the other task reads.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 63 | written rarely by the reader: its [`State`], and whether it sleeps |
//! | 64 to 127 | written by the reader with each chunk: slots read, last chunk taken, credit |
//! | 128 to 191 | written rarely by the writer: whether it sleeps until there is room; where it keeps the cookies of lent memory |
//! | 4096 to 69,631 | [`SLOTS`] slots of 64 bytes |
//! | 69,632 to 200,703 | bodies that do not fit into a slot, one after the other |
//!
//! A slot is eight words. Word 0 is the number of the slot, counted from 1 since the ring was opened;
//! the writer stores it last. So the reader learns of a new chunk, and reads a short one, in one line
//! of the processor's cache. Zeros are a lane that nobody reads.
//!
//! Neither task trusts the other: each word is read once, and is checked before it is used. Bytes
//! that the other task changes at the wrong time are wrong bytes in its own message.
//!
//! The `unsafe` parts here are the accesses to that memory. It is always mapped: see [`super::area`].

use super::room;
use std::{
    convert::Infallible,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use vm_endpoint::Room;
use vm_wire::limits;

/// Slots of a lane: as many as the chunks that a sender has credit for.
pub(crate) const SLOTS: u64 = 1024;
/// Bytes of the bodies of a lane.
pub(crate) const BODIES: u64 = 128 * 1024;
/// Bytes of a body that is in its slot.
pub(crate) const INLINE_MAX: usize = 24;
/// Bytes of a lane.
pub(crate) const LANE_BYTES: usize = 4096 + SLOTS as usize * 64 + BODIES as usize;
const _: () = assert!(2 * LANE_BYTES == limits::RING_BYTES);

const SLEEPS: usize = 8;
const TAIL: usize = 64;
const TAKEN: usize = 72;
const CREDIT: usize = 80;
const WRITER_SLEEPS: usize = 128;
const COOKIES: usize = 136;
const NONCE: usize = 144;
const LENDS_NOT: usize = 16;
const FIRST_SLOT: usize = 4096;
const FIRST_BODY: usize = FIRST_SLOT + SLOTS as usize * 64;

/// The state of a lane, as its reader states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The reader has not mapped the memory yet.
    Absent,
    /// The reader reads the lane.
    Reads,
    /// The reader does not read the lane any more.
    Closed,
}

/// Whether an end of a lane sleeps, and the events that wake it, as that end states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// The end looks at the lane by itself.
    Awake,
    /// A chunk of a long message wakes the reader: the sender may wait. A short message does not: the
    /// reader waits for another task for a moment.
    UntilLong,
    /// Each chunk wakes the reader; room and acknowledgements wake the writer.
    UntilAny,
}

/// The words of a slot after its number.
pub(crate) type Words = [u64; 7];

/// A lane at an address within the area.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    base: usize,
}

impl Lane {
    /// The lane at that address, which is [`LANE_BYTES`] of the area or of its reserve.
    pub fn at(base: usize) -> Self {
        Lane { base }
    }

    /// Its address.
    pub fn base(self) -> usize {
        self.base
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset < LANE_BYTES);
        // SAFETY: the memory of a lane is mapped as long as this process exists, `offset` is within
        // it and aligned, and words are accessed as atomics only.
        unsafe { AtomicU64::from_ptr((self.base + offset) as *mut u64) }
    }

    fn flag(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr((self.base + offset) as *mut u32) }
    }

    /// The reader's state.
    pub fn state(&self) -> State {
        match self.flag(0).load(Acquire) {
            0 => State::Absent,
            1 => State::Reads,
            _ => State::Closed,
        }
    }

    /// The reader states whether it reads the lane.
    pub fn set_state(&self, state: State) {
        self.flag(0).store(state as u32, Release);
    }

    /// The [`Sleep`] of the reader. The writer sets it to [`Sleep::Awake`] when it wakes the reader.
    pub fn reader_sleeps(&self) -> &AtomicU32 {
        self.flag(SLEEPS)
    }

    /// The [`Sleep`] of the writer until there is room. The reader sets it to [`Sleep::Awake`] when it wakes
    /// the writer.
    pub fn writer_sleeps(&self) -> &AtomicU32 {
        self.flag(WRITER_SLEEPS)
    }

    /// Whether the reader cannot read the writer's memory, a flag that the reader sets.
    pub fn lends_not(&self) -> &AtomicU32 {
        self.flag(LENDS_NOT)
    }

    /// The writer states where its cookies are, and from which number they are made.
    pub fn set_cookies(&self, address: u64, nonce: u64) {
        self.word(COOKIES).store(address, Relaxed);
        self.word(NONCE).store(nonce, Release);
    }

    /// Address and value of the cookie of the slot of that position.
    pub fn cookie(&self, position: u64) -> (u64, u64) {
        let nonce = self.word(NONCE).load(Acquire);
        let first = self.word(COOKIES).load(Relaxed);
        let address = first.wrapping_add(position % SLOTS * 8);
        (address, cookie(nonce, position))
    }

    /// The word that becomes `position + 1` when the slot of that position is written.
    pub fn number(&self, position: u64) -> &AtomicU64 {
        self.word(FIRST_SLOT + (position % SLOTS) as usize * 64)
    }

    /// The words of the slot of that position, if it is written.
    pub fn read(&self, position: u64) -> Option<Words> {
        if self.number(position).load(Acquire) != position + 1 {
            return None;
        }
        let first = FIRST_SLOT + (position % SLOTS) as usize * 64;
        Some(std::array::from_fn(|index| {
            self.word(first + 8 * (index + 1)).load(Relaxed)
        }))
    }

    /// Writes the slot of that position, which the reader has read in the round before.
    pub fn write(&self, position: u64, words: &Words) {
        let first = FIRST_SLOT + (position % SLOTS) as usize * 64;
        for (index, word) in words.iter().enumerate() {
            self.word(first + 8 * (index + 1)).store(*word, Relaxed);
        }
        self.number(position).store(position + 1, Release);
    }

    /// Copies a body to that place among the bodies. The caller has seen that it fits.
    pub fn write_body(&self, place: u64, body: &[u8]) {
        assert!(place + body.len() as u64 <= BODIES);
        let to = self.base + FIRST_BODY + place as usize;
        // SAFETY: the bytes are within the lane, which is mapped; `body` is memory of this process
        // and no part of a lane.
        unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), to as *mut u8, body.len()) }
    }

    /// Puts `len` bytes from that place among the bodies into their room. `false` if they are outside.
    pub fn read_body(&self, place: u64, len: usize, room: Room<'_>) -> bool {
        if place > BODIES || len as u64 > BODIES - place {
            return false;
        }
        let from = self.base + FIRST_BODY + place as usize;
        // SAFETY: the bytes are within the lane, which is mapped; the room is for as many, and no part of
        // a lane. If the other task writes them meanwhile, any bytes are bytes of its message.
        let filled = unsafe {
            room::fill(room, len, |to| {
                std::ptr::copy_nonoverlapping(from as *const u8, to, len);
                Ok::<(), Infallible>(())
            })
        };
        filled.is_ok()
    }

    /// Slots that the reader has read, the last chunk that it has taken, and its credit.
    pub fn progress(&self) -> (u64, u64, u64) {
        let tail = self.word(TAIL).load(Acquire);
        let words = [TAKEN, CREDIT].map(|word| self.word(word).load(Relaxed));
        (tail, words[0], words[1])
    }

    /// The word of the slots that the reader has read.
    pub fn tail(&self) -> &AtomicU64 {
        self.word(TAIL)
    }

    /// The word of the last chunk that the reader has taken.
    pub fn taken(&self) -> &AtomicU64 {
        self.word(TAKEN)
    }

    /// The reader states how far it is.
    pub fn set_progress(&self, tail: u64, taken: u64, credit: u64) {
        self.word(TAKEN).store(taken, Relaxed);
        self.word(CREDIT).store(credit, Relaxed);
        self.word(TAIL).store(tail, Release);
    }
}

/// The cookie of a slot: a value that no other process has at the same address.
pub(super) fn cookie(nonce: u64, position: u64) -> u64 {
    (nonce ^ position) | 1
}
