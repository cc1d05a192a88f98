//! Connections to other daemons.
//!
//! Each is connected or accepted, proves the secret ([`crate::net::secure`]), says Hello, and is then a
//! link to a host, or the way of a daemon that wants to join. Which of two connections between the
//! same hosts is their link is decided in [`vm_machine::link`]. Until a connection has said Hello it
//! is a stranger: it has a second and a few bytes, and gives way where there are too many of them
//! ([`vm_machine::strangers`]).
//!
//! Two lanes lead out: what keeps the machine alive overtakes the chunks of tasks' messages. A bad
//! record, a bad frame, or a frame that only a local peer may send closes the connection; that is
//! counted, logged unless there is much of it ([`vm_machine::tally`]), and does nothing else.

mod received;

use crate::{
    context::{Context, Source},
    net::{
        connection::{Conn, Opening, State},
        hello::Identity,
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
    limits::{BACKLOG, HANDSHAKE_TIME},
};

/// How long the other host may take to accept a connection: a lost packet of a connection's
/// opening is repeated after a second only, so it is better to try anew.
const CONNECT_TIME: Duration = Duration::from_millis(1_500);
/// Connections that are accepted in one turn.
const ACCEPT_BATCH: usize = 16;

/// All connections to other daemons.
pub struct Links {
    identity: Identity,
    listener: TcpListener,
    spare: Spare,
    table: Slab<Conn>,
    places: HashMap<ConnId, usize>,
    pairing: Pairing,
    /// Connections that have to be further by then.
    deadlines: BTreeSet<(Time, ConnId)>,
    /// Accepted connections that have not said Hello.
    strangers: Strangers<IpAddr>,
    lossy: Vec<usize>,
    /// Connections that were cut off or refused.
    offences: Tally,
    /// Plain bytes on their way to be sealed.
    plain: Vec<u8>,
    /// Connections that bring images, with their tickets.
    images: Vec<(u64, OwnedFd)>,
    /// What daemons that want to join have said.
    joins: Vec<Asked>,
    /// Of each host to which there is no link: at which address it was tried last, and why there is none.
    failures: BTreeMap<HostId, (String, String)>,
}

/// What a daemon that wants to join has said.
#[derive(Debug)]
pub struct Asked {
    /// Its connection.
    pub conn: ConnId,
    /// A Join.
    pub frame: Frame,
    /// Where it comes from, and where it has reached this daemon.
    pub from: IpAddr,
    /// See [`Asked::from`].
    pub reached: IpAddr,
}

impl Links {
    /// Takes connections from `listener`.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(
        identity: Identity,
        listener: std::net::TcpListener,
        context: &Context,
    ) -> io::Result<Links> {
        listener.set_nonblocking(true)?;
        // Many may come at once: what finds no room here comes again a second later only.
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
            lossy: Vec::new(),
            offences: Tally::default(),
            plain: Vec::new(),
            images: Vec::new(),
            joins: Vec::new(),
            failures: BTreeMap::new(),
        })
    }

    /// Accepts who waits. Returns whether there may be more.
    pub fn accept(&mut self, context: &mut Context) -> bool {
        for _ in 0..ACCEPT_BATCH {
            match self.listener.accept() {
                Ok((socket, addr)) => {
                    // An address of IPv4 that came to a socket of IPv6 is one nevertheless.
                    let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
                    self.receive(socket, addr, context);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // The system says so before it looks whether anybody waits.
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

    /// A stranger's connection came.
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

    /// A stranger's connection has to make room for another one.
    fn give_way(&mut self, conn: Option<ConnId>, context: &mut Context) {
        let Some(&place) = conn.and_then(|conn| self.places.get(&conn)) else {
            return;
        };
        let addr = self.table[place].addr;
        let text = format_args!(
            "the connection with {addr} gave way to a newer one: it had not proved who it is"
        );
        self.tell(&text, context);
        self.close(place, context);
    }

    /// Logs what somebody from the network has caused, unless there is too much of it.
    fn tell(&mut self, text: &dyn fmt::Display, context: &Context) {
        if self.offences.count(context.now) {
            log::warn!("{text} (the {}. so far)", self.offences.total());
        }
    }

    /// Notes why a connection that was to be a link is none.
    fn failed(&mut self, place: usize, why: &dyn fmt::Display) {
        let conn = &self.table[place];
        if let Some(host) = conn.wanted
            && conn.state != State::Leaving
        {
            let failure = (conn.addr.to_string(), why.to_string());
            self.failures.insert(host, failure);
        }
    }

    /// Why there is no link to these hosts, as far as that is known, for people.
    pub fn why_not(&self, hosts: &[HostId]) -> String {
        let why = |host: &HostId| {
            let (addr, why) = self.failures.get(host)?;
            Some(format!("{host} at {addr}: {why}"))
        };
        hosts.iter().filter_map(why).collect::<Vec<_>>().join("; ")
    }

    /// The hosts to which links were tried and could not be made.
    pub fn unreached(&self) -> Vec<HostId> {
        self.failures.keys().copied().collect()
    }

    /// Whether that connection is one of a daemon that wants to join.
    pub fn is_joiner(&self, conn: ConnId) -> bool {
        let place = self.places.get(&conn);
        place.is_some_and(|place| self.table[*place].state == State::Joiner)
    }

    /// What daemons that want to join have said since the last question.
    pub fn take_joins(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.joins)
    }

    /// A connection was handed on that brings an image which nobody awaits.
    pub fn tell_unawaited(&mut self, context: &Context) {
        self.tell(&"a connection brings an image that nobody awaits", context);
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

    /// Makes a link to `host` if there is none: `LinkUp` or `LinkDown` follows.
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

    /// Closes the link to `host`.
    pub fn disconnect(&mut self, host: HostId, context: &mut Context) {
        self.strangers.forget(host);
        self.failures.remove(&host);
        for conn in self.pairing.forget(host) {
            self.close_id(conn, context);
        }
    }

    /// An event: the connection at `place` can be read, or written.
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
                        self.hand_on(place, ticket, context);
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

    /// The connection brings an image: it is no link, and not this part's any more.
    fn hand_on(&mut self, place: usize, ticket: u64, context: &mut Context) {
        self.end_of(place, context);
        let mut conn = self.table.remove(place);
        self.places.remove(&conn.id);
        self.strangers.remove(conn.id);
        match context.deregister(&mut conn.socket) {
            Ok(()) => self.images.push((ticket, conn.socket.into())),
            Err(error) => log::warn!("a connection cannot be handed on: {error}"),
        }
    }

    /// The connections that bring images and have come since the last question.
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

    /// The connection at `place` is of no use any more: tells who has to know.
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

    /// Sends over the link to `host`; nothing happens if there is none.
    pub fn send(&mut self, host: HostId, frame: Frame, context: &mut Context) {
        let place = self
            .pairing
            .used(host)
            .and_then(|conn| self.places.get(&conn));
        if let Some(&place) = place {
            self.push(place, frame, context);
        }
    }

    /// Sends to a daemon that wants to join; a refusal ends its connection.
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
            Pushed::Dropped => {
                if !self.lossy.contains(&place) {
                    self.lossy.push(place);
                }
            }
            Pushed::Stuck => {
                let error = anyhow::anyhow!("peer is not reading: its send queue is full");
                self.offend(place, &error, context);
            }
        }
    }

    /// Writes what waits for the connection at `place`.
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
                    // It may be gone already.
                    let _ = conn.socket.shutdown(Shutdown::Write);
                }
            }
            Err(error) => {
                log::debug!("the connection with {} broke: {error}", conn.addr);
                self.close(place, context);
            }
        }
    }

    /// Tells the daemon which pairs lost chunks, where there is room again.
    pub fn report_losers(&mut self, context: &mut Context) {
        self.lossy.retain(|place| {
            let Some(conn) = self.table.get_mut(*place) else {
                return false;
            };
            let losers = conn.queue.take_losers(&context.room);
            if !losers.is_empty() {
                context.inbox.push_back(Input::Dropped(losers));
            }
            conn.queue.has_losers()
        });
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Time> {
        let closing = self.deadlines.first().map(|(time, _)| *time);
        closing.into_iter().chain(self.offences.deadline()).min()
    }

    /// Closes connections whose time is up.
    pub fn tick(&mut self, context: &mut Context) {
        while let Some(&(time, id)) = self.deadlines.first()
            && time <= context.now
        {
            self.deadlines.pop_first();
            let Some(&place) = self.places.get(&id) else {
                continue;
            };
            let conn = &self.table[place];
            // Since an earlier deadline it may have become something else, with one of its own.
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
                    let error = anyhow::anyhow!("it did not prove in time who it is");
                    self.offend(place, &error, context);
                }
                before => {
                    match before {
                        State::Connecting => self.failed(place, &"it does not answer"),
                        State::Stranger => self.failed(place, &"it did not prove who it is"),
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

    /// The daemon ends: what waits is written, then the other ends are told that no more comes. A
    /// connection closed without that would take with it what the other end has not read.
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

    /// A fault for tests: what goes to `host` from now on waits until then.
    pub fn hold(&mut self, host: HostId, until: Time) {
        let conn = self.pairing.used(host);
        let place = conn.and_then(|conn| self.places.get(&conn));
        if let Some(&place) = place {
            let conn = &mut self.table[place];
            conn.held_until = Some(until);
            self.deadlines.insert((until, conn.id));
        }
    }

    /// A fault for tests: all connections are destroyed, with what is in them.
    pub fn cut_all(&mut self, context: &mut Context) {
        let places: Vec<usize> = self.table.iter().map(|(place, _)| place).collect();
        for place in places {
            if let Some(conn) = self.table.get(place) {
                // Without it the system would still deliver what it has taken.
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
