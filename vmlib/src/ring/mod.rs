//! Routes past the daemon: rings between two tasks of one host, and direct connections between tasks of
//! two hosts ([`direct`]). What follows is about rings.
//!
//! The daemon opens a ring when one of the two asks for it, after a few messages
//! ([`vm_endpoint::ring`] decides that, and which chunks go by the ring). Each task writes one lane of
//! the ring and reads the other one ([`lane`]). A sender makes a system call only if the receiver
//! sleeps. All memory is in one area, which is in no image ([`area`]).
//!
//! **No message waits for another call of its sender.** A sender writes a chunk, and then looks whether
//! the receiver still reads; if not, the chunk goes by the daemon as well. A receiver that closes says
//! so first, and then takes or keeps what was written. So every chunk of a send that has returned is
//! in a lane that its reader will read to the end, or is with the daemon.
//!
//! **Nobody sleeps through a message.** A reader that is about to sleep says so in each lane, and then
//! looks once more; a writer writes, and then looks whether the reader sleeps. A fence on both sides
//! keeps the two steps in order.
//!
//! **A ring without use is given up** by whichever of its tasks is in a call first. The other task
//! hears of it from the daemon, before any chunk that goes that way instead.

pub(crate) mod area;
mod direct;
#[cfg(test)]
mod direct_tests;
mod directs;
mod keyed;
pub(crate) mod lane;
mod lent;
mod reader;
mod room;
#[cfg(test)]
mod tests;
mod until;
mod unwritten;
mod watch;
mod way_out;
mod writer;

pub(crate) use area::{make_wake, wake_own};
pub(crate) use lent::admit_tasks;
pub(crate) use until::Until;
pub(crate) use watch::{NARROW, Watch};

use area::{Mapped, Use};
use directs::Directs;
use lane::{Lane, Sleep, State};
use reader::Reader;
use rustix::fd::OwnedFd;
use std::{collections::VecDeque, sync::atomic::Ordering::Acquire};
use vm_endpoint::{Endpoint, Received, RingRead, RingUse, Room, Time};
use vm_wire::{
    Frame, Tid, limits,
    task::{DirectDial, DirectOpen, RingClosed, RingOpen, RouteEnd},
};
use watch::Outgoing;
use way_out::WayOut;
use writer::Writer;

/// Chunks to one peer after which the daemon is asked for a ring. A shorter conversation is not worth the
/// memory.
pub(crate) const ASK_AFTER: u64 = 8;
/// Chunks to one peer that are sent between two looks at what it has taken. A look costs as much as
/// a message, because the peer writes that word with each chunk.
const LOOK_AFTER: u32 = 64;
/// Bytes of a chunk that is acknowledged before the next one is read.
const STATED_AT_ONCE: usize = 4 * 1024;

/// The ring to one peer.
#[derive(Debug)]
struct Ring {
    peer: Tid,
    id: u64,
    memory: Mapped,
    reader: Reader,
    writer: Writer,
    /// The endpoint knows that the peer reads.
    used: bool,
    /// Chunks that were sent since the last look at what the peer has taken.
    sent: u32,
    /// The last chunk that the peer had taken at the last look.
    taken: u64,
    /// The next chunk waits for earlier ones, which come by the daemon.
    early: bool,
    /// The use of the ring at the last look for rings without use.
    used_for: RingUse,
}

/// The rings and direct connections of a task.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    all: Vec<Ring>,
    directs: Directs,
    /// How often a freeze has closed rings, as far as this knows.
    closes: u32,
    /// When the next look for rings without use is due.
    idle_due: Time,
}

