//! The streams of a master that runs elsewhere than its console, because it has moved or was brought
//! back there.
//!
//! What it writes goes on as it is, in the channel between the two daemons, which loses and doubles
//! nothing and keeps the order. While the channel has much to send, or the console does not read
//! ([`RunHold`]), the master waits as it would for a pipe. Lines of other tasks are dropped then, and
//! counted (`runs`).
//!
//! When the master moves on, its old host does not release it before the daemon of the console has said
//! that it has all ([`FlushAsk`], [`Flushed`](vm_wire::peer::Flushed)): what the new host sends comes
//! after it. If the console is at one of the two hosts, that is so without asking.
//!
//! What is typed does not go on: a master whose input is a console's stays where it is.

use super::{Daemon, LocalTask};
use crate::{Outbox, Output};
use std::collections::VecDeque;
use vm_wire::{
    Body, HostId, Tid, limits,
    peer::{FlushAsk, Order, OutputLines, RunHold},
};

/// What of a master's output waits, and why it may not write more.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    pieces: VecDeque<(u8, Vec<u8>)>,
    /// Its console does not read.
    held: bool,
    /// Its output is not read.
    paused: bool,
}

/// How far the last output of a master that leaves is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Delivery {
    /// Nobody was asked yet.
    #[default]
    NotAsked,
    /// That host was asked whether it has all.
    Asked(HostId),
    /// It is where it should be.
    Done,
}

impl LocalTask {
    /// Whether it is a master whose console is elsewhere than on `here`.
    fn is_far_master(&self, tid: Tid, here: HostId) -> bool {
        self.app == tid && self.console != HostId::NONE && self.console != here
    }
}

impl Daemon {
    /// Takes what a master wrote whose console is on another host; gives it back if it is another task.
    pub(super) fn send_far(
        &mut self,
        tid: Tid,
        (stream, bytes): (u8, Vec<u8>),
        out: &mut Outbox,
    ) -> Option<(u8, Vec<u8>)> {
        let me = self.me;
        let Some(task) = self
            .tasks
            .get_mut(&tid)
            .filter(|task| task.is_far_master(tid, me))
        else {
            return Some((stream, bytes));
        };
        task.unsent.pieces.push_back((stream, bytes));
        self.send_unsent(tid, limits::RUN_QUEUE_BYTES, out);
        None
    }

    /// Sends what waits of a master's output as far as the channel to its console's host takes it.
    fn send_unsent(&mut self, tid: Tid, limit: usize, out: &mut Outbox) {
        while let Some(task) = self.tasks.get(&tid)
            && let Some((stream, bytes)) = task.unsent.pieces.front()
        {
            let (console, stream) = (task.console, *stream);
            let lines = OutputLines {
                tid,
                stream,
                bytes: Body::from(bytes.clone()),
                dropped: 0,
            };
            if !self.send_within(limit, console, &Order::OutputLines(lines)) {
                break;
            }
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.unsent.pieces.pop_front();
            }
        }
        self.review_pause(tid, out);
    }

    /// Reads what a master writes, or does not.
    fn review_pause(&mut self, tid: Tid, out: &mut Outbox) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let waits = task.unsent.held || !task.unsent.pieces.is_empty();
        if std::mem::replace(&mut task.unsent.paused, waits) != waits {
            out.push_back(match waits {
                true => Output::PauseOutput(tid),
                false => Output::ResumeOutput(tid),
            });
        }
    }

    /// There may be room in channels.
    pub(super) fn review_unsent(&mut self, out: &mut Outbox) {
        let waits = |(_, task): &(&Tid, &LocalTask)| !task.unsent.pieces.is_empty();
        let waiting = self.tasks.iter().filter(waits);
        for tid in waiting.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.send_unsent(tid, limits::RUN_QUEUE_BYTES, out);
        }
    }

    /// A master ends, or leaves: all that it wrote goes into the channel. That is not much more than its
    /// pipes hold.
    pub(super) fn send_last(&mut self, tid: Tid, out: &mut Outbox) {
        self.send_unsent(tid, limits::QUEUE_BYTES, out);
    }

    /// Whether all that a master wrote, which stands, is at its console's host before anything that it
    /// writes at its new host. If not, [`Daemon::release_task`] is called when it is.
    pub(super) fn is_delivered(&mut self, tid: Tid, out: &mut Outbox) -> bool {
        let me = self.me;
        let Some(task) = self.tasks.get(&tid) else {
            return true;
        };
        let (far, console) = (task.is_far_master(tid, me), task.console);
        let to = self.leaving.get(&tid).map(|moving| moving.to);
        if far {
            self.send_last(tid, out);
        }
        if !far || to == Some(console) || !self.agreement.state().is_present(console) {
            return true;
        }
        let Some(moving) = self.leaving.get_mut(&tid) else {
            return true;
        };
        match moving.delivery {
            Delivery::Done => true,
            Delivery::Asked(host) if host == console => false,
            _ => {
                moving.delivery = Delivery::Asked(console);
                self.send_order(console, &Order::FlushAsk(FlushAsk { app: tid }));
                false
            }
        }
    }

    /// The daemon of a console has all that a master wrote here.
    pub(super) fn on_delivered(&mut self, host: HostId, tid: Tid, out: &mut Outbox) {
        if let Some(moving) = self.leaving.get_mut(&tid)
            && moving.delivery == Delivery::Asked(host)
        {
            moving.delivery = Delivery::Done;
            self.release_task(tid, out);
        }
    }

    /// The host of consoles is lost: what waits for them goes to the log, and nobody is waited for.
    pub(super) fn lose_far_console(&mut self, host: HostId, out: &mut Outbox) {
        for (tid, task) in self.tasks.iter_mut() {
            if task.console != host {
                continue;
            }
            task.console = HostId::NONE;
            for (stream, bytes) in std::mem::take(&mut task.unsent.pieces) {
                out.push_back(Output::LogOutput(*tid, stream, bytes));
            }
            task.unsent.held = false;
        }
        for tid in self.tasks.keys().copied().collect::<Vec<_>>() {
            self.review_pause(tid, out);
        }
        let asked = Delivery::Asked(host);
        let waiting = self.leaving.iter().filter(|(_, it)| it.delivery == asked);
        for tid in waiting.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.on_delivered(host, tid, out);
        }
    }

    /// The console of a master, on another host, does not read, or reads again.
    pub(super) fn on_run_hold(&mut self, host: HostId, hold: RunHold, out: &mut Outbox) {
        if let Some(task) = self.tasks.get_mut(&hold.tid)
            && task.console == host
        {
            task.unsent.held = hold.hold;
            self.review_pause(hold.tid, out);
        }
    }

    /// Tells the host of a master, if that is another one, whether the console here reads.
    pub(super) fn hold_far(&mut self, tid: Tid, hold: bool) {
        let state = self.agreement.state();
        let host = state.living_task(tid).map(|task| task.host);
        if let Some(host) = host.filter(|host| *host != self.me) {
            self.send_order(host, &Order::RunHold(RunHold { tid, hold }));
        }
    }
}
