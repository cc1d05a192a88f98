//! Connections to other daemons.
//!
//! Each connection is made or accepted, proves the secret ([`crate::net::secure`]) and says Hello.
//! Then it is a link to a host, or the connection of a daemon that wants to join. If two hosts
//! connect to each other at the same time, [`vm_machine::link`] decides which connection becomes
//! their link. Until a connection has said Hello it is a stranger: its time and its bytes are
//! limited, and it is closed if there are too many strangers ([`vm_machine::strangers`]).
//!
//! A link has two lanes: frames that keep the machine alive overtake the chunks of tasks' messages.
//! A bad record, a bad frame, or a frame that only a local peer may send closes the connection. The
//! closing is counted, logged at a limited rate ([`vm_machine::tally`]), and has no other effect.

mod received;

use crate::{
    context::{Context, Source},
    net::{
        connection::{Conn, Opening, State},
        directs::AwaitedDirects,
        hello::Identity,
        lossy::Lossy,
        queue::Pushed,
        secure::Secure,
        sockets::{Read, SERVE_BYTES, Spare, read_into, tune_link},
    },
};
use mio::net::{TcpListener, TcpStream};
use slab::Slab;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt, io,
    net::{IpAddr, Shutdown, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};
use vm_machine::{
    ConnId, Input, Time,
    link::{Change, Links as Pairing, Maker},
    strangers::{Source as KnownBy, Strangers},
    tally::Tally,
};
use vm_wire::{
    Frame, HostId, Op,
    direct::PROOF,
    limits::{BACKLOG, HANDSHAKE_TIME},
};

/// Time limit for a connection to another host. Above one second, after which TCP repeats a lost
/// opening packet; a second repetition would take longer than a new attempt.
const CONNECT_TIME: Duration = Duration::from_millis(1_500);
/// Bound on the connections that are accepted in one turn.
const ACCEPT_BATCH: usize = 16;

/// All connections to other daemons.
pub struct Links {
    identity: Identity,
    listener: TcpListener,
    spare: Spare,
    table: Slab<Conn>,
    places: HashMap<ConnId, usize>,
    pairing: Pairing,
    /// Deadlines for the next state of each connection.
    deadlines: BTreeSet<(Time, ConnId)>,
    /// Accepted connections that have not said Hello.
    strangers: Strangers<IpAddr>,
    lossy: Lossy,
    /// Count of connections that were closed or refused because of what they sent.
    offences: Tally,
    /// Buffer for plain bytes before they are sealed.
    plain: Vec<u8>,
    /// Connections that bring images, with their tickets.
    images: Vec<(u64, OwnedFd)>,
    /// Direct connections to tasks of this host.
    pub directs: AwaitedDirects,
    /// Join requests that were not handed over yet.
    joins: Vec<Asked>,
    /// For each host without a link: the address of the last attempt, and the reason of its
    /// failure.
    failures: BTreeMap<HostId, (String, String)>,
}

/// A join request, with its connection.
#[derive(Debug)]
pub struct Asked {
    /// The connection of the daemon that wants to join.
    pub conn: ConnId,
    /// The frame of the request, a `Join`.
    pub frame: Frame,
    /// The address of the joining daemon.
    pub from: IpAddr,
    /// The address at which the joining daemon has reached this one.
    pub reached: IpAddr,
}