impl Rings {
    /// Whether there is no ring and no direct connection.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.directs.is_empty()
    }

    /// Makes a direct connection that the daemon has prepared.
    ///
    /// # Errors
    /// Why that is impossible.
    pub fn dial(
        &mut self,
        order: &DirectDial,
        endpoint: &mut Endpoint,
        now: Time,
        out: &mut VecDeque<Frame>,
    ) -> Result<(), RouteEnd> {
        self.directs.close(endpoint, now, order.peer, out);
        self.directs.dial(order, endpoint.me(), now)
    }

    /// Takes a direct connection that has come. `false` if that is impossible.
    pub fn accept(
        &mut self,
        open: &DirectOpen,
        socket: OwnedFd,
        endpoint: &mut Endpoint,
        now: Time,
        out: &mut VecDeque<Frame>,
    ) -> bool {
        self.directs.close(endpoint, now, open.peer, out);
        self.directs.accept(open, socket, endpoint)
    }

    /// Opens the ring that the daemon has made. `false` if it cannot be used here.
    pub fn open(&mut self, open: &RingOpen, fds: [OwnedFd; 3]) -> bool {
        let [memory, own_wake, peer_wake] = fds;
        area::set_wake(own_wake);
        let Ok(memory) = Mapped::map(memory, open.end, peer_wake) else {
            return false;
        };
        memory.incoming.set_state(State::Reads);
        self.all.retain(|ring| ring.peer != open.peer);
        self.all.push(Ring {
            peer: open.peer,
            id: open.id,
            reader: Reader::new(memory.incoming, open.pid),
            writer: Writer::new(memory.outgoing),
            memory,
            used: false,
            sent: 0,
            taken: 0,
            early: false,
            used_for: RingUse::default(),
        });
        true
    }

    /// The route past the daemon to a peer, for [`Endpoint::poll_send_by`]; it is brought up to date
    /// before.
    pub fn way_out<'a>(
        &'a mut self,
        endpoint: &mut Endpoint,
        peer: Tid,
        now: Time,
    ) -> Option<impl vm_endpoint::Ring + use<'a>> {
        let Some(ring) = self.all.iter_mut().find(|ring| ring.peer == peer) else {
            return self.directs.writer(peer).map(WayOut::Direct);
        };
        if !ring.used && ring.memory.outgoing.state() == State::Reads {
            ring.used = true;
            endpoint.ring_opened(peer);
        }
        ring.sent += 1;
        if ring.sent >= LOOK_AFTER {
            ring.look(endpoint, now);
        }
        ring.writer.wake = ring.memory.wake();
        Some(WayOut::Ring(&mut ring.writer))
    }

    /// States what was taken of chunks that came by the daemon.
    pub fn state_progress(&mut self, endpoint: &mut Endpoint) {
        for ring in &mut self.all {
            if endpoint.withholds(ring.peer) {
                ring.state_progress(endpoint);
            }
        }
    }

    /// The ring to a peer.
    fn to(&mut self, peer: Tid) -> Option<&mut Ring> {
        self.all.iter_mut().find(|ring| ring.peer == peer)
    }

    /// Whether there is an open direct connection to a peer.
    pub fn is_direct(&mut self, peer: Tid) -> bool {
        self.directs.writer(peer).is_some()
    }

    /// Whether a body is lent to a peer that has not read it yet, or a chunk is not written whole into a
    /// direct connection.
    pub fn is_lent(&mut self, peer: Tid) -> bool {
        self.to(peer).is_some_and(|ring| ring.is_lent()) || self.directs.unwritten(peer) > 0
    }

    /// The first chunk to a peer that may be lent.
    pub fn first_lent(&mut self, peer: Tid) -> u64 {
        self.directs.unwritten(peer).max(1)
    }

    /// Whether a peer will not read what was lent to it: its ring is closed, or the system refuses it.
    pub fn is_loan_lost(&mut self, peer: Tid) -> bool {
        match self.to(peer) {
            Some(ring) => ring.is_loan_refused(),
            None => !self.is_direct(peer),
        }
    }

    /// Nothing is lent to a peer any more: its chunks went by the daemon.
    pub fn end_loan(&mut self, peer: Tid) {
        if let Some(ring) = self.to(peer) {
            ring.writer.lent = 0;
        }
        self.directs.rest_went_by_daemon(peer);
    }

    /// Looks what the peers have taken, and writes on what is half written.
    pub fn look(&mut self, endpoint: &mut Endpoint, now: Time) {
        for ring in &mut self.all {
            ring.look(endpoint, now);
        }
        self.directs.flush();
    }

    /// Sends the acknowledgements that are due on direct connections.
    pub fn acknowledge(&mut self, endpoint: &mut Endpoint, now: Time) {
        self.directs.acknowledge(endpoint, now);
    }

    /// Takes all that has come by direct connections, up to a message that `until` names. Nothing is
    /// taken while the inbox is full.
    pub fn read_directs(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        until: Until<'_>,
    ) -> Option<Received> {
        self.directs.read(endpoint, now, until)
    }

    /// Takes all chunks that were written into rings, up to a message that `until` names. Nothing is
    /// taken while the inbox is full.
    pub fn read(&mut self, endpoint: &mut Endpoint, until: Until<'_>) -> Option<Received> {
        for ring in &mut self.all {
            if endpoint.inbox_full().is_some() {
                return None;
            }
            let found = ring.read(endpoint, until);
            if found.is_some() || until.has_landed(endpoint) {
                return found;
            }
        }
        None
    }

    /// Takes all chunks that a peer has written, even if the inbox is full: the peer has ended. Whether
    /// the number of its last chunk is `known`.
    pub fn read_last(&mut self, endpoint: &mut Endpoint, now: Time, peer: Tid, known: bool) {
        if let Some(ring) = self.to(peer) {
            ring.read(endpoint, Until::Empty);
        }
        self.directs.read_last(endpoint, now, peer, known);
    }

    /// Closes the ring or direct connection to a peer, if it is that one: the peer does not read any more,
    /// and all that it has written is taken.
    pub fn close(
        &mut self,
        endpoint: &mut Endpoint,
        RingClosed { peer, id, .. }: RingClosed,
        now: Time,
        out: &mut VecDeque<Frame>,
    ) {
        let is_ring = |ring: &Ring| (ring.peer, ring.id) == (peer, id);
        let Some(index) = self.all.iter().position(is_ring) else {
            if self.directs.has(peer, id) {
                self.directs.close(endpoint, now, peer, out);
            }
            return;
        };
        let mut ring = self.all.swap_remove(index);
        let lends = ring.is_lent();
        ring.close(endpoint, now);
        if lends {
            // A peer that has closed its end does not read this task's memory any more.
            endpoint.resend_by_daemon(now, peer, 1, out);
        }
    }

    /// Forgets direct connections that have ended, and sends again what they may have lost. Returns those
    /// that the daemon does not know of.
    pub fn settle(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        out: &mut VecDeque<Frame>,
    ) -> Vec<RingClosed> {
        self.directs.settle(endpoint, now, out)
    }

    /// Rings without use are not looked for any more.
    #[cfg(test)]
    pub fn keep(&mut self) {
        self.idle_due = Time(u64::MAX);
    }

    /// When [`Rings::close_idle`] or [`Rings::settle`] is due.
    pub fn due(&self) -> Option<Time> {
        let due = (!self.is_empty()).then_some(self.idle_due);
        self.directs.due().into_iter().chain(due).min()
    }

    /// Closes the rings that were unused for long, and to whose peers nothing `is_under_way`. Returns
    /// them, for the daemon to be told.
    pub fn close_idle(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        is_under_way: impl Fn(Tid) -> bool,
    ) -> Vec<RingClosed> {
        if self.idle_due > now {
            return Vec::new();
        }
        self.idle_due = now + limits::RING_IDLE;
        let directs = self.directs.close_idle(endpoint, now, &is_under_way);
        let is_idle = |ring: &mut Ring| ring.is_idle(endpoint, now) && !is_under_way(ring.peer);
        let idle: Vec<Ring> = self.all.extract_if(.., is_idle).collect();
        let close = |mut ring: Ring| {
            ring.close(endpoint, now);
            RingClosed {
                peer: ring.peer,
                id: ring.id,
                why: RouteEnd::GivenUp,
            }
        };
        idle.into_iter().map(close).chain(directs).collect()
    }

    /// Gives up all direct connections, because the task becomes portable.
    pub fn give_up_directs(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        out: &mut VecDeque<Frame>,
    ) {
        self.directs.give_up_all(endpoint, now, out);
    }

    /// Closes all rings and direct connections, because the task leaves.
    pub fn close_all(&mut self, endpoint: &mut Endpoint, now: Time) {
        self.directs.close_all(endpoint, now);
        for mut ring in std::mem::take(&mut self.all) {
            ring.close(endpoint, now);
        }
    }

    /// Takes what a freeze has kept of rings that it has closed. In a child of the user's program,
    /// forgets all rings.
    pub fn after_freeze(&mut self, endpoint: &mut Endpoint, out: &mut VecDeque<Frame>) {
        if !area::is_own() {
            self.directs.forget(endpoint);
            // The memory is not mapped in a child, and the descriptors are its parent's.
            std::mem::take(&mut self.all).into_iter().for_each(|ring| {
                endpoint.ring_closed(ring.peer);
                std::mem::forget(ring);
            });
            return;
        }
        self.directs.after_freeze(endpoint, out);
        let closes = area::closes();
        if closes == self.closes {
            return;
        }
        self.closes = closes;
        let is_closed = |ring: &mut Ring| ring.memory.holds() != Use::Open;
        for mut ring in self.all.extract_if(.., is_closed) {
            if ring.memory.holds() == Use::Kept {
                ring.reader.lane = ring.memory.kept();
                ring.reader.pid = None;
                ring.read(endpoint, Until::Empty);
            }
            endpoint.ring_closed(ring.peer);
        }
    }

    /// Whether frames of direct connections were read from their sockets and not looked at, and may be
    /// now. No socket tells of them.
    pub fn have_more(&self, endpoint: &Endpoint) -> bool {
        self.directs.have_more() && endpoint.inbox_full().is_none()
    }

    /// The peers of direct connections that are closed, and whose chunks were not sent again yet; for
    /// signal handlers.
    pub fn lost(&self) -> impl Iterator<Item = Tid> {
        self.directs.lost()
    }

    /// Makes `watch` watch the lanes with new chunks if the wait `reads` them, and the room in lanes to
    /// peers to which a send is blocked. `only`: the peer whose messages the wait is for.
    pub fn watch(
        &self,
        watch: &mut Watch,
        reads: bool,
        only: Option<Tid>,
        is_blocked: impl Fn(Tid) -> bool,
    ) {
        watch.clear();
        self.directs.watch(watch, reads);
        for ring in &self.all {
            if reads && !ring.early && !ring.reader.is_broken() {
                let only = only == Some(ring.peer);
                watch.incoming(ring.memory.incoming, ring.reader.tail, only);
            }
            if is_blocked(ring.peer) {
                watch.outgoing(Outgoing {
                    lane: ring.memory.outgoing,
                    tail: ring.writer.tail(),
                    taken: ring.taken,
                    lends: ring.is_lent(),
                });
            }
        }
    }
}

