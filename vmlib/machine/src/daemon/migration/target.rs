//! The steps of a move at its target: offer, image, release (see [`super`]).

use super::incoming::Arriving;
use crate::{
    MoveOutput,
    daemon::{Daemon, effect::Effect, task_life::End},
    placement,
};
use vm_wire::{
    HostId, Tid,
    agreed::{Change, ExitStatus},
    limits,
    peer::{MoveAbort, MoveLoaded, MoveOffer, MoveReady, MoveRelease, Order},
    task::{FailKind, Failed},
};

impl Daemon {
    /// At the target: replies whether there is room for the task. A task can return to a host
    /// before that host has applied the entry that moved it away, so an offer that is ahead of the
    /// local log waits.
    pub(in crate::daemon) fn on_move_offer(&mut self, from: HostId, offer: &MoveOffer) {
        let known = self.cx.agreement.state().task(offer.tid);
        if known.is_none_or(|task| task.incarnation < offer.incarnation) {
            self.migration
                .early_offers
                .insert(offer.tid, (from, offer.clone()));
        } else {
            self.answer_offer(from, offer);
        }
    }

    /// The local log has applied the owner of a task: replies to the offer that waited for that.
    pub(in crate::daemon) fn review_offer(&mut self, tid: Tid, host: HostId, incarnation: u32) {
        if let Some(offer) = self.take_early_offer(tid, host, incarnation) {
            self.answer_offer(host, &offer);
        }
    }

    pub(in crate::daemon) fn take_early_offer(
        &mut self,
        tid: Tid,
        from: HostId,
        incarnation: u32,
    ) -> Option<MoveOffer> {
        let (host, early) = self.migration.early_offers.get(&tid)?;
        if (*host, early.incarnation) != (from, incarnation) {
            return None;
        }
        self.migration
            .early_offers
            .remove(&tid)
            .map(|(_, offer)| offer)
    }

    pub(in crate::daemon) fn answer_offer(&mut self, from: HostId, offer: &MoveOffer) {
        let MoveOffer {
            tid,
            incarnation,
            number,
        } = *offer;
        let ticket = self.accept_offer(from, tid, incarnation);
        let ready = MoveReady {
            tid,
            incarnation,
            number,
            ticket,
            work_dir: self.cx.config.work_dir.clone(),
        };
        match from == self.cx.me {
            true => self.on_move_ready(from, ready),
            false => drop(self.cx.send_order(from, &Order::MoveReady(ready))),
        }
    }

    pub(in crate::daemon) fn accept_offer(
        &mut self,
        from: HostId,
        tid: Tid,
        incarnation: u32,
    ) -> Result<u64, Failed> {
        let state = self.cx.agreement.state();
        let known = state.living_task(tid);
        if known.is_none_or(|task| (task.host, task.incarnation) != (from, incarnation)) {
            return Err(self.cx.no_such_task(tid));
        }
        let stays = from == self.cx.me && !self.departure.is_underway();
        if self.is_departing() && !stays {
            let text = placement::takes_no_tasks(state, self.cx.me);
            return Err(Failed::new(FailKind::Refused, text));
        }
        // A task that is suspended on this host is counted already.
        if from != self.cx.me && self.room() <= self.migration.arriving.len() as u64 {
            let name = &self.cx.config.facts.name;
            let max = self.cx.config.facts.tasks_max;
            let text = format!("host '{name}' runs {max} tasks, its limit (see vmd --max-tasks)");
            return Err(Failed::new(FailKind::Limit, text));
        }
        let ticket = self.cx.token();
        let arriving = Arriving {
            from,
            incarnation,
            belongings: None,
            lost: false,
            said: Vec::new(),
        };
        if self.migration.arriving.insert(tid, arriving).is_some() {
            // An earlier move of the task, which was aborted.
            self.cx.emit(MoveOutput::Discard(tid));
        }
        // The task uses its files, so their content is current.
        let roll_back = false;
        self.cx.emit(MoveOutput::Expect {
            tid,
            ticket,
            roll_back,
            // The source writes the folders of this host into the image.
            folders: None,
        });
        Ok(ticket)
    }

