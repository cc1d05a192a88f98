//! The memory of a ring between two simulated tasks: queues in place of shared memory.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};
use vm_endpoint::{Ring, RingError};
use vm_wire::{Frame, limits};

/// Chunks that a lane holds.
const ROOM: usize = 12;

/// The state of a lane, as its reader states it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reader {
    /// The reader does not have the memory yet.
    #[default]
    Absent,
    /// The reader reads the lane.
    Reads,
    /// The reader does not read the lane any more.
    Closed,
}

/// One direction of a ring.
#[derive(Debug, Default)]
pub struct Lane {
    /// Whether it is read.
    pub reader: Reader,
    /// The chunks that were written and not read, oldest first.
    pub chunks: VecDeque<Frame>,
    /// The last chunk that the reader has taken.
    pub taken: u64,
    /// The last chunk that the writer has credit for.
    pub credit: u64,
}

impl Ring for &mut Lane {
    fn chunk_max(&self, _: usize) -> usize {
        limits::CHUNK_MAX / 4
    }

    fn push(&mut self, chunk: &Frame) -> Result<(), RingError> {
        if self.reader != Reader::Reads {
            return Err(RingError::Closed);
        }
        if self.chunks.len() >= ROOM {
            return Err(RingError::Full);
        }
        self.chunks.push_back(chunk.clone());
        Ok(())
    }
}

/// Counts of the rings of a run, or of several runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct RingCounts {
    /// Rings that were opened.
    pub opened: u64,
    /// Sends that used a ring.
    pub sends: u64,
    /// Chunks that a freeze has taken from a ring.
    pub kept: u64,
    /// Rings that a task has closed.
    pub given_up: u64,
}

impl std::ops::AddAssign for RingCounts {
    fn add_assign(&mut self, other: Self) {
        self.opened += other.opened;
        self.sends += other.sends;
        self.kept += other.kept;
        self.given_up += other.given_up;
    }
}

/// The memory of a ring, which its two tasks share: the lane that each end writes.
pub type Memory = Rc<RefCell<[Lane; 2]>>;

/// The end of a ring that a task has.
#[derive(Clone)]
pub struct End {
    /// Number of the ring.
    pub id: u64,
    /// Which lane the task writes: 0 or 1.
    pub end: usize,
    /// The memory.
    pub memory: Memory,
    /// The endpoint knows that the peer reads.
    pub used: bool,
}
