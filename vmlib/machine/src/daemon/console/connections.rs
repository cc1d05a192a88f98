//! The consoles that are connected to this daemon, and their requests under way.
//!
//! A console numbers its requests, and each gets one reply. A request that is repeated while it is
//! under way has no effect; the last reply is sent again when its request is repeated.

use crate::daemon::context::Context;
use crate::{ConnId, Output};
use std::collections::BTreeMap;
use vm_wire::{Frame, HostId, Message, Tid, checkpoint::Policy, console::Answer, limits};

/// A connection of a console.
#[derive(Debug, Default)]
struct Connection {
    /// The highest number of a request so far.
    highest: u64,
    /// The requests without a reply.
    pending: BTreeMap<u64, Awaited>,
    /// The last reply.
    last: Option<Frame>,
    /// The master of the run of this console.
    run: Option<Tid>,
    /// Whether the send queue of this console is full.
    full: bool,
}

/// The event that completes a request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Awaited {
    /// The result of another subsystem of this daemon, which knows the connection and the number.
    Result,
    /// The host has left the machine.
    Deleted(HostId),
    /// The host takes tasks again after a drain.
    Resumed(HostId),
    /// The log has applied this checkpoint policy of an application.
    Policy(Tid, Policy),
    /// A host of this name has joined.
    Host(String),
    /// The end of this daemon.
    End,
}

/// The treatment of a request that has arrived.
pub(in crate::daemon) enum Begun {
    /// The request has to be carried out.
    New,
    /// The request was repeated, and needs no further action.
    Repeated,
    /// The request breaks the protocol or a limit: the connection is closed.
    Refused(&'static str),
}

/// The consoles that are connected to this daemon.
#[derive(Debug, Default)]
pub(super) struct Connections {
    consoles: BTreeMap<ConnId, Connection>,
}

impl Connections {
    /// Registers a request of a console.
    pub fn begin(&mut self, cx: &mut Context, conn: ConnId, number: u64) -> Begun {
        if !self.consoles.contains_key(&conn) && self.consoles.len() >= limits::CONSOLES_MAX {
            return Begun::Refused("too many consoles are connected");
        }
        let console = self.consoles.entry(conn).or_default();
        if number == 0 {
            return Begun::Refused("a request without a number");
        }
        if number <= console.highest {
            let repeat = |reply: &&Frame| reply.header.request == number;
            if let Some(reply) = console.last.as_ref().filter(repeat) {
                cx.emit(Output::Console(conn, reply.clone()));
            }
            return Begun::Repeated;
        }
        if console.pending.len() >= limits::CONSOLE_REQUESTS_MAX {
            return Begun::Refused("too many requests are under way");
        }
        console.highest = number;
        console.pending.insert(number, Awaited::Result);
        Begun::New
    }

    /// Stores the event that a request without a reply waits for.
    pub fn wait_for(&mut self, conn: ConnId, number: u64, awaited: Awaited) {
        let console = self.consoles.get_mut(&conn);
        if let Some(pending) = console.and_then(|console| console.pending.get_mut(&number)) {
            *pending = awaited;
        }
    }

    /// Replies to a request, if its console is still connected.
    pub fn reply(&mut self, cx: &mut Context, conn: ConnId, number: u64, answer: &Answer) {
        if let Some(console) = self.consoles.get_mut(&conn)
            && console.pending.remove(&number).is_some()
        {
            let frame = answer.frame().asked(number);
            console.last = Some(frame.clone());
            cx.emit(Output::Console(conn, frame));
        }
    }

    /// Replies to all requests whose events `done` selects.
    pub fn reply_all(
        &mut self,
        cx: &mut Context,
        answer: &Answer,
        done: impl Fn(&Awaited) -> bool,
    ) {
        let mut ready = Vec::new();
        for (conn, console) in &self.consoles {
            let numbers = console.pending.iter().filter(|(_, awaited)| done(awaited));
            ready.extend(numbers.map(|(number, _)| (*conn, *number)));
        }
        for (conn, number) in ready {
            self.reply(cx, conn, number, answer);
        }
    }

    /// The checkpoint policies that requests wait for.
    pub fn awaited_policies(&self) -> Vec<(Tid, Policy)> {
        let pending = self.consoles.values().flat_map(|it| it.pending.values());
        let policies = pending.filter_map(|awaited| match awaited {
            Awaited::Policy(app, policy) => Some((*app, *policy)),
            _ => None,
        });
        policies.collect()
    }

    /// Removes a console that is gone. Returns the master of its run.
    pub fn remove(&mut self, conn: ConnId) -> Option<Tid> {
        self.consoles.remove(&conn).and_then(|console| console.run)
    }

    /// The master of the run of a console.
    pub fn run_of(&self, conn: ConnId) -> Option<Tid> {
        self.consoles.get(&conn).and_then(|console| console.run)
    }

    /// Stores the master of a console's run. `false` if the console is gone.
    pub fn set_run(&mut self, conn: ConnId, master: Tid) -> bool {
        let console = self.consoles.get_mut(&conn);
        console.map(|console| console.run = Some(master)).is_some()
    }

    /// Whether the send queue of a console is full.
    pub fn is_full(&self, conn: ConnId) -> bool {
        self.consoles.get(&conn).is_some_and(|console| console.full)
    }

    /// The send queue of a console is full, or has room again. Returns the master of its run.
    pub fn set_full(&mut self, conn: ConnId, full: bool) -> Option<Tid> {
        let console = self.consoles.get_mut(&conn)?;
        console.full = full;
        console.run
    }
}
