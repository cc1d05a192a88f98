//! Reliable messages between daemons: each is an [`Order`], carried by the same channels as the
//! messages of tasks, so it arrives once and in order however often the link breaks.

use super::{Daemon, Question};
use crate::{Filter, Outbox, Output, Received};
use bytes::Bytes;
use vm_wire::{
    Frame, FrameReader, Header, HostId, Tid,
    checkpoint::{KeptSaved, PartSaved, PartStands},
    limits,
    peer::{Order, Usage},
};

/// Daemons speak in one conversation.
const MAIL: Filter = Filter {
    context: 0,
    from: None,
    tag: None,
};

impl Daemon {
    /// Sends an order to another host's daemon; `false` if too many wait already.
    pub(super) fn send_order(&mut self, host: HostId, order: &Order) -> bool {
        let to = Tid::daemon(self.machine, host);
        let payload = Bytes::from(order.to_payload());
        self.endpoint
            .queue(self.now, to, payload, &mut self.frames)
            .is_ok()
    }

    /// Likewise, if it leaves room for orders: it can be lost, and they cannot.
    pub(super) fn send_news(&mut self, host: HostId, order: &Order) -> bool {
        let to = Tid::daemon(self.machine, host);
        self.queue_within(limits::QUEUE_BYTES / 2, to, order)
    }

    /// Likewise, if less than so many bytes wait for that daemon.
    pub(super) fn send_within(&mut self, limit: usize, host: HostId, order: &Order) -> bool {
        let to = Tid::daemon(self.machine, host);
        self.queue_within(limit, to, order)
    }

    fn queue_within(&mut self, limit: usize, to: Tid, order: &Order) -> bool {
        let payload = Bytes::from(order.to_payload());
        let (now, frames) = (self.now, &mut self.frames);
        let queued = self
            .endpoint
            .queue_within(limit as u64, now, to, payload, frames);
        queued.is_ok()
    }

    /// Carries out the orders that have come; whether there was one.
    pub(super) fn read_mail(&mut self, out: &mut Outbox) -> bool {
        let mut any = false;
        while let Some(received) = self.endpoint.take(self.now, &MAIL, &mut self.frames) {
            any = true;
            self.on_order(&received, out);
        }
        any
    }

