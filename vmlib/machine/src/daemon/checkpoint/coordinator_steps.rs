//! A checkpoint at the daemon of the application's coordinator: what the coordinator requests of the
//! log and of the stores, and what its daemon reports to the coordinator.
//!
//! The coordinator repeats its requests of the log until it learns the results, so a request is dropped
//! while the log still decides an earlier proposal of this daemon.

use crate::{StoreOutput, daemon::Daemon};
use vm_wire::{
    HostId, Tid,
    agreed::Change,
    checkpoint::{CheckpointEnd, CommitAsk, CutAsk, CutClose, CutClosed, CutGo, CutGone, CutMade},
    peer::Order,
};

/// Cuts.
impl Daemon {
    /// The coordinator here requests a cut.
    pub(in crate::daemon) fn on_cut_ask(&mut self, ask: &CutAsk) {
        let (app, term, stop) = (ask.app, ask.term, ask.stop);
        let epochs = self.cx.agreement.state().epochs(app);
        // A cut that is on its way into the log is not refused any more: no coordinator would end it.
        if epochs.cut.is_none()
            && !self.cx.agreement.is_pending()
            && let Err(failed) = self.no_task_suspended(app)
        {
            // Otherwise the last host that prepares the cut would have it made, for no coordinator.
            self.cancel_preparation(app);
            let end = CheckpointEnd {
                request: 0,
                app,
                result: Err(failed),
            };
            return self.mail_to_coordinator(app, self.cx.me, &Order::CheckpointEnd(end));
        }
        match epochs.cut {
            Some(cut) if cut.term == term => self.tell_cut_made(app),
            Some(_) => self.end_cut(app, epochs.epoch),
            None if !self.is_prepared(ask) || self.cx.agreement.is_pending() => {}
            None => {
                let epoch = epochs.epoch + 1;
                self.cx.agreement.propose(Change::Cut {
                    app,
                    epoch,
                    term,
                    stop,
                });
            }
        }
    }

    /// Reports that the log has made the cut. A cut of which this daemon does not know what was agreed
    /// is ended.
    pub(super) fn tell_cut_made(&mut self, app: Tid) {
        if self.serving_coordinator(app).is_none() {
            return;
        }
        match self.checkpoints.cuts.made(app) {
            Some((_, Some(agreed))) => {
                let agreed = agreed.clone();
                let made = Order::CutMade(CutMade { agreed });
                self.mail_to_coordinator(app, self.cx.me, &made);
            }
            Some((epoch, None)) => self.end_cut(app, epoch),
            None => {}
        }
    }

    /// The coordinator here knows that all tasks are frozen.
    pub(in crate::daemon) fn on_cut_go(&mut self, go: CutGo) {
        let CutGo { app, epoch } = go;
        let epochs = self.cx.agreement.state().epochs(app);
        match epochs.cut.filter(|_| epochs.epoch == epoch) {
            Some(cut) if cut.gone => self.tell_cut_gone(app, epoch),
            Some(_) if !self.cx.agreement.is_pending() => {
                self.cx.agreement.propose(Change::CutGo { app, epoch });
            }
            _ => {}
        }
    }

    /// Reports that the application has resumed.
    pub(super) fn tell_cut_gone(&mut self, app: Tid, epoch: u32) {
        if self.serving_coordinator(app).is_some() {
            let gone = CutGone { app, epoch };
            self.mail_to_coordinator(app, self.cx.me, &Order::CutGone(gone));
        }
    }

    /// The coordinator here ends the cut.
    pub(in crate::daemon) fn on_cut_close(&mut self, close: CutClose) {
        let CutClose {
            app,
            epoch,
            saved,
            cost_us,
            ends,
        } = close;
        let epochs = self.cx.agreement.state().epochs(app);
        if epochs.cut.is_none() || epochs.epoch != epoch {
            let saved = epochs.saved == epoch;
            return self.tell_cut_closed(app, epoch, saved);
        }
        self.checkpoints.cuts.note_ends(app, ends);
        if !self.cx.agreement.is_pending() {
            self.cx.agreement.propose(Change::CutEnd {
                app,
                epoch,
                saved,
                cost_us,
            });
        }
    }

    /// Reports that the log has ended the cut.
    pub(super) fn tell_cut_closed(&mut self, app: Tid, epoch: u32, saved: bool) {
        if self.serving_coordinator(app).is_some() {
            let closed = CutClosed { app, epoch, saved };
            self.mail_to_coordinator(app, self.cx.me, &Order::CutClosed(closed));
        }
    }

    /// Has the log end a cut without a checkpoint.
    pub(super) fn end_cut(&mut self, app: Tid, epoch: u32) {
        self.cx.agreement.propose(Change::CutEnd {
            app,
            epoch,
            saved: false,
            cost_us: 0,
        });
    }

    /// Another coordinator serves here. It cannot finish a cut of an earlier coordinator.
    pub(in crate::daemon) fn end_cut_of_others(&mut self, app: Tid, term: u32) {
        let epochs = self.cx.agreement.state().epochs(app);
        if epochs.cut.is_some_and(|cut| cut.term != term) {
            self.end_cut(app, epochs.epoch);
        }
    }
}

/// Parts of tasks, messages that hosts keep, and the commit.
impl Daemon {
    /// Sends an order about a cut to the coordinator of an application. An order that reaches no
    /// coordinator is dropped: the next coordinator ends the cut.
    pub(super) fn tell_coordinator_of(&mut self, app: Tid, order: &Order) {
        match self.cx.agreement.state().coordinator(app) {
            Some(agreed) if agreed.host == self.cx.me => self.on_saved(self.cx.me, app, order),
            Some(agreed) => {
                self.cx.send_order(agreed.host, order);
            }
            None => {}
        }
    }

    /// A host reports to the coordinator here the result of a task's part, or the messages that the
    /// host keeps.
    pub(in crate::daemon) fn on_saved(&mut self, host: HostId, app: Tid, order: &Order) {
        if self.serving_coordinator(app).is_some() {
            self.mail_to_coordinator(app, host, order);
        }
    }

    /// The coordinator here has all parts.
    pub(in crate::daemon) fn on_commit_ask(&mut self, ask: CommitAsk) {
        let (cuts, cx) = (&mut self.checkpoints.cuts, &mut self.cx);
        if cuts.begin_commit(cx, &ask.checkpoint) {
            cx.emit(StoreOutput::Commit(Box::new(ask.checkpoint)));
        }
    }
}
