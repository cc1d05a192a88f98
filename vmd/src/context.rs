//! State that the parts of the event loop share: ready sources, sources with bytes to write, inputs
//! of the state machine.

use crate::{image::transfer::Helpers, net::queue::Room};
use mio::{Interest, Registry, Token, event::Source as Register};
use rustix::process::Pid;
use std::{collections::VecDeque, io};
use vm_machine::{ConnId, Input, Time};
use vm_wire::{Tid, agreed::ExitStatus, task::Failed};

/// The interest of most sources. They are edge-triggered, so only a local socket's interest is ever
/// changed.
const INTERESTS: Interest = Interest::READABLE.add(Interest::WRITABLE);
/// Bits of a token that hold the source's place in its part's table.
const PLACE_BITS: u32 = 32;
/// Number of kinds of sources.
const PARTS: usize = 9;

/// A source of events: a fixed one, or an entry in the table of a part of the daemon.
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
    /// The connection of a task, of a console, or of a peer that has not said yet which it is.
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
    /// The token under which the source is registered with the system.
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

    /// The source that [`Source::token`] named.
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

/// Sources that are ready, each once, in the order in which they became ready.
#[derive(Debug, Default)]
pub struct Ready {
    queue: VecDeque<Source>,
    /// By part and place: whether the source is in the queue.
    queued: [Vec<bool>; PARTS],
}

impl Ready {
    /// Puts a source at the end of the queue, unless it is in the queue already.
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

/// The state that the parts of the event loop share.
#[derive(Debug)]
pub struct Context {
    registry: Registry,
    /// Bytes that wait in all send queues.
    pub room: Room,
    /// Inputs that the state machine has not seen yet.
    pub inbox: VecDeque<Input>,
    /// Sources that have something to read, or may have.
    pub ready: Ready,
    /// Sources that have something to write and whose socket may take it.
    pub dirty: Vec<Source>,
    /// Processes of tasks that have ended. What they sent before their end is still to be read.
    pub ended: Vec<(Tid, ExitStatus)>,
    /// Children that have ended and are not the process of a task.
    pub strangers: Vec<(Pid, ExitStatus)>,
    /// Starts the transfer processes.
    pub helpers: Helpers,
    /// Results of restores: the process that becomes the task, or the reason why there is none.
    pub brought_back: Vec<(Tid, Result<Pid, Failed>)>,
    /// A time between the start of this turn and now.
    pub now: Time,
    conns: u64,
}

impl Context {
    /// A context in which nothing is ready.
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

    /// A new number for a connection.
    pub fn conn(&mut self) -> ConnId {
        self.conns += 1;
        ConnId(self.conns)
    }

    /// Registers `socket`: its events report when it can be read or written.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn register(&self, socket: &mut impl Register, source: Source) -> io::Result<()> {
        self.registry.register(socket, source.token(), INTERESTS)
    }

    /// Begins or ends events that report when `socket` has room for more bytes. The socket was
    /// registered with [`Context::register_readable`].
    ///
    /// # Errors
    /// The error of the system call.
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

    /// Ends the events of `socket`.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn deregister(&self, socket: &mut impl Register) -> io::Result<()> {
        self.registry.deregister(socket)
    }

    /// Like [`Context::register`], for a socket or descriptor that is only read.
    ///
    /// # Errors
    /// The error of the system call.
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
