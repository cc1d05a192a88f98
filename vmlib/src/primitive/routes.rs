//! The routes past the daemon: rings and direct connections, which the daemon opens and closes.

use super::{Core, Phase, Poller, Shared};
use crate::{
    clock::recent,
    freeze,
    image::Section,
    link::{Sockets, write_in_handler},
    orders::is_portable,
    resend::{self, Again, Retains},
    ring::{self, Until, Watch},
};
use std::sync::TryLockError;
use vm_endpoint::{Received, Time};
use vm_wire::{
    CodecError, Frame, Header, Message, Op, Tid,
    task::{DirectDial, DirectOpen, RingClosed, RingOpen, RouteEnd},
};

impl Retains for Shared {
    fn resend(&self, again: Again) -> bool {
        let _section = Section::enter();
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        core.resend_in_handler(&self.sockets, again);
        true
    }
}

impl Core {
    /// Opens or closes a route, as the daemon says.
    pub(super) fn heed_route(
        &mut self,
        frame: Frame,
        sockets: &Sockets,
        now: Time,
    ) -> Result<(), CodecError> {
        match frame.header.op {
            Op::RingOpen => self.open_ring(&RingOpen::read(&frame)?, sockets),
            Op::RingClosed => self.close_ring(&RingClosed::read(&frame)?, now),
            Op::DirectDial => self.dial(&read_secret(frame)?, now),
            _ => self.accept(&read_secret(frame)?, now),
        }
        Ok(())
    }

    /// The lanes that a waiting thread watches: none unless the thread polls.
    pub(super) fn watch_rings(&mut self, polls: bool) -> Watch {
        let mut watch = match polls {
            true => std::mem::take(&mut self.watch),
            false => return Watch::default(),
        };
        let reads = self.endpoint.inbox_full().is_none();
        self.rings
            .watch(&mut watch, reads, self.only.take(), |peer| {
                self.busy.contains(&peer)
            });
        watch
    }

    /// The state of the thread that is about to poll, and to watch that.
    pub(super) fn poller_of(&self, watch: &Watch) -> Poller {
        if !self.rings.is_empty() && self.endpoint.inbox_full().is_some() {
            ring::make_wake();
            return Poller::Full;
        }
        match watch.is_narrow() {
            true => Poller::Narrow,
            false => Poller::Wide,
        }
    }

    /// Whether the thread that polls leaves messages in rings and connections, for which there is room
    /// now. It may wait for something else, and the other threads wait for those messages.
    pub(super) fn is_polled_too_little(&self) -> bool {
        self.poller == Poller::Full && self.endpoint.inbox_full().is_none()
    }

    /// Whether a message has come since a thread began to poll, which has not come by its sockets.
    pub(super) fn has_news_for_poller(&self) -> bool {
        self.poller != Poller::Nobody && self.endpoint.news() != self.polled_news
    }

    /// Whether a thread polls, and nothing is due.
    #[cfg(test)]
    pub(crate) fn is_polled(&self) -> bool {
        self.poller != Poller::Nobody && self.endpoint.deadline().is_none()
    }

    pub(super) fn rings_after_freeze(&mut self) {
        self.rings.after_freeze(&mut self.endpoint, &mut self.out);
    }

    /// Takes all chunks that are in rings or have come by direct connections, up to a message that
    /// `until` names. While a thread polls, it alone reads the connections, as the data socket.
    pub(crate) fn read_rings(&mut self, until: Until<'_>) -> Option<Received> {
        if self.rings.is_empty() {
            return None;
        }
        let found = self.rings.read(&mut self.endpoint, until);
        let is_over = found.is_some() || until.has_landed(&self.endpoint);
        if is_over || self.poller != Poller::Nobody {
            return found;
        }
        self.rings.read_directs(&mut self.endpoint, recent(), until)
    }