impl Ring {
    /// Looks what the peer has taken.
    fn look(&mut self, endpoint: &mut Endpoint, now: Time) {
        self.sent = 0;
        self.writer.look();
        let (_, taken, credit) = self.memory.outgoing.progress();
        self.taken = taken;
        endpoint.ring_acknowledged(now, self.peer, taken, credit);
    }

    /// Takes all chunks that the peer has written, up to a message that `until` names.
    fn read(&mut self, endpoint: &mut Endpoint, until: Until<'_>) -> Option<Received> {
        let mut found = None;
        let mut stated = self.reader.tail;
        self.early = false;
        while found.is_none()
            && !until.has_landed(endpoint)
            && let Some(slot) = self.reader.peek(self.peer, endpoint.me())
        {
            let fill = |room: Room<'_>| self.reader.fill(&slot, room);
            match endpoint.read_ring(&slot.header, slot.len, until.filter(), fill) {
                RingRead::Taken(message) => found = message,
                RingRead::Early => {
                    self.early = true;
                    break;
                }
                RingRead::Unread => {
                    self.early = true;
                    // The writer that waits for this chunk sends it by the daemon.
                    let lane = self.memory.incoming;
                    writer::wake_if(lane.writer_sleeps(), Sleep::UntilAny, self.memory.wake());
                    break;
                }
            }
            self.reader.tail += 1;
            // The sender of a long message waits for each of its chunks.
            if slot.len >= STATED_AT_ONCE {
                self.state_progress(endpoint);
                stated = self.reader.tail;
            }
        }
        if self.reader.tail != stated {
            self.state_progress(endpoint);
        }
        found
    }

