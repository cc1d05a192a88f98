//! Effects on all subsystems when a host joins, leaves or is lost, and when this daemon ends.

use super::{
    Daemon,
    host::{HALTED, Next, signal_all},
    signal_numbers::SIGTERM,
};
use crate::Output;
use bytes::BytesMut;
use vm_wire::{
    Body, Frame, HostId, Tid,
    agreed::Change,
    peer::{KeepOrder, Kept, Order},
    task::Located,
};

/// The reason of the end of a daemon that has left in order.
const LEFT: &str = "this host has left the machine";
/// The reason of the end of a daemon whose user did not wait until it had left. The messages that
/// its keeper still retained are lost, as after a crash.
pub const AT_ONCE: &str = "asked to end at once while it was leaving";

impl Daemon {
    /// A user asks this daemon to leave. A second request ends the daemon at once.
    pub(super) fn on_stop(&mut self) {
        self.checkpoints.finished.keep_all();
        let leaves =
            !self.cx.agreement.state().is_staying(self.cx.me) || self.departure.is_underway();
        if leaves || self.is_stopping() {
            return self.end(Ok(AT_ONCE.to_owned()));
        }
        match self.cx.config.drain_at_stop {
            Some(grace) => self.drain_at_stop(self.cx.now + grace),
            None => self.cx.agreement.propose(Change::HostLeaving(self.cx.me)),
        }
    }

    pub(super) fn on_host_leaving(&mut self, host: HostId) {
        self.consoles.on_host_leaving(&mut self.cx, host);
        if host == self.cx.me {
            self.end_drain_at_leave();
            self.end_tasks();
            self.departure.leave(&mut self.cx);
        }
    }

    pub(super) fn on_halted(&mut self, index: u64) {
        self.departure.cancel();
        self.checkpoints.finished.clear_all(&mut self.cx);
        self.end_tasks();
        self.departure.halt(&mut self.cx, index);
    }

    /// Asks the tasks of this host to end.
    fn end_tasks(&mut self) {
        signal_all(&mut self.cx, &self.tasks, SIGTERM);
        self.end_suspended();
    }

    /// Does the next step of this daemon's end, if its time has come.
    pub(super) fn review_departure(&mut self) {
        match self.departure.review(&mut self.cx, &self.tasks) {
            Next::Wait => {}
            Next::HandOver => self.review_leave(),
            Next::End(how) => self.end(how),
        }
    }

    fn review_leave(&mut self) {
        if !self.tasks.is_empty()
            || !self.births.ordered.is_empty()
            || !self.births.enrolling.is_empty()
        {
            return;
        }
        if self.cx.is_alone() {
            let why = "the last host has left, and with it the machine ends";
            return self.end(Ok(why.to_owned()));
        }
        // The acknowledgements cause another review.
        if self.cx.endpoint.is_drained() && !self.cx.keeper.is_empty() {
            self.hand_over();
            // The queued frames leave in this step.
            while let Some(frame) = self.cx.frames.pop_front() {
                self.forward(frame, false);
            }
        }
        let is_empty = self.cx.endpoint.is_drained() && self.cx.keeper.is_empty();
        if is_empty && self.cx.agreement.may_go() {
            self.departure.propose(&mut self.cx);
        }
    }

    /// Hands the kept messages to the daemons of the receivers' hosts, as far as the channels have
    /// room. One pair always fits, because it is not longer than a window.
    fn hand_over(&mut self) {
        while let Some((order, chunks)) = self.cx.keeper.first() {
            let (to, from) = (order.to, order.from);
            let receiver = self.cx.agreement.state().living_task(to);
            let host = receiver.map(|task| task.host);
            if let Some(host) = host.filter(|host| *host != self.cx.me)
                && !self.hand_to(host, order, chunks)
            {
                return;
            }
            self.cx.keeper.forget(to, from);
        }
    }

    /// Makes that daemon the keeper of a pair. `false` if not all chunks are in the channel. The
    /// call can then be repeated, because that daemon does not take a chunk twice.
    fn hand_to(&mut self, host: HostId, order: KeepOrder, chunks: Vec<Frame>) -> bool {
        let handed = |chunk: Frame| {
            let mut bytes = BytesMut::with_capacity(chunk.len());
            chunk.write_to(&mut bytes);
            let frame = Body::from(bytes.to_vec());
            Order::Kept(Kept { frame })
        };
        // The chunks must be sent in order: the other keeper takes no chunk after a gap.
        self.cx.send_order(host, &Order::KeepOrder(order))
            && chunks
                .into_iter()
                .all(|chunk| self.cx.send_order(host, &handed(chunk)))
    }

