//! The streams of a master that runs elsewhere than its console, because it has moved or was brought
//! back there.
//!
//! What it writes goes on as it is, in the channel between the two daemons, which loses and doubles
//! nothing and keeps the order. While the channel has much to send, or the console does not read
//! ([`RunHold`]), the master waits as it would for a pipe. Lines of other tasks are dropped then, and
//! counted (`runs`).
//!
//! When the master moves on, its old host does not release it before the daemon of the console has said
//! that it has all ([`FlushAsk`], [`Flushed`](vm_wire::peer::Flushed), under the number of the move): what
//! the new host sends comes after it. If the console is at the new host, it is enough that all is in the
//! channel, where the release comes after it. What the channel has no room for yet, the master waits for.
//!
//! What is typed does not go on: a master whose input is a console's stays where it is.

use crate::Output;
use crate::daemon::{Daemon, LocalTask, leaving::Leaving};
use std::collections::VecDeque;
use vm_wire::{
    Body, HostId, Tid, limits,
    peer::{FlushAsk, Flushed, Order, OutputLines, RunHold},
};

/// What of a master's output waits, and why it may not write more.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Unsent {
    pieces: VecDeque<(u8, Vec<u8>)>,
    /// Its console does not read.
    held: bool,
    /// Its output is not read.
    paused: bool,
}

/// How far the last output of a master that leaves is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::daemon) enum Delivery {
    /// Nobody was asked yet, perhaps because the channel has no room.
    #[default]
    NotAsked,
    /// The question whether it has all is in the channel to that host.
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
    pub(in crate::daemon) fn send_far(
        &mut self,
        tid: Tid,
        (stream, bytes): (u8, Vec<u8>),
    ) -> Option<(u8, Vec<u8>)> {
        let me = self.cx.me;
        let Some(task) = self
            .tasks
            .get_mut(&tid)
            .filter(|task| task.is_far_master(tid, me))
        else {
            return Some((stream, bytes));
        };
        task.unsent.pieces.push_back((stream, bytes));
        self.unsent.insert(tid);
        self.send_unsent(tid, limits::RUN_QUEUE_BYTES);
        None
    }

    /// Sends what waits of a master's output as far as the channel to its console's host takes it.
    fn send_unsent(&mut self, tid: Tid, limit: usize) {
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
            if !self
                .cx
                .send_within(limit, console, &Order::OutputLines(lines))
            {
                break;
            }
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.unsent.pieces.pop_front();
            }
        }
        self.review_pause(tid);
    }

    /// Reads what a master writes, or does not.
    fn review_pause(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let waits = task.unsent.held || !task.unsent.pieces.is_empty();
        if std::mem::replace(&mut task.unsent.paused, waits) != waits {
            self.cx.emit(match waits {
                true => Output::PauseOutput(tid),
                false => Output::ResumeOutput(tid),
            });
        }
    }

    /// There may be room in channels.
    pub(in crate::daemon) fn review_unsent(&mut self) {
        for tid in self.unsent.iter().copied().collect::<Vec<_>>() {
            self.send_unsent(tid, limits::RUN_QUEUE_BYTES);
            let task = self.tasks.get(&tid);
            if task.is_none_or(|task| task.unsent.pieces.is_empty()) {
                self.unsent.remove(&tid);
            }
            // It may wait for that room.
            self.release_task(tid);
        }
    }

    /// A master ends: all that it wrote goes into the channel. That is not much more than its pipes hold.
    pub(in crate::daemon) fn send_last(&mut self, tid: Tid) {
        self.send_unsent(tid, limits::QUEUE_BYTES);
    }

    /// A task is forgotten here: what was not sent is lost.
    pub(in crate::daemon) fn drop_unsent(&mut self, tid: Tid) {
        self.unsent.remove(&tid);
        if let Some(task) = self.tasks.get_mut(&tid) {
            let pieces = std::mem::take(&mut task.unsent.pieces);
            let bytes = pieces.iter().map(|(_, bytes)| bytes.len() as u64);
            self.cx.counters.output_dropped += bytes.sum::<u64>();
        }
    }

    /// The process of a master is another one than before: its output is read.
    pub(in crate::daemon) fn renew_output(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.unsent.paused = false;
            self.review_pause(tid);
        }
    }

    /// Whether all that a master wrote, which stands, is at its console's host before anything that it
    /// writes at its new host. If not, [`Daemon::release_task`] is called when it may be.
    pub(in crate::daemon) fn is_delivered(&mut self, tid: Tid) -> bool {
        let me = self.cx.me;
        let Some(task) = self.tasks.get(&tid) else {
            return true;
        };
        let (far, console) = (task.is_far_master(tid, me), task.console);
        let Some(moving) = self.leaving.get(&tid) else {
            return true;
        };
        let (to, number, delivery) = (moving.to, moving.number, moving.delivery);
        if !far || to == me || !self.cx.agreement.state().is_present(console) {
            return true;
        }
        // The release has to find room behind it.
        self.send_unsent(tid, limits::QUEUE_BYTES / 2);
        let task = self.tasks.get(&tid);
        if task.is_some_and(|task| !task.unsent.pieces.is_empty()) {
            return false;
        }
        match delivery {
            _ if to == console => true,
            Delivery::Done => true,
            Delivery::Asked(host) if host == console => false,
            _ => {
                let ask = Order::FlushAsk(FlushAsk { app: tid, number });
                match self.cx.send_order(console, &ask) {
                    true => self.set_delivery(tid, Delivery::Asked(console)),
                    false => drop(self.unsent.insert(tid)),
                }
                false
            }
        }
    }

    fn set_delivery(&mut self, tid: Tid, delivery: Delivery) {
        if let Some(moving) = self.leaving.get_mut(&tid) {
            moving.delivery = delivery;
        }
    }

    /// The daemon of a console has all that a master wrote here before the move of that number.
    pub(in crate::daemon) fn on_delivered(&mut self, host: HostId, flushed: &Flushed) {
        let tid = flushed.app;
        let asked = |moving: &Leaving| {
            (moving.delivery, moving.number) == (Delivery::Asked(host), flushed.number)
        };
        if self.leaving.get(&tid).is_some_and(asked) {
            self.set_delivery(tid, Delivery::Done);
            self.release_task(tid);
        }
    }

    /// The host of consoles is lost: what waits for them goes to the log, and nobody is waited for.
    pub(in crate::daemon) fn lose_far_console(&mut self, host: HostId) {
        let there = self.tasks.iter().filter(|(_, task)| task.console == host);
        for tid in there.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.unsent.remove(&tid);
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.console = HostId::NONE;
                task.unsent.held = false;
                for (stream, bytes) in std::mem::take(&mut task.unsent.pieces) {
                    self.cx.emit(Output::LogOutput(tid, stream, bytes));
                }
            }
            self.review_pause(tid);
            self.release_task(tid);
        }
    }

    /// The console of a master, on another host, does not read, or reads again.
    pub(in crate::daemon) fn on_run_hold(&mut self, host: HostId, hold: RunHold) {
        if let Some(task) = self.tasks.get_mut(&hold.tid)
            && task.console == host
        {
            task.unsent.held = hold.hold;
            self.review_pause(hold.tid);
        }
    }
}
