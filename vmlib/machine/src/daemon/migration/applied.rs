//! Effects of log entries on tasks that move, and of the loss of a process or host on moves.

use super::{MovesUnderway, incoming::Arriving, outgoing::Leaving};
use crate::{
    MoveOutput, Output,
    daemon::{Daemon, context::past, local_task::LocalTask, task_life::Process},
};
use vm_wire::{
    HostId, Message, Tid,
    agreed::{Change, ExitStatus},
    console::Answer,
    peer::{MoveAbort, Order, SignalOrder},
    task::{FailKind, Failed, Located},
};

impl Daemon {
    /// The moves in which this daemon takes part, for inspection.
    pub fn moves_underway(&self) -> MovesUnderway {
        let frozen = self.tasks.iter().filter(|(_, task)| task.frozen);
        let arriving = self
            .migration
            .arriving
            .keys()
            .chain(self.migration.early_offers.keys());
        MovesUnderway {
            leaving: self.migration.leaving.keys().copied().collect(),
            arriving: arriving.copied().collect(),
            frozen: frozen.map(|(tid, _)| *tid).collect(),
            asked: self.migration.requests.len(),
        }
    }

    /// The log has applied the owner of a task, and its incarnation. `suspended` tells whether the
    /// task is suspended there; `None` if the task stays as it was.
    pub(in crate::daemon) fn on_moved(
        &mut self,
        tid: Tid,
        to: HostId,
        incarnation: u32,
        suspended: Option<bool>,
    ) {
        self.cx.routes.moved(tid, to, incarnation);
        if to == self.cx.me {
            self.settle_here(tid, incarnation, suspended);
        } else {
            self.settle_there(tid, to, suspended);
            // Sends the chunks that this host keeps for the task to the new owner. Chunks that were
            // sent with the release are not taken twice there.
            for ended in self.hand_over_with(tid, to) {
                self.cx.keeper.forget(tid, ended);
            }
        }
        self.consoles.on_moved(&mut self.cx, tid, to);
        self.tell_located(tid, to, incarnation);
        self.review_offer(tid, to, incarnation);
        self.review_ends(tid);
        self.review_early(|_, about| about == tid);
        self.review_answer(tid);
        self.release_held();
    }

    /// The task is on this host: it arrives, stays, is suspended or is resumed.
    pub(in crate::daemon) fn settle_here(
        &mut self,
        tid: Tid,
        incarnation: u32,
        suspended: Option<bool>,
    ) {
        let known = self.tasks.get(&tid).map(LocalTask::is_suspended);
        match (known, suspended) {
            (Some(false), Some(true)) => self.settle_suspended(tid, incarnation),
            (Some(true), Some(false)) => self.settle_resumed(tid, incarnation),
            (Some(_), _) => self.settle_known(tid, incarnation),
            (None, _) => {
                if let Some(arrived) = self.migration.arriving.remove(&tid) {
                    self.settle_arrived(tid, incarnation, arrived, suspended == Some(true));
                }
            }
        }
    }

    /// A task of the local table stays on this host.
    fn settle_known(&mut self, tid: Tid, incarnation: u32) {
        let Some(task) = self.tasks.get(&tid) else {
            return;
        };
        let open = task.process.is_connected() && !task.end.leaves() && !task.frozen;
        self.cx.routes.set_open(tid, open);
        if let Some(status) = task.end.proposed() {
            // The process ended meanwhile. The exit that was proposed then is void.
            self.cx.agreement.propose(Change::Exit {
                tid,
                host: self.cx.me,
                incarnation,
                status,
                killed: task.was_killed(status),
                unasked: false,
            });
        }
        if self.migration.leaving.contains_key(&tid) {
            self.cx.counters.moves.stayed += 1;
            // A restored process may exist if the task was to be resumed on this host.
            self.discard(tid);
            self.resume_in_place(tid);
            let to = self.migration.leaving.get(&tid).map(|moving| moving.to);
            let name = self.cx.host_name(to.unwrap_or_default());
            let why = format!("host '{name}' did not take it in time");
            let failed = self.cannot_move(tid, FailKind::System, &why);
            self.give_up_move(tid, failed);
            self.save_part(tid);
        }
    }

