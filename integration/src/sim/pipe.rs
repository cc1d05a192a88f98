//! A direct connection between two simulated tasks: a queue for each direction.
//!
//! A connection that is closed loses an arbitrary tail of what is under way.

use super::random::Random;
use std::{cell::RefCell, collections::VecDeque, rc::Rc};
use vm_endpoint::{Ring, RingError};
use vm_wire::{Frame, limits};

/// Frames that the kernels of both hosts hold in one direction.
const ROOM: usize = 12;

/// One direction.
#[derive(Debug, Default)]
pub struct Stream {
    /// The frames that were written and not read, oldest first.
    pub frames: VecDeque<Frame>,
    /// The writer has closed its end: nothing follows.
    pub ended: bool,
    /// The reader has closed its end.
    pub unread: bool,
}

impl Ring for &mut Stream {
    fn chunk_max(&self, _: usize) -> usize {
        limits::CHUNK_MAX / 2
    }

    fn push(&mut self, chunk: &Frame) -> Result<(), RingError> {
        if self.ended {
            return Err(RingError::Closed);
        }
        if self.frames.len() >= ROOM {
            return Err(RingError::Full);
        }
        // The writer does not hear at once that nobody reads.
        if !self.unread {
            self.frames.push_back(chunk.clone());
        }
        Ok(())
    }

    fn carries_acks(&self) -> bool {
        true
    }
}

/// Both directions: the one that the task writes that dials, then the other one.
pub type Pipe = Rc<RefCell<[Stream; 2]>>;

/// The end of a connection that a task has.
#[derive(Clone)]
pub struct PipeEnd {
    /// Number of the connection.
    pub id: u64,
    /// Which stream the task writes: 0 or 1.
    pub end: usize,
    /// Both streams.
    pub pipe: Pipe,
    /// The peer has the connection, too.
    pub open: bool,
}

impl PipeEnd {
    /// Closes this end. What it has written may be lost, from an arbitrary place on.
    pub fn close(&self, random: &mut Random) {
        let streams = &mut *self.pipe.borrow_mut();
        let written = &mut streams[self.end];
        let arrives = random.below(written.frames.len() as u64 + 1) as usize;
        written.frames.truncate(arrives);
        written.ended = true;
        streams[1 - self.end].unread = true;
        streams[1 - self.end].frames.clear();
    }

    /// Breaks the connection: both ends find that it has ended.
    pub fn break_off(&self, random: &mut Random) {
        for stream in self.pipe.borrow_mut().iter_mut() {
            let arrives = random.below(stream.frames.len() as u64 + 1) as usize;
            stream.frames.truncate(arrives);
            stream.ended = true;
            stream.unread = true;
        }
    }
}

/// Counts of the direct connections of a run, or of several runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectCounts {
    /// Connections that both tasks had.
    pub opened: u64,
    /// Sends that used a connection.
    pub sends: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Connections that a task has closed.
    pub given_up: u64,
    /// Interruptions of a task whose connection was closed.
    pub nudges: u64,
}

impl std::ops::AddAssign for DirectCounts {
    fn add_assign(&mut self, other: Self) {
        self.opened += other.opened;
        self.sends += other.sends;
        self.broken += other.broken;
        self.given_up += other.given_up;
        self.nudges += other.nudges;
    }
}