    /// Hands the messages that this host took over for `tid` from hosts that have left to the
    /// daemon of the host `to`, where `tid` is going to be. A daemon that requests the last number
    /// from that host then gets it. Returns the ended tasks whose chunks are all in the channel.
    pub(super) fn hand_over_with(&mut self, tid: Tid, to: HostId) -> Vec<Tid> {
        let state = self.cx.agreement.state();
        let has_left = |ended: Tid| {
            let task = state.task(ended).filter(|task| !task.is_alive());
            task.is_some_and(|task| task.host != self.cx.me && !state.is_present(task.host))
        };
        let kept = self.cx.keeper.kept_for(tid);
        let kept: Vec<_> = kept.filter(|(order, _)| has_left(order.from)).collect();
        let mut handed = Vec::new();
        for (order, chunks) in kept {
            let ended = order.from;
            handed.extend(self.hand_to(to, order, chunks).then_some(ended));
        }
        handed
    }

    pub(super) fn on_host_joined(&mut self, host: HostId) {
        if host != self.cx.me {
            let name = self.cx.host_name(host);
            self.cx
                .emit(Output::Note(format!("host '{name}' has joined")));
        }
        self.notify_host(host, true);
        self.consoles.on_host_joined(&mut self.cx, host);
        self.unreachable.on_host_joined(&mut self.cx, host);
        self.release_held();
    }

    /// A host has left or was declared dead. The log has applied the ends of its tasks just before.
    pub(super) fn on_host_lost(&mut self, host: HostId) {
        if host == self.cx.me {
            let end = match self.departure.is_proposed() {
                true => Ok(LEFT.to_owned()),
                false => Err("this host was declared dead by the others".to_owned()),
            };
            return self.end(end);
        }
        let name = self.cx.host_name(host);
        self.cx.emit(Output::Note(match self.died(host) {
            true => format!(
                "host '{name}' is lost: it was not heard of for longer than its lease; its tasks \
                 have ended, or go back to their last checkpoint"
            ),
            false => format!("host '{name}' has left"),
        }));
        let located = Located {
            peer: Some(Tid::daemon(self.cx.machine, host)),
            host: HostId::NONE,
            incarnation: 0,
        };
        self.cx
            .endpoint
            .located(self.cx.now, &located, 0, &mut self.cx.frames);
        self.cut_link(host);
        self.directs.on_link_changed(&mut self.cx, host);
        self.lose_spawns_of(host);
        self.lose_numbers_of(host);
        self.lose_parts_of(host);
        self.lose_preparations_of(host);
        self.lose_stores_of(host);
        self.consoles.lose_listings_of(&mut self.cx, host);
        self.consoles.lose_flushes_of(&mut self.cx, host);
        self.lose_far_console(host);
        self.lose_moves_of(host);
        self.notify_kept(host);
        self.notify_host(host, false);
        self.consoles.on_host_gone(&mut self.cx, host);
    }

    /// This host is not in the machine any more, or no majority of the voters is left.
    pub(super) fn on_lost(&mut self, why: String) {
        let halted = self.cx.agreement.state().halted();
        self.end(if halted {
            Ok(HALTED.to_owned())
        } else {
            Err(why)
        });
    }

    /// The last link has broken. If this host has proposed that it is gone, the broken link shows
    /// that the log has applied that: a host that applies `HostGone` closes its link.
    pub(super) fn on_last_link_down(&mut self) {
        if self.departure.is_proposed() {
            self.end(Ok(LEFT.to_owned()));
        }
    }

    /// Ends this daemon: the last outputs, for the given reason.
    pub(super) fn end(&mut self, how: Result<String, String>) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        if how.is_ok() {
            self.consoles.on_end(&mut self.cx);
        }
        self.consoles.end_all_runs(&mut self.cx, how.is_err());
        self.cx.emit(Output::End(how));
    }
}