    /// Makes a direct connection that the daemon has prepared.
    fn dial(&mut self, order: &DirectDial, now: Time) {
        let (endpoint, out) = (&mut self.endpoint, &mut self.out);
        let made = match self.phase {
            Phase::Running if !is_portable() => self.rings.dial(order, endpoint, now, out),
            _ => Err(RouteEnd::GivenUp),
        };
        if let Err(why) = made {
            let DirectDial { peer, id, .. } = *order;
            self.say(RingClosed { peer, id, why }.frame());
        }
    }

    /// A direct connection has come.
    fn accept(&mut self, open: &DirectOpen, now: Time) {
        let socket = self.incoming.descriptors();
        let fits = matches!(self.phase, Phase::Running) && !is_portable();
        let (endpoint, out) = (&mut self.endpoint, &mut self.out);
        let accepted = socket
            .filter(|_| fits)
            .is_some_and(|[socket]| self.rings.accept(open, socket, endpoint, now, out));
        if !accepted {
            self.give_up(open.peer, open.id);
        }
    }

    /// The task has become portable, and has no direct connection any more. The daemon forgets them when
    /// it hears that the task is portable.
    pub(crate) fn give_up_directs(&mut self, now: Time) {
        let (endpoint, out) = (&mut self.endpoint, &mut self.out);
        self.rings.give_up_directs(endpoint, now, out);
    }

    /// Sends again what direct connections that have ended may have lost.
    pub(super) fn settle_directs(&mut self, now: Time) {
        if self.rings.is_empty() {
            return;
        }
        let closed = self.rings.settle(&mut self.endpoint, now, &mut self.out);
        for direct in closed {
            self.say(direct.frame());
        }
    }

    /// See [`Retains::resend`].
    fn resend_in_handler(&mut self, sockets: &Sockets, again: Again) {
        resend::begin();
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let mut write = |header: &Header, body: &[u8]| {
            write_in_handler(&sockets.data, header, body);
        };
        match again {
            Again::Lost => {
                self.outgoing.write_in_handler(&sockets.data);
                for peer in self.rings.lost() {
                    self.endpoint.resend_in_handler(peer, &mut write);
                }
            }
            // The first call since then has sent all retained chunks again.
            Again::All if self.renewals == freeze::renewals() => {}
            // A half written frame of the outgoing queue went into the socket of another process.
            Again::All => {
                self.endpoint.set_generation(freeze::generation());
                self.endpoint.resend_all_in_handler(&mut write);
            }
        }
    }

    /// A ring was opened by the daemon.
    fn open_ring(&mut self, open: &RingOpen, sockets: &Sockets) {
        ring::admit_tasks(&sockets.data);
        let fds = self.incoming.descriptors();
        let fits = matches!(self.phase, Phase::Running);
        if !fits || !fds.is_some_and(|fds| self.rings.open(open, fds)) {
            self.give_up(open.peer, open.id);
        }
    }

    /// Tells the daemon that a route cannot be used.
    fn give_up(&mut self, peer: Tid, id: u64) {
        let why = RouteEnd::GivenUp;
        self.say(RingClosed { peer, id, why }.frame());
    }

    /// Closes rings that were unused for long. The peers hear of it from the daemon.
    pub(super) fn close_idle_rings(&mut self, now: Time) {
        let is_under_way = |peer| self.busy.contains(&peer);
        let closed = self.rings.close_idle(&mut self.endpoint, now, is_under_way);
        for ring in closed {
            self.say(ring.frame());
        }
    }

    fn close_ring(&mut self, closed: &RingClosed, now: Time) {
        let (endpoint, out) = (&mut self.endpoint, &mut self.out);
        self.rings.close(endpoint, closed.clone(), now, out);
    }
}

