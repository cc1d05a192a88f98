//! What the parts of the event loop share: who is ready, who has something to write, what came in.

use crate::{image::transfer::Helpers, net::queue::Room};
use mio::{Interest, Registry, Token, event::Source as Register};
use rustix::process::Pid;
use std::{collections::VecDeque, io};
use vm_machine::{ConnId, Input, Time};
use vm_wire::{Tid, agreed::ExitStatus, task::Failed};

/// Edge-triggered, so that only a local socket's interest is ever changed.
const INTERESTS: Interest = Interest::READABLE.add(Interest::WRITABLE);
/// Bits of a token that hold the place in its part's table.
const PLACE_BITS: u32 = 32;
/// Kinds of sources.
const PARTS: usize = 9;

/// Something that can be ready: a fixed one, or a part of the daemon and a place in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A signal came.
    Signals,
    /// A thread has finished a job.
    Jobs,
    /// The UNIX socket.
    LocalListener,
    /// The TCP port.
    LinkListener,
    /// A task, a console, or what has not said yet which.
    Local(usize),
    /// A connection to another daemon.
    Link(usize),
    /// A descriptor of a task's process.
    Process(usize),
    /// The interrupt socket of a task.
    Interrupt(usize),
    /// The process of a coordinator.
    Coordinator(usize),
}

impl Source {
    /// The token by which the system names it.
    pub fn token(self) -> Token {
        let (part, place) = self.split();
        Token(part << PLACE_BITS | place)
    }

    fn split(self) -> (usize, usize) {
        match self {
            Source::Signals => (0, 0),
            Source::Jobs => (1, 0),
            Source::LocalListener => (2, 0),
            Source::LinkListener => (3, 0),
            Source::Local(place) => (4, place),
            Source::Link(place) => (5, place),
            Source::Process(place) => (6, place),
            Source::Interrupt(place) => (7, place),
            Source::Coordinator(place) => (8, place),
        }
    }

    /// What [`Source::token`] named.
    pub fn from_token(token: Token) -> Source {
        let place = token.0 & ((1 << PLACE_BITS) - 1);
        match token.0 >> PLACE_BITS {
            0 => Source::Signals,
            1 => Source::Jobs,
            2 => Source::LocalListener,
            3 => Source::LinkListener,
            4 => Source::Local(place),
            5 => Source::Link(place),
            6 => Source::Process(place),
            7 => Source::Interrupt(place),
            _ => Source::Coordinator(place),
        }
    }
}

/// Sources that are ready, each once, in the order in which they became so.
#[derive(Debug, Default)]
pub struct Ready {
    queue: VecDeque<Source>,
    /// By part and place: whether it is in the queue.
    queued: [Vec<bool>; PARTS],
}

impl Ready {
    /// Puts a source at the end, unless it is in the queue.
    pub fn push(&mut self, source: Source) {
        let queued = self.queued(source);
        if !std::mem::replace(queued, true) {
            self.queue.push_back(source);
        }
    }

    /// Takes the first source.
    pub fn pop(&mut self) -> Option<Source> {
        let source = self.queue.pop_front()?;
        *self.queued(source) = false;
        Some(source)
    }

    /// Whether nothing is ready.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn queued(&mut self, source: Source) -> &mut bool {
        let (part, place) = source.split();
        let places = &mut self.queued[part];
        if places.len() <= place {
            places.resize(place + 1, false);
        }
        &mut places[place]
    }
}

/// The shared part of the event loop.
#[derive(Debug)]
pub struct Context {
    registry: Registry,
    /// Bytes that wait in all queues.
    pub room: Room,
    /// What came in and the state machine has not seen yet.
    pub inbox: VecDeque<Input>,
    /// Who has something to be read, or may have.
    pub ready: Ready,
    /// Who has something to be written that the socket may take.
    pub dirty: Vec<Source>,
    /// Processes that have ended; what they sent before is still to be read.
    pub ended: Vec<(Tid, ExitStatus)>,
    /// Children that have ended and are no task's process.
    pub strangers: Vec<(Pid, ExitStatus)>,
    /// Starts the processes that carry images.
    pub helpers: Helpers,
    /// Processes that become tasks that were saved, or why there is none.
    pub brought_back: Vec<(Tid, Result<Pid, Failed>)>,
    /// When this turn began, or later.
    pub now: Time,
    conns: u64,
}

impl Context {
    /// Nothing is ready yet.
    pub fn new(registry: Registry, helpers: Helpers, now: Time) -> Context {
        Context {
            registry,
            room: Room::default(),
            inbox: VecDeque::new(),
            ready: Ready::default(),
            ended: Vec::new(),
            strangers: Vec::new(),
            helpers,
            brought_back: Vec::new(),
            dirty: Vec::new(),
            now,
            conns: 0,
        }
    }

    /// A number for a connection, never used before.
    pub fn conn(&mut self) -> ConnId {
        self.conns += 1;
        ConnId(self.conns)
    }

    /// From now on `socket` tells when it can be read or written.
    ///
    /// # Errors
    /// What the system says.
    pub fn register(&self, socket: &mut impl Register, source: Source) -> io::Result<()> {
        self.registry.register(socket, source.token(), INTERESTS)
    }

    /// From now on a `socket` that was only read tells, or tells no more, when it has room too.
    ///
    /// # Errors
    /// What the system says.
    pub fn await_room(
        &self,
        socket: &mut impl Register,
        source: Source,
        wanted: bool,
    ) -> io::Result<()> {
        let interests = if wanted {
            INTERESTS
        } else {
            Interest::READABLE
        };
        self.registry.reregister(socket, source.token(), interests)
    }

    /// It tells no more.
    ///
    /// # Errors
    /// What the system says.
    pub fn deregister(&self, socket: &mut impl Register) -> io::Result<()> {
        self.registry.deregister(socket)
    }

    /// Like [`Context::register`], for what is only read.
    ///
    /// # Errors
    /// What the system says.
    pub fn register_readable(&self, socket: &mut impl Register, source: Source) -> io::Result<()> {
        self.registry
            .register(socket, source.token(), Interest::READABLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_ready_once_however_often_it_is_named() {
        let mut ready = Ready::default();
        for _ in 0..3 {
            ready.push(Source::Local(9));
            ready.push(Source::Link(9));
        }
        assert_eq!(ready.pop(), Some(Source::Local(9)));
        ready.push(Source::Local(9));
        assert_eq!(ready.pop(), Some(Source::Link(9)));
        assert_eq!(ready.pop(), Some(Source::Local(9)));
        assert!(ready.pop().is_none() && ready.is_empty());
    }

    #[test]
    fn a_token_names_its_source() {
        for source in [
            Source::Signals,
            Source::Jobs,
            Source::LocalListener,
            Source::LinkListener,
            Source::Local(0),
            Source::Link(70_000),
            Source::Process(u32::MAX as usize),
            Source::Interrupt(3),
        ] {
            assert_eq!(Source::from_token(source.token()), source);
        }
    }
}