impl Links {
    /// A table without connections, with `listener` registered.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(
        identity: Identity,
        listener: std::net::TcpListener,
        context: &Context,
    ) -> io::Result<Links> {
        listener.set_nonblocking(true)?;
        // Many daemons may connect at once. The system repeats a connection for which the backlog
        // has no room only after a second.
        rustix::net::listen(&listener, BACKLOG)?;
        let mut listener = TcpListener::from_std(listener);
        context.register_readable(&mut listener, Source::LinkListener)?;
        Ok(Links {
            pairing: Pairing::new(identity.host),
            identity,
            listener,
            spare: Spare::new()?,
            table: Slab::new(),
            places: HashMap::new(),
            deadlines: BTreeSet::new(),
            strangers: Strangers::default(),
            lossy: Lossy::default(),
            offences: Tally::default(),
            plain: Vec::new(),
            images: Vec::new(),
            directs: AwaitedDirects::default(),
            joins: Vec::new(),
            failures: BTreeMap::new(),
        })
    }

    /// Accepts waiting connections. Returns whether there may be more.
    pub fn accept(&mut self, context: &mut Context) -> bool {
        for _ in 0..ACCEPT_BATCH {
            match self.listener.accept() {
                Ok((socket, addr)) => {
                    // A socket of IPv6 reports the IPv4 address of its peer as a mapped address.
                    let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
                    self.receive(socket, addr, context);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // The system returns this error before it looks whether a connection waits.
                Err(error) if Spare::is_exhausted(&error) => {
                    let listener = &self.listener;
                    if self.spare.lend(|| listener.accept()).is_err() {
                        return false;
                    }
                    let text = "the limit of open files is reached: a connection was refused";
                    self.tell(&text, context);
                }
                Err(error) => log::debug!("a connection was lost: {error}"),
            }
        }
        true
    }

    /// Adds the connection of a stranger.
    fn receive(&mut self, socket: TcpStream, addr: SocketAddr, context: &mut Context) {
        match self.add(socket, addr, None, context) {
            Ok(id) => {
                let gives_way = self.strangers.admit(id, addr.ip());
                self.give_way(gives_way, context);
            }
            Err(error) => {
                let text = format_args!("a connection from {addr} was refused: {error}");
                self.tell(&text, context);
            }
        }
    }

    /// Closes the connection of a stranger to make room for a new one.
    fn give_way(&mut self, conn: Option<ConnId>, context: &mut Context) {
        let Some(&place) = conn.and_then(|conn| self.places.get(&conn)) else {
            return;
        };
        let addr = self.table[place].addr;
        let text = format_args!(
            "the connection with {addr} was closed for a newer one: its handshake was not finished"
        );
        self.tell(&text, context);
        self.close(place, context);
    }

    /// Logs a fault that a peer in the network has caused, at a limited rate.
    fn tell(&mut self, text: &dyn fmt::Display, context: &Context) {
        if self.offences.count(context.now) {
            log::warn!("{text} (the {}. so far)", self.offences.total());
        }
    }

    /// Records why a connection that this daemon made did not become a link.
    fn failed(&mut self, place: usize, why: &dyn fmt::Display) {
        let conn = &self.table[place];
        if let Some(host) = conn.wanted
            && conn.state != State::Leaving
        {
            let failure = (conn.addr.to_string(), why.to_string());
            self.failures.insert(host, failure);
        }
    }

    /// The known reasons why there is no link to these hosts, as text for people.
    pub fn why_not(&self, hosts: &[HostId]) -> String {
        let why = |host: &HostId| {
            let (addr, why) = self.failures.get(host)?;
            Some(format!("{host} at {addr}: {why}"))
        };
        hosts.iter().filter_map(why).collect::<Vec<_>>().join("; ")
    }

    /// The hosts to which the last attempt of a link failed.
    pub fn unreached(&self) -> Vec<HostId> {
        self.failures.keys().copied().collect()
    }

    /// Whether `conn` is the connection of a daemon that wants to join.
    pub fn is_joiner(&self, conn: ConnId) -> bool {
        let place = self.places.get(&conn);
        place.is_some_and(|place| self.table[*place].state == State::Joiner)
    }

    /// Takes the join requests that have come since the last call.
    pub fn take_joins(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.joins)
    }

    /// Logs that a connection brought an image with a ticket that no move waits for.
    pub fn tell_unawaited(&mut self, context: &Context) {
        self.tell(
            &"a connection brings an image with an unknown ticket",
            context,
        );
    }

    fn add(
        &mut self,
        mut socket: TcpStream,
        addr: SocketAddr,
        wanted: Option<HostId>,
        context: &mut Context,
    ) -> io::Result<ConnId> {
        tune_link(&socket)?;
        let entry = self.table.vacant_entry();
        let place = entry.key();
        context.register(&mut socket, Source::Link(place))?;
        let id = context.conn();
        let (secret, mode) = (&self.identity.secret, self.identity.mode);
        let mut out = Vec::new();
        let (secure, time) = match wanted {
            Some(_) => (Secure::maker(secret, mode, &mut out), CONNECT_TIME),
            None => (Secure::other_end(secret, mode), HANDSHAKE_TIME),
        };
        self.deadlines.insert((context.now + time, id));
        self.places.insert(id, place);
        entry.insert(Conn::new(id, socket, addr, wanted, secure, out));
        Ok(id)
    }

    /// Makes a link to `host` if there is none. `LinkUp` or `LinkDown` follows.
    pub fn connect(&mut self, host: HostId, addr: &str, context: &mut Context) {
        if !self.pairing.is_free(host) {
            return;
        }
        let result = addr
            .parse::<SocketAddr>()
            .map_err(io::Error::other)
            .and_then(|addr| {
                let from = addr.ip().to_canonical();
                self.strangers.knows(host, KnownBy::Told, from);
                let socket = TcpStream::connect(addr)?;
                let id = self.add(socket, addr, Some(host), context)?;
                self.pairing.attempt(host, id);
                Ok(())
            });
        if let Err(error) = result {
            log::warn!("no connection to {host} at {addr}: {error}");
            let why = error.to_string();
            self.failures.insert(host, (addr.to_owned(), why));
            context.inbox.push_back(Input::LinkDown(host));
        }
    }

    /// Closes the link to `host`, if there is one.
    pub fn disconnect(&mut self, host: HostId, context: &mut Context) {
        self.strangers.forget(host);
        self.failures.remove(&host);
        for conn in self.pairing.forget(host) {
            self.close_id(conn, context);
        }
    }

    /// Handles an event: the connection at `place` can be read, or written.
    pub fn wake(&mut self, place: usize, writable: bool, closed: bool, context: &mut Context) {
        let Some(conn) = self.table.get_mut(place) else {
            return;
        };
        conn.closed |= closed;
        if conn.state == State::Connecting && (writable || closed) {
            match conn
                .socket
                .take_error()
                .map(|error| error.map_or(Ok(()), Err))
            {
                Ok(Ok(())) if conn.socket.peer_addr().is_ok() => {
                    conn.state = State::Stranger;
                    self.deadlines
                        .insert((context.now + HANDSHAKE_TIME, conn.id));
                }
                Ok(Ok(())) => return,
                Ok(Err(error)) | Err(error) => {
                    log::debug!("no connection to {}: {error}", conn.addr);
                    self.failed(place, &error);
                    self.close(place, context);
                    return;
                }
            }
        }
        if !conn.is_idle() {
            mark_dirty(conn, place, context);
        }
    }

    /// Reads from the connection at `place`. Returns whether there may be more.
    pub fn serve(&mut self, place: usize, context: &mut Context) -> bool {
        let mut share = SERVE_BYTES;
        loop {
            let Some(conn) = self.table.get_mut(place) else {
                return false;
            };
            if conn.state == State::Connecting {
                return false;
            }
            if conn.is_new() {
                match conn.opening() {
                    Opening::Link => {}
                    Opening::Awaited => return false,
                    Opening::Image(ticket) => {
                        let socket = self.hand_on(place, context);
                        self.images.extend(socket.map(|socket| (ticket, socket)));
                        return false;
                    }
                    Opening::Direct(id, proof) => {
                        self.receive_direct(place, id, &proof, context);
                        return false;
                    }
                }
            }
            let room = conn.read_room();
            let input = conn.secure.input(&mut conn.reader);
            input.reserve(room);
            let (count, more) = match read_into(&conn.socket, input, room) {
                Ok(Read::Full(count)) => (count, true),
                Ok(Read::Some(count)) => (count, conn.closed),
                Ok(Read::Nothing) => return false,
                Ok(Read::End) | Err(_) => {
                    self.close(place, context);
                    return false;
                }
            };
            if conn.state == State::Leaving {
                conn.secure.input(&mut conn.reader).clear();
            } else if let Err(error) = self.take_bytes(place, context) {
                self.offend(place, &error, context);
            }
            share = share.saturating_sub(count);
            if !more || share == 0 {
                return more;
            }
        }
    }

    /// Takes a connection that is no link out of this table.
    fn hand_on(&mut self, place: usize, context: &mut Context) -> Option<OwnedFd> {
        self.end_of(place, context);
        let mut conn = self.table.remove(place);
        self.places.remove(&conn.id);
        self.strangers.remove(conn.id);
        match context.deregister(&mut conn.socket) {
            Ok(()) => Some(conn.socket.into()),
            Err(error) => {
                log::warn!("a connection cannot be handed on: {error}");
                None
            }
        }
    }

    /// A direct connection to a task of this host has come: it is kept for the decision of the state
    /// machine if it is expected and proved, or closed.
    fn receive_direct(
        &mut self,
        place: usize,
        id: u64,
        proof: &[u8; PROOF],
        context: &mut Context,
    ) {
        let addr = self.table[place].addr;
        if !self.directs.proves(id, proof) {
            self.close(place, context);
            // The connection may have been forgotten while it was made.
            return log::debug!("a direct connection from {addr} was closed: it is not expected");
        }
        if let Some(socket) = self.hand_on(place, context) {
            log::debug!("a task at {addr} has made direct connection {id:x}");
            self.directs.came(id, socket);
            context.inbox.push_back(Input::DirectCame(id));
        }
    }

    /// Takes the connections with images that have come since the last call.
    pub fn take_images(&mut self) -> Vec<(u64, OwnedFd)> {
        std::mem::take(&mut self.images)
    }

    fn close_id(&mut self, conn: ConnId, context: &mut Context) {
        if let Some(&place) = self.places.get(&conn) {
            self.close(place, context);
        }
    }

    fn close(&mut self, place: usize, context: &mut Context) {
        self.end_of(place, context);
        let mut conn = self.table.remove(place);
        self.places.remove(&conn.id);
        self.strangers.remove(conn.id);
        conn.queue.clear(&mut context.room);
    }

    /// Removes the connection at `place` from the tables, and reports the end of a link to the
    /// state machine.
    fn end_of(&mut self, place: usize, context: &mut Context) {
        let conn = &self.table[place];
        let host = match conn.state {
            State::Up(host) => Some(host),
            State::Joiner => {
                context.inbox.push_back(Input::ConnGone(conn.id));
                None
            }
            _ => conn.wanted,
        };
        let change = host.and_then(|host| Some((host, self.pairing.gone(host, conn.id)?)));
        match change {
            Some((host, Change::Up)) => context.inbox.push_back(Input::LinkUp(host)),
            Some((host, Change::Down)) => {
                log::debug!("there is no link to {host} ({})", conn.addr);
                context.inbox.push_back(Input::LinkDown(host));
            }
            None => {}
        }
    }

    /// Sends a frame over the link to `host`. Nothing happens if there is no link.
    pub fn send(&mut self, host: HostId, frame: Frame, context: &mut Context) {
        let place = self
            .pairing
            .used(host)
            .and_then(|conn| self.places.get(&conn));
        if let Some(&place) = place {
            self.push(place, frame, context);
        }
    }

    /// Sends a frame to a daemon that wants to join. A refusal ends its connection.
    pub fn send_to_joiner(&mut self, conn: ConnId, frame: Frame, context: &mut Context) {
        match self.places.get(&conn) {
            Some(&place) if self.table[place].state == State::Joiner => {
                if frame.header.op == Op::Refused {
                    self.leave_with(place, &frame, context);
                } else {
                    self.push(place, frame, context);
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, place: usize, frame: Frame, context: &mut Context) {
        let conn = &mut self.table[place];
        match conn.queue.push(frame, &mut context.room) {
            Pushed::Kept => mark_dirty(conn, place, context),
            Pushed::Dropped => self.lossy.note(place),
            Pushed::Stuck => {
                let error = anyhow::anyhow!("peer is not reading: its send queue is full");
                self.offend(place, &error, context);
            }
        }
    }

    /// Writes the queue of the connection at `place`.
    pub fn flush(&mut self, place: usize, context: &mut Context) {
        let Some(conn) = self.table.get_mut(place) else {
            return;
        };
        conn.dirty = false;
        if conn.state == State::Connecting || conn.held_until.is_some() {
            return;
        }
        match conn.flush(&mut self.plain, context) {
            Ok(false) => mark_dirty(conn, place, context),
            Ok(true) => {
                if conn.state == State::Leaving && conn.is_idle() {
                    // The other end may have closed the connection already.
                    let _ = conn.socket.shutdown(Shutdown::Write);
                }
            }
            Err(error) => {
                log::debug!("the connection with {} broke: {error}", conn.addr);
                self.close(place, context);
            }
        }
    }

    /// Reports to the state machine which channels lost chunks, once their queues have room again.
    pub fn report_losers(&mut self, context: &mut Context) {
        self.lossy
            .report(&mut self.table, |conn| &mut conn.queue, context);
    }

    /// The time of the next deadline.
    pub fn deadline(&self) -> Option<Time> {
        let closing = self.deadlines.first().map(|(time, _)| *time);
        closing.into_iter().chain(self.offences.deadline()).min()
    }

    /// Closes connections whose deadline has passed.
    pub fn tick(&mut self, context: &mut Context) {
        while let Some(&(time, id)) = self.deadlines.first()
            && time <= context.now
        {
            self.deadlines.pop_first();
            let Some(&place) = self.places.get(&id) else {
                continue;
            };
            let conn = &self.table[place];
            // A connection that has changed its state since may have a later deadline.
            let later = self.deadlines.iter().any(|(_, other)| *other == id);
            match conn.state {
                State::Up(_) if conn.held_until.is_some_and(|until| until <= context.now) => {
                    let conn = &mut self.table[place];
                    conn.held_until = None;
                    mark_dirty(conn, place, context);
                }
                State::Up(_) | State::Joiner => {}
                _ if later => {}
                State::Stranger if conn.maker() == Maker::Them => {
                    let error = anyhow::anyhow!("it did not finish the handshake in time");
                    self.offend(place, &error, context);
                }
                before => {
                    match before {
                        State::Connecting => self.failed(place, &"it does not answer"),
                        State::Stranger => self.failed(place, &"it did not finish the handshake"),
                        _ => {}
                    }
                    self.close(place, context);
                }
            }
        }
        if let Some(silent) = self.offences.tick(context.now) {
            let total = self.offences.total();
            log::warn!("{silent} more connections were cut off or refused ({total} so far)");
        }
    }

    /// Closes all links at the daemon's end: queued bytes are written, then the sending side is
    /// shut down. A connection that is closed without the shutdown may lose bytes that the other
    /// daemon has not read.
    pub fn leave_all(&mut self, context: &mut Context) {
        for (place, conn) in &mut self.table {
            conn.state = State::Leaving;
            mark_dirty(conn, place, context);
        }
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// A fault for tests: frames to `host` wait until the given time.
    pub fn hold(&mut self, host: HostId, until: Time) {
        let conn = self.pairing.used(host);
        let place = conn.and_then(|conn| self.places.get(&conn));
        if let Some(&place) = place {
            let conn = &mut self.table[place];
            conn.held_until = Some(until);
            self.deadlines.insert((until, conn.id));
        }
    }

    /// A fault for tests: destroys all connections, with the bytes in them.
    pub fn cut_all(&mut self, context: &mut Context) {
        let places: Vec<usize> = self.table.iter().map(|(place, _)| place).collect();
        for place in places {
            if let Some(conn) = self.table.get(place) {
                // Without the linger time of zero, the system would still deliver the bytes that it
                // has taken.
                let _ = socket2::SockRef::from(&conn.socket).set_linger(Some(Duration::ZERO));
                self.close(place, context);
            }
        }
    }
}

fn mark_dirty(conn: &mut Conn, place: usize, context: &mut Context) {
    if !conn.dirty {
        conn.dirty = true;
        context.dirty.push(Source::Link(place));
    }
}
