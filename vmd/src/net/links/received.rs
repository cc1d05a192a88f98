//! Bytes from a connection: Hello first, then frames. A connection that breaks the protocol is
//! closed.

use super::{Asked, Links, mark_dirty};
use crate::{
    context::Context,
    fault,
    net::{connection::State, hello::is_from_host},
};
use anyhow::bail;
use vm_machine::{Input, link::Change, strangers::Source as KnownBy};
use vm_wire::{
    Frame, HostId, Message, Op,
    limits::HANDSHAKE_TIME,
    peer::{Hello, Refused},
};

impl Links {
    pub(super) fn take_bytes(&mut self, place: usize, context: &mut Context) -> anyhow::Result<()> {
        let conn = &mut self.table[place];
        let result = conn.secure.receive(&mut conn.reader, &mut conn.out);
        if !conn.out.is_empty() {
            mark_dirty(conn, place, context);
        }
        result?;
        if conn.secure.is_open() && !conn.said_hello() {
            conn.say_hello(&self.identity.hello());
            mark_dirty(conn, place, context);
            let gives_way = self.strangers.prove(conn.id);
            self.give_way(gives_way, context);
        }
        while let Some(conn) = self.table.get_mut(place) {
            if conn.state == State::Leaving {
                return Ok(());
            }
            let Some(frame) = conn.reader.next_frame()? else {
                return Ok(());
            };
            let op = frame.header.op;
            match conn.state {
                State::Up(host) if is_from_host(op) => {
                    fault::at_frame("receive", &frame);
                    context.inbox.push_back(Input::Peer(host, frame));
                }
                State::Joiner if op == Op::Join => {
                    let local = conn.socket.local_addr();
                    let reached = local.map_or(conn.addr, |local| local).ip().to_canonical();
                    self.joins.push(Asked {
                        conn: conn.id,
                        frame,
                        from: conn.addr.ip(),
                        reached,
                    });
                }
                State::Stranger if op == Op::Hello => self.introduce(place, &frame, context)?,
                State::Stranger | State::Up(_) if op == Op::Refused => {
                    let (addr, why) = (conn.addr, Refused::read(&frame)?.why);
                    self.tell(&format_args!("{addr} refuses this daemon: {why}"), context);
                    self.failed(place, &format_args!("it refuses this daemon: {why}"));
                    self.close(place, context);
                }
                _ => bail!("{op:?} may not come from here"),
            }
        }
        Ok(())
    }

    /// Handles the Hello of the other end.
    pub(super) fn introduce(
        &mut self,
        place: usize,
        frame: &Frame,
        context: &mut Context,
    ) -> anyhow::Result<()> {
        let hello = Hello::read(frame)?;
        let conn = &mut self.table[place];
        let (id, maker, addr) = (conn.id, conn.maker(), conn.addr);
        match self.identity.greet(conn.wanted, &hello) {
            Ok(host) => {
                self.strangers.remove(id);
                if host == HostId::NONE {
                    conn.state = State::Joiner;
                    return Ok(());
                }
                conn.state = State::Up(host);
                self.failures.remove(&host);
                let from = addr.ip().to_canonical();
                self.strangers.knows(host, KnownBy::Seen, from);
                let verdict = self.pairing.up(host, id, maker);
                for conn in verdict.close {
                    self.close_id(conn, context);
                }
                if verdict.change == Some(Change::Up) {
                    log::debug!("the link to {host} ({}, {addr}) is up", hello.name);
                    context.inbox.push_back(Input::LinkUp(host));
                }
            }
            Err(why) => {
                let text = format_args!("{} ({addr}) is refused: {why}", hello.name);
                self.tell(&text, context);
                let ours = (Some(self.identity.machine), self.identity.host);
                match (hello.machine, hello.host) == ours {
                    true => self.failed(place, &"this address leads to this daemon itself"),
                    false => self.failed(place, &why),
                }
                self.leave_with(place, &Refused { why }.frame(), context);
            }
        }
        Ok(())
    }

    /// Sends `frame`, and closes the connection after the other end has had time to read it.
    pub(super) fn leave_with(&mut self, place: usize, frame: &Frame, context: &mut Context) {
        self.end_of(place, context);
        let conn = &mut self.table[place];
        conn.queue.push(frame.clone(), &mut context.room);
        conn.state = State::Leaving;
        self.deadlines
            .insert((context.now + HANDSHAKE_TIME, conn.id));
        mark_dirty(conn, place, context);
    }

    pub(super) fn offend(&mut self, place: usize, error: &anyhow::Error, context: &mut Context) {
        let (addr, state) = (self.table[place].addr, self.table[place].state);
        let text = format_args!("the connection with {addr} was cut off: {error:#}");
        self.failed(place, &format_args!("{error:#}"));
        match state {
            // A fault of a host of the machine is rare, so it is always logged.
            State::Up(_) => log::warn!("{text}"),
            _ => self.tell(&text, context),
        }
        if self.table[place].out.is_empty() {
            self.close(place, context);
        } else {
            // An alert is still to be written.
            self.end_of(place, context);
            let conn = &mut self.table[place];
            conn.queue.clear(&mut context.room);
            conn.state = State::Leaving;
            self.deadlines
                .insert((context.now + HANDSHAKE_TIME, conn.id));
        }
    }
}