    /// States in the lane what was taken, and wakes a peer that waits for that.
    fn state_progress(&mut self, endpoint: &mut Endpoint) {
        self.memory.note_tail(self.reader.tail);
        let (taken, credit) = endpoint.ring_ack(self.peer);
        let lane: Lane = self.memory.incoming;
        lane.set_progress(self.reader.tail, taken, credit);
        writer::wake_if(lane.writer_sleeps(), Sleep::UntilAny, self.memory.wake());
    }

    fn close(&mut self, endpoint: &mut Endpoint, now: Time) {
        self.memory.incoming.set_state(State::Closed);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.read(endpoint, Until::Empty);
        self.look(endpoint, now);
        endpoint.ring_closed(self.peer);
    }

    /// Whether the ring was unused for long, and no chunk waits in it.
    fn is_idle(&mut self, endpoint: &Endpoint, now: Time) -> bool {
        let tail = self.reader.tail;
        let is_unused = self.used_for.is_idle(now, [self.writer.head(), tail]);
        let has_chunk = self.memory.incoming.number(tail).load(Acquire) == tail + 1;
        is_unused && !has_chunk && !self.is_lent() && endpoint.is_settled(self.peer)
    }

    /// Whether the peer has not taken yet a body that was lent to it.
    fn is_lent(&self) -> bool {
        self.writer.lent > self.taken
    }

    /// Whether a body is lent to the peer, and the peer says that it cannot read it.
    fn is_loan_refused(&self) -> bool {
        self.is_lent() && self.memory.outgoing.lends_not().load(Acquire) != 0
    }
}
