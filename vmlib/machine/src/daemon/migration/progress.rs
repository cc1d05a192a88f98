//! Progress of moves, for the requesters that wait for their ends.
//!
//! The source observes how much of an image was sent. About once a second it reports the amount to
//! the daemon of the requester. That daemon keeps the last report of each move, together with the
//! phase that the coordinator reported, until the move has ended.

use super::{outgoing::Stage, requests::Driven};
use crate::daemon::Daemon;
use vm_wire::{
    Tid,
    console::MoveRow,
    peer::{MoveSent, Order, Sent},
};

impl Daemon {
    /// At the source: part of an image was sent.
    pub(in crate::daemon) fn on_sent(&mut self, tid: Tid, sent: Sent) {
        let Some(moving) = self.migration.leaving.get(&tid) else {
            return;
        };
        let host = moving.requester.host;
        let told = MoveSent {
            request: moving.requester.number,
            tid,
            sent,
        };
        match host == self.cx.me {
            true => self.on_move_sent(&told),
            // A report that finds no room is dropped; the next report replaces it.
            false => {
                self.cx.send_news(host, &Order::MoveSent(told));
            }
        }
    }

    /// At the source: the transfer process has sent the whole image. A transfer process that ends
    /// before the image was written has failed; another input reports that failure.
    pub(in crate::daemon) fn on_sent_all(&mut self, tid: Tid) {
        let now = self.cx.now;
        if let Some(moving) = self.migration.leaving.get_mut(&tid)
            && matches!(moving.stage, Stage::Saving | Stage::Loading)
        {
            moving.sent.get_or_insert(now);
        }
    }

    /// At the daemon of the requester: the source reports how much was sent.
    pub(in crate::daemon) fn on_move_sent(&mut self, told: &MoveSent) {
        let asked = self.migration.requests.get_mut(&told.request);
        if let Some(driven) = asked.and_then(|asked| asked.driven.as_mut())
            && driven.ask.tid == told.tid
        {
            driven.sent = Some(told.sent);
        }
    }

    /// One row for each move that was requested on this host.
    pub(in crate::daemon) fn move_rows(&self) -> Vec<MoveRow> {
        let driven = self.migration.requests.values();
        let driven = driven.filter_map(|asked| asked.driven.as_ref());
        let row = |driven: &Driven| MoveRow {
            tid: driven.ask.tid,
            from: self.cx.host_name(driven.ask.from),
            to: self.cx.host_name(driven.ask.to),
            phase: driven.progress.phase(),
            sent: driven.sent,
        };
        driven.map(row).collect()
    }
}