    fn on_order(&mut self, received: &Received, out: &mut Outbox) {
        let host = received.from.host();
        match Order::from_payload(&received.body) {
            Ok(Order::SpawnOrder(order)) => self.on_spawn_order(host, order, out),
            Ok(Order::SpawnResult(result)) => self.on_spawn_result(host, result, out),
            Ok(Order::SignalOrder(order)) => self.on_signal_order(&order, out),
            Ok(Order::LastAsk(ask)) => self.on_last_ask(host, &ask),
            Ok(Order::Last(last)) => self.on_last(&last, out),
            Ok(Order::OutputLines(lines)) => self.on_output_lines(lines, out),
            Ok(Order::RunHold(hold)) => self.on_run_hold(host, hold, out),
            Ok(Order::KeepOrder(order)) => self.keeper.take_over(&order),
            Ok(Order::Kept(kept)) => self.on_kept(host, &kept.frame, out),
            Ok(Order::UsageAsk(ask)) => {
                let question = self.question(Question::Usage(host, ask.question));
                self.measure(question, out);
            }
            Ok(Order::Usage(Usage { question, rows })) => {
                self.on_listing_rows(question, host, rows, out);
            }
            Ok(Order::FlushAsk(ask)) => self.on_flush_ask(host, ask),
            Ok(Order::Flushed(flushed)) => self.on_flushed(host, &flushed, out),
            Ok(Order::MoveAsk(ask)) => self.on_move_ask(host, &ask, out),
            Ok(Order::MoveEnd(end)) => self.on_move_end(end, out),
            Ok(Order::MoveOffer(offer)) => self.on_move_offer(host, &offer, out),
            Ok(Order::MoveReady(ready)) => self.on_move_ready(host, ready, out),
            Ok(Order::MoveLoaded(loaded)) => self.on_move_loaded(host, loaded, out),
            Ok(Order::MoveRelease(release)) => self.on_move_release(host, release),
            Ok(Order::MoveAbort(abort)) => self.on_move_abort(host, &abort, out),
            Ok(Order::MoveOrder(order)) => self.on_move_order(host, order, out),
            Ok(Order::MoveCancel(cancel)) => self.on_move_cancel(host, cancel, out),
            Ok(Order::MoveReported(reported)) => self.on_move_reported(host, reported, out),
            Ok(Order::MoveProgress(progress)) => self.on_move_progress(&progress),
            Ok(Order::MoveSent(sent)) => self.on_move_sent(&sent),
            Ok(Order::DrainAsk(ask)) => self.on_drain_ask(host, ask, out),
            Ok(Order::DrainEnd(end)) => self.on_drain_end(end, out),
            Ok(Order::CheckAsk(ask)) => self.on_check_ask(host, &ask, out),
            Ok(Order::TaskAnswer(answer)) => self.on_task_answer(answer, out),
            Ok(Order::CheckEnd(end)) => self.on_check_end(end, out),
            Ok(Order::CheckpointAsk(ask)) => self.on_checkpoint_ask(host, ask, out),
            Ok(Order::CheckpointEnd(end)) => self.on_checkpoint_end(end, out),
            Ok(order @ Order::PartStands(PartStands { app, .. }))
            | Ok(order @ Order::PartSaved(PartSaved { app, .. }))
            | Ok(order @ Order::KeptSaved(KeptSaved { app, .. })) => {
                self.on_saved(host, app, &order, out);
            }
            Ok(Order::Committed(committed)) => self.on_committed_at(host, committed, out),
            Ok(Order::CommitHere(order)) => self.on_commit_here(host, order, out),
            Ok(Order::CopyAsk(ask)) => self.on_copy_ask(host, ask, out),
            Ok(Order::CopyEnd(end)) => self.on_copy_end(host, end, out),
            Ok(Order::PartAsk(ask)) => self.on_part_ask(host, ask, out),
            Ok(Order::PartLost(lost)) => self.on_part_lost(host, lost, out),
            Ok(Order::StockAsk(ask)) => self.on_stock_ask(host, ask, out),
            Ok(Order::Stock(stock)) => self.on_stock(host, stock, out),
            Ok(Order::ManifestAsk(ask)) => self.on_manifest_ask(host, ask, out),
            Ok(Order::ManifestEnd(end)) => self.on_manifest_end(host, end, out),
            Ok(Order::CutPrepare(prepare)) => self.on_cut_prepare(host, prepare, out),
            Ok(Order::CutPrepared(prepared)) => self.on_cut_prepared(host, prepared, out),
            Ok(Order::LinksDown(down)) => self.on_links_down(host, down, out),
            Ok(Order::ForgetStored(forget)) if self.has_own_stores() => {
                out.push_back(Output::ForgetStored(forget.app));
            }
            Ok(
                Order::CutAsk(_)
                | Order::CutMade(_)
                | Order::CutLost(_)
                | Order::CutGo(_)
                | Order::CutGone(_)
                | Order::CommitAsk(_)
                | Order::CutClose(_)
                | Order::CutClosed(_)
                | Order::ForgetStored(_),
            ) => self.refuse_peer(host, "what only a coordinator and its daemon say", out),
            Err(error) => self.refuse_peer(host, &error.to_string(), out),
        }
    }

    /// A chunk of an ended task is handed over to this keeper.
    fn on_kept(&mut self, host: HostId, bytes: &[u8], out: &mut Outbox) {
        let mut reader = FrameReader::new();
        reader.push(bytes);
        match reader.next_frame() {
            Ok(Some(frame)) => self.keep_for_other(frame),
            Ok(None) => self.refuse_peer(host, "half a chunk to keep", out),
            Err(error) => self.refuse_peer(host, &error.to_string(), out),
        }
    }

    fn keep_for_other(&mut self, frame: Frame) {
        let Header { to, generation, .. } = frame.header;
        let state = self.agreement.state();
        // What is of an earlier life nobody acknowledges: it would be kept for ever.
        let is_late = state
            .living_task(to)
            .is_some_and(|task| generation < state.epochs(task.app).generation);
        if self.routes.of(to).is_none() || is_late {
            return;
        }
        // A full keeper cannot refuse: who hands over is about to go, or the receiver is. The limit is far above what
        // the receivers of one host can have granted.
        let _ = self.keeper.keep(self.now, frame, &mut self.frames);
    }
}
