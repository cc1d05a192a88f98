//! How far moves are, for those who wait for them.
//!
//! The source sees how much of an image was sent, and tells the daemon at which the move was asked
//! for, about once a second. That daemon keeps the last word of each, beside the phase that the
//! coordinator has told, until the move is over.

use super::{outgoing::Stage, requests::Driven};
use crate::daemon::Daemon;
use vm_wire::{
    Tid,
    console::MoveRow,
    peer::{MoveSent, Order, Sent},
};

impl Daemon {
    /// At the source: so much of an image was sent.
    pub(in crate::daemon) fn on_sent(&mut self, tid: Tid, sent: Sent) {
        let Some(moving) = self.migration.leaving.get(&tid) else {
            return;
        };
        let host = moving.asker.host;
        let told = MoveSent {
            request: moving.asker.number,
            tid,
            sent,
        };
        match host == self.cx.me {
            true => self.on_move_sent(&told),
            // If too many orders wait, the next one tells.
            false => {
                self.cx.send_news(host, &Order::MoveSent(told));
            }
        }
    }

    /// At the source: its sender has ended. What ends before the image was written has failed, of
    /// which others tell.
    pub(in crate::daemon) fn on_sent_all(&mut self, tid: Tid) {
        let now = self.cx.now;
        if let Some(moving) = self.migration.leaving.get_mut(&tid)
            && matches!(moving.stage, Stage::Saving | Stage::Loading)
        {
            moving.sent.get_or_insert(now);
        }
    }

    /// Where the move was asked for.
    pub(in crate::daemon) fn on_move_sent(&mut self, told: &MoveSent) {
        let asked = self.migration.requests.get_mut(&told.request);
        if let Some(driven) = asked.and_then(|asked| asked.driven.as_mut())
            && driven.ask.tid == told.tid
        {
            driven.sent = Some(told.sent);
        }
    }

    /// The moves that were asked for here.
    pub(in crate::daemon) fn move_rows(&self) -> Vec<MoveRow> {
        let driven = self.migration.requests.values();
        let driven = driven.filter_map(|asked| asked.driven.as_ref());
        let row = |driven: &Driven| MoveRow {
            tid: driven.ask.tid,
            from: self.cx.host_name(driven.ask.from),
            to: self.cx.host_name(driven.ask.to),
            phase: driven.phase,
            sent: driven.sent,
        };
        driven.map(row).collect()
    }
}
