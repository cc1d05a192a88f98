//! Reliable messages between daemons. Each is an [`Order`] in a channel like those of tasks, so it
//! arrives once and in order, however often the link breaks.

use super::Daemon;
use crate::StoreOutput;
use vm_endpoint::{Filter, Received};
use vm_wire::{
    Frame, FrameReader, Header, HostId,
    checkpoint::{KeptSaved, PartSaved, PartStands},
    peer::Order,
};

/// The daemons use one context for all orders.
const MAIL: Filter = Filter {
    context: 0,
    from: None,
    tag: None,
    handled: false,
};

impl Daemon {
    /// Carries out the orders that have arrived. `false` if there was none.
    pub(super) fn read_mail(&mut self) -> bool {
        let mut any = false;
        while let Some(received) = self
            .cx
            .endpoint
            .take(self.cx.now, &MAIL, &mut self.cx.frames)
        {
            any = true;
            self.on_order(&received);
            self.deliver_effects();
        }
        any
    }

    fn on_order(&mut self, received: &Received) {
        let host = received.from.host();
        match Order::from_payload(&received.body) {
            Ok(Order::SpawnOrder(order)) => self.on_spawn_order(host, order),
            Ok(Order::SpawnResult(result)) => self.on_spawn_result(host, result),
            Ok(Order::SignalOrder(order)) => self.on_signal_order(&order),
            Ok(Order::LastAsk(ask)) => self.on_last_ask(host, &ask),
            Ok(Order::Last(last)) => self.on_last(&last),
            Ok(Order::OutputLines(lines)) => self.consoles.on_output_lines(&mut self.cx, lines),
            Ok(Order::RunHold(hold)) => {
                let (cx, tasks) = (&mut self.cx, &self.tasks);
                self.consoles.on_run_hold(cx, tasks, host, hold);
            }
            Ok(Order::KeepOrder(order)) => self.cx.keeper.take_over(&order),
            Ok(Order::Kept(kept)) => self.on_kept(host, &kept.frame),
            Ok(Order::UsageAsk(ask)) => {
                let (cx, tasks) = (&mut self.cx, &self.tasks);
                self.consoles.on_usage_ask(cx, tasks, host, ask);
            }
            Ok(Order::Usage(usage)) => self.consoles.on_usage(&mut self.cx, host, usage),
            Ok(Order::FlushAsk(ask)) => {
                let (cx, tasks) = (&mut self.cx, &self.tasks);
                self.consoles.on_flush_ask(cx, tasks, host, ask);
            }
            Ok(Order::Flushed(flushed)) => self.on_flushed(host, &flushed),
            Ok(Order::MoveAsk(ask)) => self.on_move_ask(host, &ask),
            Ok(Order::MoveEnd(end)) => self.on_move_end(end),
            Ok(Order::MoveOffer(offer)) => self.on_move_offer(host, &offer),
            Ok(Order::MoveReady(ready)) => self.on_move_ready(host, ready),
            Ok(Order::MoveLoaded(loaded)) => self.on_move_loaded(host, loaded),
            Ok(Order::MoveRelease(release)) => self.on_move_release(host, release),
            Ok(Order::MoveAbort(abort)) => self.on_move_abort(host, &abort),
            Ok(Order::MoveOrder(order)) => self.on_move_order(host, order),
            Ok(Order::MoveCancel(cancel)) => self.on_move_cancel(host, cancel),
            Ok(Order::MoveReported(reported)) => self.on_move_reported(host, reported),
            Ok(Order::MoveProgress(progress)) => self.on_move_progress(&progress),
            Ok(Order::MoveSent(sent)) => self.on_move_sent(&sent),
            Ok(Order::DrainAsk(ask)) => self.on_drain_ask(host, ask),
            Ok(Order::DrainEnd(end)) => self.on_drain_end(end),
            Ok(Order::CheckAsk(ask)) => self.on_check_ask(host, &ask),
            Ok(Order::TaskAnswer(answer)) => self.on_task_answer(answer),
            Ok(Order::CheckEnd(end)) => self.on_check_end(end),
            Ok(Order::CheckpointAsk(ask)) => self.on_checkpoint_ask(host, ask),
            Ok(Order::CheckpointEnd(end)) => self.on_checkpoint_end(end),
            Ok(order @ Order::PartStands(PartStands { app, .. }))
            | Ok(order @ Order::PartSaved(PartSaved { app, .. }))
            | Ok(order @ Order::KeptSaved(KeptSaved { app, .. })) => {
                self.on_saved(host, app, &order);
            }
            Ok(Order::Committed(committed)) => self.on_committed_at(host, committed),
            Ok(Order::CommitHere(order)) => {
                self.checkpoints
                    .copies
                    .on_commit_here(&mut self.cx, host, order);
            }
            Ok(Order::CopyAsk(ask)) => {
                self.checkpoints.copies.on_copy_ask(&mut self.cx, host, ask);
            }
            Ok(Order::CopyEnd(end)) => self.on_copy_end(host, end),
            Ok(Order::PartAsk(ask)) => {
                self.checkpoints.copies.on_part_ask(&mut self.cx, host, ask);
            }
            Ok(Order::PartLost(lost)) => {
                self.checkpoints
                    .copies
                    .on_part_lost(&mut self.cx, host, lost);
                self.deliver_effects();
            }
            Ok(Order::StockAsk(ask)) => self.restarts.on_stock_ask(&mut self.cx, host, ask),
            Ok(Order::Stock(stock)) => self.restarts.on_stock(&mut self.cx, host, stock),
            Ok(Order::ManifestAsk(ask)) => self.restarts.on_manifest_ask(&mut self.cx, host, ask),
            Ok(Order::ManifestEnd(end)) => self.restarts.on_manifest_end(&mut self.cx, host, end),
            Ok(Order::CutPrepare(prepare)) => self.on_cut_prepare(host, prepare),
            Ok(Order::CutPrepared(prepared)) => self.on_cut_prepared(host, prepared),
            Ok(Order::DirectAsk(ask)) => self.on_direct_ask(host, &ask),
            Ok(Order::DirectReady(ready)) => self.on_direct_ready(host, ready),
            Ok(Order::DirectClosed(closed)) => self.on_direct_closed(host, closed),
            Ok(Order::LinksDown(down)) => {
                let (cx, apps) = (&mut self.cx, self.consoles.applications());
                self.unreachable.on_report(cx, host, down, apps);
            }
            Ok(Order::ForgetStored(forget)) if self.cx.has_own_stores() => {
                self.cx.emit(StoreOutput::Forget(forget.app));
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
            ) => self
                .cx
                .refuse_peer(host, "what only a coordinator and its daemon say"),
            Err(error) => self.cx.refuse_peer(host, &error.to_string()),
        }
    }

    /// Another daemon hands a chunk of an ended task to the keeper of this host.
    fn on_kept(&mut self, host: HostId, bytes: &[u8]) {
        let mut reader = FrameReader::new();
        reader.push(bytes);
        match reader.next_frame() {
            Ok(Some(frame)) => self.keep_for_other(frame),
            Ok(None) => self.cx.refuse_peer(host, "half a chunk to keep"),
            Err(error) => self.cx.refuse_peer(host, &error.to_string()),
        }
    }

    fn keep_for_other(&mut self, frame: Frame) {
        let Header { to, generation, .. } = frame.header;
        let state = self.cx.agreement.state();
        // No task acknowledges a chunk of an earlier generation, so the keeper would retain it for
        // ever.
        let is_late = state
            .living_task(to)
            .is_some_and(|task| generation < state.epochs(task.app).generation);
        if self.cx.routes.of(to).is_none() || is_late {
            return;
        }
        // A full keeper cannot refuse the chunk, because the daemon that hands it over, or the
        // receiver, is about to leave. The limit is far above the credit that the receivers of one
        // host can grant.
        let _ = self.cx.keeper.keep(self.cx.now, frame, &mut self.cx.frames);
    }
}