/// Reads a frame with a secret, whose bytes are not left in memory.
fn read_secret<T: Message>(frame: Frame) -> Result<T, CodecError> {
    let read = T::read(&frame);
    if let Ok(mut body) = frame.body.try_into_mut() {
        body.fill(0);
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::TaskError, primitive::Attempt, tests::process::run_alone};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::{
        collections::VecDeque,
        os::fd::OwnedFd,
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        thread,
        time::{Duration, Instant},
    };
    use vm_endpoint::{Filter, Time};
    use vm_wire::{HostId, MachineId, direct::Secret, task::Welcome};

    fn tid(host: u16) -> Tid {
        Tid::new(MachineId::from_bits(1), HostId(host), 1)
    }

    /// Two sockets that are connected.
    fn pair(kind: SocketType) -> [OwnedFd; 2] {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, kind, flags, None).expect("a pair");
        [pair.0, pair.1]
    }

    /// A task with room for few messages, and the daemon's ends of its sockets.
    fn task() -> (Shared, [OwnedFd; 2]) {
        let welcome = Welcome {
            version: vm_wire::version::CURRENT,
            machine: MachineId::from_bits(1),
            host: HostId(1),
            tid: tid(1),
            parent: Tid::NONE,
            app: tid(1),
            index: 0,
            epoch: 0,
            generation: 0,
            incarnation: 1,
            window_bytes: 1 << 20,
            inbox_bytes: 1,
        };
        let [data, daemon] = pair(SocketType::STREAM);
        let [interrupt, orders] = pair(SocketType::SEQPACKET);
        let shared = Shared::new(welcome, Sockets::new(data, interrupt));
        (shared, [daemon, orders])
    }

    #[test]
    fn a_thread_that_polls_for_a_reply_looks_at_connections_again_when_the_inbox_has_room() {
        const NAME: &str = concat!(
            "primitive::routes::tests::",
            "a_thread_that_polls_for_a_reply_looks_at_connections_again_when_the_inbox_has_room"
        );
        if run_alone(NAME) {
            return;
        }
        let (shared, _daemon) = task();
        let [socket, _peer] = pair(SocketType::STREAM);
        let mut core = shared.lock();
        let open = DirectOpen {
            peer: tid(2),
            id: 0x00F0_1100,
            secret: Secret::new([9; 32]),
            sealed: false,
        };
        let mut out = VecDeque::new();
        let Core {
            rings, endpoint, ..
        } = &mut *core;
        assert!(rings.accept(&open, socket, endpoint, recent(), &mut out));
        core.rings.keep();
        let mut header = Header::new(Op::Data);
        (header.seq, header.total) = (1, 8);
        let chunk = Frame::new(header, vec![1; 8].into()).between(tid(2), tid(1));
        core.endpoint.handle(recent(), chunk, &mut out);
        assert!(core.endpoint.inbox_full().is_some());
        drop(core);

        let is_answered = AtomicBool::new(false);
        let polls = |wanted| is_soon(&shared, wanted);
        let has_looked = thread::scope(|scope| {
            scope.spawn(|| {
                let wait = |_: &mut Core, _| match is_answered.load(SeqCst) {
                    true => Ok::<_, TaskError>(Attempt::Done(())),
                    false => Ok(Attempt::Wait(None)),
                };
                shared.run(wait).expect("the task runs");
            });
            let is_full = polls(Poller::Full);
            let take = |core: &mut Core, now: Time| {
                let taken = core.endpoint.take(now, &Filter::ANY, &mut core.out);
                Ok::<_, TaskError>(Attempt::Done(taken.is_some()))
            };
            let is_taken = shared.run(take).expect("the task runs");
            // No time of the thread that polls is over, and nothing comes.
            let is_wide = polls(Poller::Wide);
            is_answered.store(true, SeqCst);
            ring::wake_own();
            is_full && is_taken && is_wide
        });
        assert!(has_looked);
    }

    /// Whether a thread polls like that within the time of a test, and nothing is due.
    fn is_soon(shared: &Shared, wanted: Poller) -> bool {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let core = shared.core.lock().expect("no thread has panicked");
            let is_it = core.poller == wanted && core.endpoint.deadline().is_none();
            drop(core);
            if is_it || Instant::now() > end {
                return is_it;
            }
            thread::yield_now();
        }
    }
}