    /// A task that has arrived, or was restored, enters the local table and resumes. If `rests`, it
    /// is a suspended task, which arrives without a process.
    fn settle_arrived(&mut self, tid: Tid, incarnation: u32, arrived: Arriving, rests: bool) {
        if arrived.from != HostId::NONE && !arrived.lost {
            let (shown, from) = (tid.show(self.cx.machine), self.cx.host_name(arrived.from));
            self.cx
                .emit(Output::Note(format!("{shown} has come from '{from}'")));
        }
        let mut belongings = arrived.belongings.unwrap_or_default();
        let task = self.cx.agreement.state().living_task(tid);
        let app = task.map(|task| task.app);
        // The host of the task's console may have been lost since the release.
        let console = match self.cx.agreement.state().may_be_present(belongings.console) {
            true => belongings.console,
            false => HostId::NONE,
        };
        let (hosts, awaits) = (std::mem::take(&mut belongings.hosts), belongings.awaits);
        let image = belongings.suspended.take().filter(|_| rests);
        let mut task = LocalTask::new(app.unwrap_or(tid), console, None);
        task.take_up(belongings);
        task.frozen = rests;
        task.process = image.map_or_else(|| Process::arrived(arrived.lost), Process::Suspended);
        for what in &task.watches {
            self.watching.watchers.entry(*what).or_default().insert(tid);
        }
        self.cx.counters.moves.came += 1;
        self.tasks.insert(tid, task);
        self.cx.routes.set_open(tid, !arrived.lost && !rests);
        let generation = self.cx.living_generation_of(tid);
        match rests {
            // No image is sent for a suspended task.
            true => self.cx.emit(MoveOutput::Discard(tid)),
            false => {
                self.cx.emit(MoveOutput::Begin {
                    tid,
                    incarnation,
                    generation,
                    raw: app == Some(tid) && console != HostId::NONE,
                });
                self.tell_again(tid);
            }
        }
        self.tell_hosts_since(tid, &hosts);
        self.save_part(tid);
        if !self.cx.agreement.state().is_present(awaits) {
            self.ask_anew(tid, awaits);
        }
        if app.is_some_and(|app| self.cx.agreement.state().is_forsaken(app)) {
            self.kill(tid);
        }
        if arrived.lost {
            // The process ended on this host before the log gave the task to this host.
            self.lose_arrived(tid, incarnation);
        }
    }

    /// The task is on another host: removes it from the tables of this host.
    fn settle_there(&mut self, tid: Tid, to: HostId, suspended: Option<bool>) {
        if self.migration.arriving.contains_key(&tid) {
            self.discard(tid);
        }
        let mut sent_again = 0;
        if self.tasks.contains_key(&tid) {
            self.forget_watches(tid);
            self.parked.by_task.remove(&tid);
            self.consoles.forget_output(&mut self.cx, tid);
            let was_suspended = self.is_suspended(tid);
            match suspended {
                Some(true) => self.cx.counters.moves.handed_on += 1,
                _ => {
                    self.cx.counters.moves.resumed += u64::from(was_suspended);
                    self.drop_image(tid);
                }
            }
            if let Some(mut task) = self.tasks.remove(&tid) {
                let unanswered = |moving: &Leaving| moving.unanswered;
                if self.migration.leaving.get(&tid).is_some_and(unanswered)
                    && let Some(answer) = &task.answer
                {
                    self.send_answer_after(tid, task.asked, answer);
                }
                if let Some(ExitStatus::Signal(signal)) = task.end.proposed()
                    && (was_suspended || task.signalled == Some(signal))
                {
                    // The task was ended by this signal while it was suspended or frozen here, so
                    // the signal is sent after it. Signals of this daemon to the process that it
                    // leaves behind do not concern the task.
                    let order = SignalOrder { tid, signal };
                    self.cx.send_order(to, &Order::SignalOrder(order));
                }
                sent_again = task.absent.missed_chunks();
                let (waited, missed) = task.absent.leave(&mut self.routing.absent_bytes);
                self.send_on(tid, waited, missed);
            }
            self.cx.emit(MoveOutput::Discard(tid));
        }
        self.leave_cut(tid);
        self.hold_no_more(tid);
        if let Some(moving) = self.migration.leaving.remove(&tid) {
            self.cx.counters.moves.went += 1;
            self.cx.counters.moves.went_in_doubt += u64::from(moving.doubted);
            let requester = moving.requester;
            let report = moving.report(self.cx.now, (self.cx.me, to), sent_again);
            self.tell_move_end(requester, tid, Ok(report));
        }
    }