    /// A process without a task wrote output. Standard error of a restorer is kept: it may give the
    /// reason for a failure.
    pub(in crate::daemon) fn on_restorer_said(&mut self, tid: Tid, stream: u8, bytes: &[u8]) {
        if let Some(arriving) = self
            .migration
            .arriving
            .get_mut(&tid)
            .filter(|_| stream == 2)
        {
            let room = limits::MOVE_WORDS_MAX - arriving.said.len();
            arriving.said.extend(bytes.iter().take(room));
        }
    }

    /// The failure of a process that was to become the task.
    pub(in crate::daemon) fn restorer_ended(&self, tid: Tid, status: ExitStatus) -> Failed {
        let said = self.migration.arriving.get(&tid).map(|arriving| {
            let said = String::from_utf8_lossy(&arriving.said);
            said.trim().replace('\n', "; ")
        });
        let text = match said.filter(|said| !said.is_empty()) {
            Some(said) => said,
            None => format!("the process that was to become it ended ({status})"),
        };
        Failed::new(FailKind::System, text)
    }

    /// At the target: the restored process is ready and frozen, or there is none.
    pub(in crate::daemon) fn on_arrived(&mut self, tid: Tid, result: Result<(), Failed>) {
        let Some(arriving) = self.migration.arriving.get_mut(&tid) else {
            return;
        };
        let (from, incarnation) = (arriving.from, arriving.incarnation);
        if from == HostId::NONE {
            // The log may have started the application already: the task is then lost, and ends.
            arriving.lost |= result.is_err();
            if result.is_ok() {
                // The loss of the host that has sent the image does not concern the task any more.
                self.cx.effect(Effect::ForgetFetched(tid));
            }
            return self.restarts.on_restored(&mut self.cx, tid, result);
        }
        if result.is_err() && arriving.belongings.is_some() {
            // The task is released: the first entry in the log decides.
            if !std::mem::replace(&mut arriving.lost, true) {
                self.cx.agreement.propose(Change::Stay {
                    tid,
                    host: from,
                    incarnation,
                });
            }
            return;
        }
        if result.is_err() {
            self.discard(tid);
        }
        let loaded = MoveLoaded {
            tid,
            incarnation,
            result,
        };
        match from == self.cx.me {
            true => self.on_move_loaded(from, loaded),
            false => drop(self.cx.send_order(from, &Order::MoveLoaded(loaded))),
        }
    }

    pub(in crate::daemon) fn on_move_release(&mut self, from: HostId, release: MoveRelease) {
        let me = self.cx.me;
        let tid = release.tid;
        let Some(arriving) = self.migration.arriving.get_mut(&tid).filter(|arriving| {
            (arriving.from, arriving.incarnation) == (from, release.incarnation)
        }) else {
            return;
        };
        let incarnation = arriving.incarnation;
        let suspended = release.belongings.suspended.is_some();
        arriving.belongings = Some(release.belongings);
        self.cx.agreement.propose(Change::Relocate {
            tid,
            from,
            to: me,
            incarnation,
            suspended,
        });
    }

    pub(in crate::daemon) fn on_move_abort(&mut self, from: HostId, abort: &MoveAbort) {
        self.take_early_offer(abort.tid, from, abort.incarnation);
        if self
            .migration
            .arriving
            .get(&abort.tid)
            .is_some_and(|arriving| {
                (arriving.from, arriving.incarnation) == (from, abort.incarnation)
            })
        {
            self.discard(abort.tid);
        }
    }

    /// Ends the unused restored process of a task.
    pub(in crate::daemon) fn discard(&mut self, tid: Tid) {
        if self.migration.arriving.remove(&tid).is_some() {
            self.cx.emit(MoveOutput::Discard(tid));
        }
    }

    pub(in crate::daemon) fn lose_arrived(&mut self, tid: Tid, incarnation: u32) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            let status = ExitStatus::HostLost;
            task.end = End::Proposed(status);
            self.cx.agreement.propose(Change::Exit {
                tid,
                host: self.cx.me,
                incarnation,
                status,
                killed: false,
                unasked: false,
            });
        }
    }
}