    /// Notifies the local tasks, and the keeper, of the host of a task.
    pub(in crate::daemon) fn tell_located(&mut self, tid: Tid, host: HostId, incarnation: u32) {
        let located = Located {
            peer: Some(tid),
            host,
            incarnation,
        };
        let frame = located.frame();
        for (other, task) in &self.tasks {
            if task.process.is_connected() && !task.frozen && *other != tid {
                let frame = frame.clone().between(self.cx.tid, *other);
                self.cx.emit(Output::Task(*other, frame));
            }
        }
        self.cx
            .keeper
            .located(self.cx.now, &located, 0, &mut self.cx.frames);
    }

    /// A task has ended, by its process or by the log: ends its moves.
    pub(in crate::daemon) fn end_moves_of(&mut self, tid: Tid, status: ExitStatus) {
        if let Some(moving) = self.migration.leaving.get(&tid) {
            let abort = MoveAbort {
                tid,
                incarnation: moving.incarnation,
            };
            let to = moving.to;
            self.send_abort(to, abort);
            let text = format!("task {} has {}", tid.show(self.cx.machine), past(status));
            self.give_up_move(tid, Failed::new(FailKind::NoSuchTask, text));
        }
        let state = self.cx.agreement.state();
        if let Some(arriving) = self.migration.arriving.get(&tid)
            && arriving.from != HostId::NONE
            && !state.is_present(arriving.from)
        {
            match arriving.belongings {
                Some(_) => self.cx.counters.moves.sources_lost_released += 1,
                None => self.cx.counters.moves.sources_lost += 1,
            }
        }
        self.review_ends(tid);
        self.review_early(|_, about| about == tid);
        self.migration.early_offers.remove(&tid);
        self.migration.early_answers.remove(&tid);
        self.discard(tid);
    }

    /// A host is lost: tasks that were moving to it stay, and tasks that were moving from it do not
    /// arrive.
    pub(in crate::daemon) fn lose_moves_of(&mut self, host: HostId) {
        self.migration
            .early_offers
            .retain(|_, (from, _)| *from != host);
        for tid in self.tasks.keys().copied().collect::<Vec<_>>() {
            self.ask_anew(tid, host);
        }
        let name = self.cx.host_name(host);
        let there = self
            .migration
            .leaving
            .iter()
            .filter(|(_, moving)| moving.to == host);
        for tid in there.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.cx.counters.moves.targets_lost += 1;
            let why = format!("host '{name}' was lost");
            let failed = self.cannot_move(tid, FailKind::HostLost, &why);
            self.abort_at_source(tid, failed);
        }
        let here = self
            .migration
            .arriving
            .iter()
            .filter(|(_, arriving)| arriving.from == host);
        for tid in here.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.discard(tid);
        }
        let lost = self
            .migration
            .requests
            .iter()
            .filter(|(_, asked)| asked.host == host && !asked.has_ended());
        for number in lost.map(|(number, _)| *number).collect::<Vec<_>>() {
            if let Some(asked) = self.migration.requests.remove(&number) {
                let state = self.cx.agreement.state();
                let owner = asked.tid.and_then(|tid| state.living_task(tid));
                let text = match owner.map(|task| self.cx.host_name(task.host)) {
                    None => format!("host '{name}' was lost, and what ran there"),
                    Some(owner) => format!(
                        "host '{name}' was lost before it told how the move went; the task runs on \
                         '{owner}'"
                    ),
                };
                let failed = Failed::new(FailKind::HostLost, text);
                self.reply_to(asked.requester, &Answer::Failed(failed));
            }
        }
    }
}
