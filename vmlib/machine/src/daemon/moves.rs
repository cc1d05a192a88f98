//! Moves of tasks from host to host (AGREEMENT, "Who owns a task").
//!
//! ```text
//! source                                   target
//! MoveOffer                            ->  is there room?
//!                                      <-  MoveReady(ticket)
//! task runs, memory  -> transfer       ->  restorer
//! task frozen, rest  -> transfer       ->  verified, frozen
//!                                      <-  MoveLoaded
//! MoveRelease (belongings)             ->  proposes Relocate
//!            Relocate applied: the source ends its copy, the target lets its own go on
//! ```
//!
//! The coordinator of the task's application orders it and is told of each phase
//! (`coordinators`); nothing below waits for it.
//!
//! Until `MoveRelease` the source alone may take everything back: the task runs on where it is.
//! After it the log decides: `Relocate`, proposed by the target, or `Stay`, proposed by the source
//! once it is in doubt, or the death of the target. Whichever comes first holds, so the task runs
//! exactly once.
//!
//! While a task is frozen, what comes for it waits here, and follows it; a sender whose frames find no
//! room is asked to send them again. When it moves, every daemon tells its tasks.
//!
//! What is unread in the task's socket does not move: its request under way is answered before the
//! release, or asked anew at the target; what it was told and has not acknowledged goes along. An
//! offer that is ahead of the target's log waits until that has caught up: a task may come back
//! before its old host knows that it went.

use super::{Daemon, Timer, requests::Waiting, tasks::LocalTask};
use crate::{Outbox, Output, Time, Written, placement};
use bytes::BytesMut;
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    Body, Frame, FrameReader, HostId, Message, Tid,
    agreed::{Change, ExitStatus},
    console::Answer,
    interrupt::Folders,
    limits,
    peer::{
        Belongings, MoveAbort, MoveAsk, MoveEnd, MoveLoaded, MoveOffer, MovePhase, MoveReady,
        MoveRelease, MoveReport, MoveWay, Order, Sent,
    },
    task::{FailKind, Failed, Located},
};

/// A task of this host that is on its way to another.
#[derive(Debug)]
pub(super) struct Leaving {
    to: HostId,
    incarnation: u32,
    way: MoveWay,
    /// Of the offer.
    number: u64,
    /// Whose wish it is: a daemon, and its number for it.
    pub asker: (HostId, u64),
    pub stage: Stage,
    /// When each stage began, as far as they have.
    begun: Time,
    prepared: Time,
    copied: Time,
    saved: Time,
    /// When all of the image was sent, if that was seen.
    pub sent: Option<Time>,
    loaded: Option<Time>,
    released: Time,
    /// What was sent while the task ran: bytes and rounds.
    rounds: (u64, u32),
    written: Written,
    /// It was released before its request was answered: the answer is to follow it.
    unanswered: bool,
    /// It was released, and then proposed that it stays.
    doubted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The target was asked.
    Offered,
    /// The task was told to write its image; it runs. Left at once where there is no pre-copy.
    Copying,
    /// The task was told to stop and to write the rest.
    Saving,
    /// The image is written; the target is to say that it has it.
    Loading,
    /// The target may propose.
    Released,
}

/// A task of another host that is on its way here.
#[derive(Debug)]
pub(super) struct Arriving {
    from: HostId,
    incarnation: u32,
    /// What belongs to it, once the source has released it.
    belongings: Option<Belongings>,
    /// Its process has ended before it could go on.
    lost: bool,
    /// What that process has said on its standard error: why it could not become the task.
    said: Vec<u8>,
}

/// A wish for a move, a drain or a check, by the number that this daemon gave it.
#[derive(Debug)]
pub(super) struct MoveAsked {
    pub asker: MoveAsker,
    /// Whose daemon answers: the owner of the task, or the host itself.
    pub host: HostId,
    /// The task, unless it is all of a host.
    pub tid: Option<Tid>,
    /// What its coordinator needs, if it is a move.
    pub driven: Option<Driven>,
}

impl MoveAsked {
    /// Whether it is known how it ended, and only the log here is behind.
    pub fn has_ended(&self) -> bool {
        let driven = self.driven.as_ref();
        driven.is_some_and(|driven| driven.ended.is_some())
    }
}

/// How a move that is wanted here stands with the coordinator that drives it.
#[derive(Debug)]
pub(super) struct Driven {
    /// As it is asked.
    pub ask: MoveAsk,
    /// When it was last asked.
    pub asked_at: Time,
    /// How it ended, while the log here does not know it yet.
    pub ended: Option<MoveReport>,
    /// How far it is, as the coordinator says.
    pub phase: Option<MovePhase>,
    /// How much was sent, as the source says.
    pub sent: Option<Sent>,
}

/// Whose wish it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveAsker {
    /// A console's, by its number.
    Console(crate::ConnId, u64),
    /// A task's, by its number. It may have moved since.
    Task(Tid, u64),
    /// This host's own, whose tasks are to leave.
    Drain,
}

/// A frame as bytes that travel.
pub(super) fn whole(frame: &Frame) -> Body {
    let mut bytes = BytesMut::with_capacity(frame.len());
    frame.write_to(&mut bytes);
    Body::from(bytes.to_vec())
}

/// A frame that travelled as bytes.
pub(super) fn frame_of(bytes: &[u8]) -> Option<Frame> {
    let mut reader = FrameReader::new();
    reader.push(bytes);
    reader.next_frame().ok().flatten()
}

/// What became of the moves that this daemon had a part in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MoveCounters {
    /// Tasks that came here.
    pub came: u64,
    /// Tasks that went elsewhere.
    pub went: u64,
    /// Taken back: the target refused, or did not answer.
    pub offers_refused: u64,
    /// Taken back: the task could not be saved, or its image not be written.
    pub saves_refused: u64,
    /// Taken back: the image did not reach the target whole, or its process ended there.
    pub images_lost: u64,
    /// Taken back: the target's host was lost or left.
    pub targets_lost: u64,
    /// Taken back after the release: the log said that the task stays.
    pub stayed: u64,
    /// Went although this daemon, in doubt, had proposed that they stay.
    pub went_in_doubt: u64,
    /// Not come: the host that had offered them was lost before it released them.
    pub sources_lost: u64,
    /// Likewise, after it had.
    pub sources_lost_released: u64,
    /// Taken back: a coordinator called them off.
    pub called_off: u64,
    /// Orders of former coordinators, which did nothing.
    pub orders_stale: u64,
    /// Coordinators here whose processes died, or did not start.
    pub coordinators_lost: u64,
    /// Coordinators here that did not answer.
    pub coordinators_hung: u64,
    /// Frames that waited because their receiver stood still.
    pub frames_kept: u64,
}

/// What of moves is under way at a daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovesUnderway {
    /// Tasks here that are on their way elsewhere.
    pub leaving: Vec<Tid>,
    /// Tasks from elsewhere that are on their way here.
    pub arriving: Vec<Tid>,
    /// Tasks here that stand still.
    pub frozen: Vec<Tid>,
    /// Wishes here that were not answered.
    pub asked: usize,
}

impl MovesUnderway {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Daemon {
    /// What of moves is under way here, to be looked at.
    pub fn moves_underway(&self) -> MovesUnderway {
        let frozen = self.tasks.iter().filter(|(_, task)| task.frozen);
        let arriving = self.arriving.keys().chain(self.early_offers.keys());
        MovesUnderway {
            leaving: self.leaving.keys().copied().collect(),
            arriving: arriving.copied().collect(),
            frozen: frozen.map(|(tid, _)| *tid).collect(),
            asked: self.asked_moves.len(),
        }
    }

    /// Somebody here wants a task moved. The answer comes with the end of the move.
    pub(super) fn ask_move(
        &mut self,
        asker: MoveAsker,
        tid: Tid,
        name: Option<&str>,
        way: MoveWay,
        out: &mut Outbox,
    ) -> Result<(), Failed> {
        let state = self.agreement.state();
        let Some(task) = state.living_task(tid) else {
            return Err(self.no_such_task(tid));
        };
        let owner = task.host;
        let to = match name {
            Some(name) => match state.host_named(name) {
                Some(host) => host,
                None => return Err(placement::no_such_host(state, name)),
            },
            None => self.choose_target(owner, &BTreeSet::new())?,
        };
        self.want_move(asker, tid, owner, to, way, out);
        Ok(())
    }

    /// A wish for a move of a living task: the coordinator of its application is asked.
    pub(super) fn want_move(
        &mut self,
        asker: MoveAsker,
        tid: Tid,
        from: HostId,
        to: HostId,
        way: MoveWay,
        out: &mut Outbox,
    ) {
        let (request, asked_at) = (self.note_asked(asker, from, Some(tid)), self.now);
        let known = self.agreement.state().living_task(tid);
        let incarnation = known.map_or(0, |task| task.incarnation);
        if let Some(asked) = self.asked_moves.get_mut(&request) {
            asked.driven = Some(Driven {
                ask: MoveAsk {
                    request,
                    tid,
                    from,
                    incarnation,
                    to,
                    way,
                },
                asked_at,
                ended: None,
                phase: None,
                sent: None,
            });
        }
        self.ask_coordinator(request, out);
    }

    /// A number for a wish that the daemon of `host` will answer.
    pub(super) fn note_asked(&mut self, asker: MoveAsker, host: HostId, tid: Option<Tid>) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        let asked = MoveAsked {
            asker,
            host,
            tid,
            driven: None,
        };
        self.asked_moves.insert(request, asked);
        request
    }

    /// Tells whoever had that wish what came of it.
    pub(super) fn answer_asked(&mut self, request: u64, answer: &Answer, out: &mut Outbox) {
        if let Some(asked) = self.asked_moves.remove(&request) {
            self.answer_asker(asked.asker, answer, out);
        }
    }

    fn answer_asker(&mut self, asker: MoveAsker, answer: &Answer, out: &mut Outbox) {
        match asker {
            MoveAsker::Console(conn, number) => self.answer_console(conn, number, answer, out),
            MoveAsker::Task(tid, request) => self.answer_far_task(tid, request, answer, out),
            // Its moves end where it is.
            MoveAsker::Drain => {}
        }
    }

    /// The living host of the same architecture with most room for each of its processors, and
    /// none of `except`. What is on its way from here, or is to leave in a drain, counts as there.
    pub(super) fn choose_target(
        &self,
        from: HostId,
        except: &BTreeSet<HostId>,
    ) -> Result<HostId, Failed> {
        let mut coming: BTreeMap<HostId, u64> = BTreeMap::new();
        for moving in self.leaving.values() {
            *coming.entry(moving.to).or_default() += 1;
        }
        let asked = self.asked_moves.values();
        for driven in asked
            .filter(|asked| asked.asker == MoveAsker::Drain)
            .filter_map(|asked| asked.driven.as_ref())
        {
            if !self.leaving.contains_key(&driven.ask.tid) {
                *coming.entry(driven.ask.to).or_default() += 1;
            }
        }
        placement::best_target(self.agreement.state(), from, except, &coming)
    }

    /// Has a task of this host offered to another, if nothing speaks against it.
    pub(super) fn begin_move(
        &mut self,
        asker: (HostId, u64),
        tid: Tid,
        to: HostId,
        way: MoveWay,
    ) -> Result<(), Failed> {
        let refuse = |text: String| Failed::new(FailKind::Refused, text);
        let shown = tid.show(self.machine).to_string();
        let state = self.agreement.state();
        let Some(agreed) = state.living_task(tid) else {
            return Err(self.no_such_task(tid));
        };
        if agreed.host != self.me {
            let name = self.host_name(agreed.host);
            return Err(refuse(format!("task {shown} has just moved to '{name}'")));
        }
        if to == self.me {
            let name = &self.config.facts.name;
            return Err(refuse(format!("task {shown} is on '{name}' already")));
        }
        if !state.is_living(to) {
            return Err(refuse(placement::takes_no_tasks(state, to)));
        }
        if let Some(text) = placement::unlike(state, self.me, to) {
            return Err(refuse(format!(
                "task {shown} cannot be moved there: {text}"
            )));
        }
        if let Some(reason) = self.objections(tid).into_iter().next() {
            return Err(refuse(format!("task {shown} cannot be moved: {reason}")));
        }
        let incarnation = agreed.incarnation;
        let number = self.next_request;
        self.next_request += 1;
        let offer = MoveOffer {
            tid,
            incarnation,
            number,
        };
        if !self.send_order(to, &Order::MoveOffer(offer)) {
            let text = "too many orders wait to be sent to that host; try again";
            return Err(Failed::new(FailKind::Limit, text));
        }
        let now = self.now;
        self.leaving.insert(
            tid,
            Leaving {
                to,
                incarnation,
                way,
                number,
                asker,
                stage: Stage::Offered,
                begun: now,
                prepared: now,
                copied: now,
                saved: now,
                sent: None,
                loaded: None,
                released: now,
                rounds: (0, 0),
                written: Written::default(),
                unanswered: false,
                doubted: false,
            },
        );
        self.set_timer(now + limits::MOVE_OFFER_TIME, Timer::Move(tid, incarnation));
        Ok(())
    }

    /// At the target: is there room? Where a task was is forgotten before it comes back, so an offer
    /// that is ahead of the log here waits for it.
    pub(super) fn on_move_offer(&mut self, from: HostId, offer: &MoveOffer, out: &mut Outbox) {
        let known = self.agreement.state().task(offer.tid);
        if known.is_none_or(|task| task.incarnation < offer.incarnation) {
            self.early_offers.insert(offer.tid, (from, offer.clone()));
        } else {
            self.answer_offer(from, offer, out);
        }
    }

    /// The log has come to know where a task is.
    pub(super) fn review_offer(
        &mut self,
        tid: Tid,
        host: HostId,
        incarnation: u32,
        out: &mut Outbox,
    ) {
        if let Some(offer) = self.take_early_offer(tid, host, incarnation) {
            self.answer_offer(host, &offer, out);
        }
    }

    fn take_early_offer(&mut self, tid: Tid, from: HostId, incarnation: u32) -> Option<MoveOffer> {
        let (host, early) = self.early_offers.get(&tid)?;
        if (*host, early.incarnation) != (from, incarnation) {
            return None;
        }
        self.early_offers.remove(&tid).map(|(_, offer)| offer)
    }

    fn answer_offer(&mut self, from: HostId, offer: &MoveOffer, out: &mut Outbox) {
        let MoveOffer {
            tid,
            incarnation,
            number,
        } = *offer;
        let ticket = self.accept_offer(from, tid, incarnation, out);
        let ready = MoveReady {
            tid,
            incarnation,
            number,
            ticket,
            work_dir: self.config.work_dir.clone(),
        };
        self.send_order(from, &Order::MoveReady(ready));
    }

    fn accept_offer(
        &mut self,
        from: HostId,
        tid: Tid,
        incarnation: u32,
        out: &mut Outbox,
    ) -> Result<u64, Failed> {
        let state = self.agreement.state();
        let known = state.living_task(tid);
        if known.is_none_or(|task| (task.host, task.incarnation) != (from, incarnation)) {
            return Err(self.no_such_task(tid));
        }
        if self.is_departing() {
            let text = placement::takes_no_tasks(state, self.me);
            return Err(Failed::new(FailKind::Refused, text));
        }
        if self.room() <= self.arriving.len() as u64 {
            let name = &self.config.facts.name;
            let max = self.config.facts.tasks_max;
            let text = format!("host '{name}' runs {max} tasks, its limit (see vmd --max-tasks)");
            return Err(Failed::new(FailKind::Limit, text));
        }
        let ticket = self.token();
        let arriving = Arriving {
            from,
            incarnation,
            belongings: None,
            lost: false,
            said: Vec::new(),
        };
        if self.arriving.insert(tid, arriving).is_some() {
            // An earlier move of it that was taken back.
            out.push_back(Output::Discard(tid));
        }
        out.push_back(Output::Expect { tid, ticket });
        Ok(ticket)
    }

    pub(super) fn on_move_ready(&mut self, from: HostId, ready: MoveReady, out: &mut Outbox) {
        let (now, tid) = (self.now, ready.tid);
        let Some(moving) = self.leaving.get_mut(&tid).filter(|moving| {
            (moving.to, moving.number, moving.stage) == (from, ready.number, Stage::Offered)
        }) else {
            return;
        };
        let ticket = match ready.ticket {
            Ok(ticket) => ticket,
            Err(failed) => {
                self.counters.moves.offers_refused += 1;
                return self.give_up_move(tid, failed, out);
            }
        };
        let Some(host) = self.agreement.state().host(from) else {
            return;
        };
        (moving.stage, moving.prepared) = (Stage::Copying, now);
        let (addr, incarnation, way) = (host.facts.addr.clone(), moving.incarnation, moving.way);
        self.set_timer(now + limits::MOVE_TIME, Timer::Move(tid, incarnation));
        let folders = self.config.work_dir.clone().zip(ready.work_dir);
        let folders = folders.map(|(here, there)| Folders { here, there });
        out.push_back(Output::Copy {
            tid,
            addr,
            ticket,
            way,
            folders: folders.filter(|folders| folders.here != folders.there),
        });
        self.report_phase(tid);
        if !way.precopy {
            self.on_copied(tid, 0, 0, out);
        }
    }

    /// What is left of the task's memory is to be written while it stands.
    pub(super) fn on_copied(&mut self, tid: Tid, bytes: u64, rounds: u32, out: &mut Outbox) {
        let Some(moving) = self.leaving.get_mut(&tid) else {
            return;
        };
        if moving.stage != Stage::Copying {
            return;
        }
        (moving.stage, moving.copied) = (Stage::Saving, self.now);
        moving.rounds = (bytes, rounds);
        let way = moving.way;
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.frozen = true;
        }
        self.routes.set_connected(tid, false);
        out.push_back(Output::Freeze(tid, way));
        self.report_phase(tid);
    }

    /// The task has stopped and written its image, or says why it cannot: then it runs on.
    pub(super) fn on_frozen(
        &mut self,
        tid: Tid,
        result: Result<Written, Failed>,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let Some(moving) = self.leaving.get_mut(&tid) else {
            return;
        };
        match (result, moving.stage) {
            (Ok(written), Stage::Saving) => {
                (moving.stage, moving.saved, moving.written) = (Stage::Loading, now, written);
                self.report_phase(tid);
                self.release_task(tid);
            }
            (Err(failed), Stage::Copying | Stage::Saving) => {
                self.counters.moves.saves_refused += 1;
                let failed = self.cannot_move(tid, failed.kind, &failed.text);
                self.take_back(tid, failed, out);
            }
            // It was written, but not sent.
            (Err(failed), Stage::Loading) if moving.loaded.is_none() => {
                self.counters.moves.images_lost += 1;
                let failed = self.cannot_move(tid, failed.kind, &failed.text);
                self.take_back(tid, failed, out);
            }
            _ => {}
        }
    }

    /// What whoever asked is told when a task is taken back.
    fn cannot_move(&self, tid: Tid, kind: FailKind, why: &str) -> Failed {
        let shown = tid.show(self.machine);
        let mut text = format!("task {shown} cannot be moved: {why}");
        // Unless it is about to end.
        if kind != FailKind::NoSuchTask {
            text = format!("{text}; it runs on '{}'", self.config.facts.name);
        }
        Failed::new(kind, text)
    }

    /// A process that is no task here says something: perhaps why it cannot become one that comes.
    pub(super) fn on_restorer_said(&mut self, tid: Tid, stream: u8, bytes: &[u8]) {
        if let Some(arriving) = self.arriving.get_mut(&tid).filter(|_| stream == 2) {
            let room = limits::MOVE_WORDS_MAX - arriving.said.len();
            arriving.said.extend(bytes.iter().take(room));
        }
    }

    /// Why there is no process that could become that task.
    pub(super) fn restorer_ended(&self, tid: Tid, status: ExitStatus) -> Failed {
        let said = self.arriving.get(&tid).map(|arriving| {
            let said = String::from_utf8_lossy(&arriving.said);
            said.trim().replace('\n', "; ")
        });
        let text = match said.filter(|said| !said.is_empty()) {
            Some(said) => said,
            None => format!("the process that was to become it ended ({status})"),
        };
        Failed::new(FailKind::System, text)
    }

    /// At the target: the process of the image stands ready, or there is none.
    pub(super) fn on_arrived(&mut self, tid: Tid, result: Result<(), Failed>, out: &mut Outbox) {
        let Some(arriving) = self.arriving.get_mut(&tid) else {
            return;
        };
        let (from, incarnation) = (arriving.from, arriving.incarnation);
        if result.is_err() && arriving.belongings.is_some() {
            // Released: whoever is first in the log decides.
            if !std::mem::replace(&mut arriving.lost, true) {
                self.agreement.propose(Change::Stay {
                    tid,
                    host: from,
                    incarnation,
                });
            }
            return;
        }
        if result.is_err() {
            self.discard(tid, out);
        }
        let loaded = MoveLoaded {
            tid,
            incarnation,
            result,
        };
        self.send_order(from, &Order::MoveLoaded(loaded));
    }

    pub(super) fn on_move_loaded(&mut self, from: HostId, loaded: MoveLoaded, out: &mut Outbox) {
        let (now, tid) = (self.now, loaded.tid);
        let Some(moving) = self.leaving.get_mut(&tid).filter(|moving| {
            (moving.to, moving.incarnation) == (from, loaded.incarnation)
                && matches!(
                    moving.stage,
                    Stage::Copying | Stage::Saving | Stage::Loading
                )
        }) else {
            return;
        };
        match loaded.result {
            Ok(()) => {
                moving.loaded = Some(now);
                self.release_task(tid);
            }
            Err(failed) => {
                self.counters.moves.images_lost += 1;
                let name = self.host_name(from);
                let why = format!("host '{name}' could not bring it back: {}", failed.text);
                let failed = self.cannot_move(tid, failed.kind, &why);
                self.take_back(tid, failed, out);
            }
        }
    }

    /// Whether the log decides where the task goes on.
    pub(super) fn is_released(&self, tid: Tid) -> bool {
        let moving = self.leaving.get(&tid);
        moving.is_some_and(|moving| moving.stage == Stage::Released)
    }

    /// At the source: the right to resume the task goes to the log, once its image is whole and
    /// its request answered. Only a request that changes nothing may go on there, as a new one.
    pub(super) fn release_task(&mut self, tid: Tid) {
        let watches = self.watches_of(tid);
        let (Some(moving), Some(task)) = (self.leaving.get_mut(&tid), self.tasks.get(&tid)) else {
            return;
        };
        let (asks_again, awaits) = match task.waiting {
            None => (false, HostId::NONE),
            Some(Waiting::GroupVersion(_)) => (true, HostId::NONE),
            Some(Waiting::Asked) => (false, self.me),
            Some(Waiting::Elsewhere(host)) => (false, host),
            Some(_) => return,
        };
        if moving.stage != Stage::Loading || moving.loaded.is_none() {
            return;
        }
        (moving.stage, moving.released) = (Stage::Released, self.now);
        moving.unanswered = awaits != HostId::NONE;
        let (to, incarnation) = (moving.to, moving.incarnation);
        let belongings = Belongings {
            siblings: task.siblings as u32,
            console: task.console,
            watches,
            asked: task.asked.saturating_sub(u64::from(asks_again)),
            answer: task.answer.as_ref().map(whole),
            awaits,
            told: task.told,
            untaken: task.untaken.iter().map(whole).collect(),
            hosts: self.known.iter().copied().collect(),
        };
        let release = MoveRelease {
            tid,
            incarnation,
            belongings,
        };
        self.send_order(to, &Order::MoveRelease(release));
        self.report_phase(tid);
        self.set_timer(self.now + limits::MOVE_DOUBT, Timer::Move(tid, incarnation));
    }

    pub(super) fn on_move_release(&mut self, from: HostId, release: MoveRelease) {
        let me = self.me;
        let tid = release.tid;
        let Some(arriving) = self.arriving.get_mut(&tid).filter(|arriving| {
            (arriving.from, arriving.incarnation) == (from, release.incarnation)
        }) else {
            return;
        };
        let incarnation = arriving.incarnation;
        arriving.belongings = Some(release.belongings);
        self.agreement.propose(Change::Relocate {
            tid,
            from,
            to: me,
            incarnation,
        });
    }

    pub(super) fn on_move_abort(&mut self, from: HostId, abort: &MoveAbort, out: &mut Outbox) {
        self.take_early_offer(abort.tid, from, abort.incarnation);
        if self.arriving.get(&abort.tid).is_some_and(|arriving| {
            (arriving.from, arriving.incarnation) == (from, abort.incarnation)
        }) {
            self.discard(abort.tid, out);
        }
    }

    /// The target's copy is of no use.
    fn discard(&mut self, tid: Tid, out: &mut Outbox) {
        if self.arriving.remove(&tid).is_some() {
            out.push_back(Output::Discard(tid));
        }
    }

    /// Before the release: the task runs on here.
    pub(super) fn take_back(&mut self, tid: Tid, failed: Failed, out: &mut Outbox) {
        if let Some(moving) = self.leaving.get(&tid) {
            let (to, incarnation) = (moving.to, moving.incarnation);
            let abort = MoveAbort { tid, incarnation };
            self.send_order(to, &Order::MoveAbort(abort));
        }
        self.thaw(tid, out);
        self.give_up_move(tid, failed, out);
    }

    /// The task goes on here, under whatever incarnation.
    fn thaw(&mut self, tid: Tid, out: &mut Outbox) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        if !std::mem::replace(&mut task.frozen, false) {
            return;
        }
        let connected = task.connected && !task.leaving;
        let (waited, missed) = task.absent.leave(&mut self.absent_bytes);
        self.routes.set_connected(tid, connected);
        out.push_back(Output::Resume(tid));
        self.tell_again(tid, out);
        self.send_on(tid, waited, missed, out);
    }

    fn give_up_move(&mut self, tid: Tid, failed: Failed, out: &mut Outbox) {
        if let Some(moving) = self.leaving.remove(&tid) {
            if moving.stage == Stage::Copying {
                out.push_back(Output::CancelCopy(tid));
            }
            self.tell_move_end(moving.asker, tid, Err(failed), out);
        }
    }

    pub(super) fn tell_move_end(
        &mut self,
        asker: (HostId, u64),
        tid: Tid,
        result: Result<MoveReport, Failed>,
        out: &mut Outbox,
    ) {
        self.remember_move_end(asker, tid, &result);
        self.send_move_end(asker, tid, result, out);
    }

    pub(super) fn on_move_end(&mut self, end: MoveEnd, out: &mut Outbox) {
        let asked = self.asked_moves.get(&end.request);
        if asked.is_some_and(|asked| asked.asker == MoveAsker::Drain) {
            self.asked_moves.remove(&end.request);
            return self.on_drain_move_end(end);
        }
        let answer = match end.result {
            Ok(report) => {
                // Who hears of it may ask for the next at once, and is to be understood then.
                let state = self.agreement.state();
                let known = state.living_task(end.tid).map(|task| task.incarnation);
                let asked = self.asked_moves.get_mut(&end.request);
                let driven = asked.and_then(|asked| asked.driven.as_mut());
                match driven {
                    Some(driven) if known.is_some_and(|known| known <= driven.ask.incarnation) => {
                        driven.ended = Some(report);
                        return;
                    }
                    _ => Answer::Moved(report),
                }
            }
            Err(failed) => Answer::Failed(failed),
        };
        self.answer_asked(end.request, &answer, out);
    }

    /// The log has come to know where a task is, or that it has ended: who wanted it there is told.
    fn review_ends(&mut self, tid: Tid, out: &mut Outbox) {
        let mut ends = Vec::new();
        for (request, asked) in &mut self.asked_moves {
            if let Some(driven) = &mut asked.driven
                && driven.ask.tid == tid
                && let Some(report) = driven.ended.take()
            {
                ends.push((*request, report));
            }
        }
        for (request, report) in ends {
            self.answer_asked(request, &Answer::Moved(report), out);
        }
    }

    /// A stage takes too long.
    pub(super) fn on_move_due(&mut self, tid: Tid, incarnation: u32, out: &mut Outbox) {
        let Some(moving) = self.leaving.get_mut(&tid) else {
            return;
        };
        if moving.incarnation != incarnation {
            return;
        }
        let (begun, prepared, to) = (moving.begun, moving.prepared, moving.to);
        let stage = moving.stage;
        moving.doubted |= stage == Stage::Released;
        let name = self.host_name(to);
        let late = |why: &str| self.cannot_move(tid, FailKind::System, why);
        let no_link = self.links_lost.get(&to);
        let no_link = no_link.is_some_and(|since| self.now >= *since + limits::MOVE_NO_LINK);
        match stage {
            Stage::Offered if self.now >= begun + limits::MOVE_OFFER_TIME => {
                let failed = late(&format!("host '{name}' does not answer"));
                self.counters.moves.offers_refused += 1;
                self.take_back(tid, failed, out);
            }
            Stage::Copying | Stage::Saving | Stage::Loading if no_link => {
                let time = limits::MOVE_NO_LINK;
                let failed = late(&format!("host '{name}' cannot be reached for {time:?}"));
                self.counters.moves.images_lost += 1;
                self.take_back(tid, failed, out);
            }
            Stage::Copying | Stage::Saving | Stage::Loading
                if self.now >= prepared + limits::MOVE_TIME =>
            {
                let time = limits::MOVE_TIME;
                let failed = late(&format!(
                    "its image did not arrive at host '{name}' within {time:?}"
                ));
                self.counters.moves.images_lost += 1;
                self.take_back(tid, failed, out);
            }
            Stage::Released => {
                self.agreement.propose(Change::Stay {
                    tid,
                    host: self.me,
                    incarnation,
                });
                self.set_timer(self.now + limits::MOVE_TIME, Timer::Move(tid, incarnation));
            }
            _ => {}
        }
    }

    /// There is no link to the target of moves, perhaps for long: they are looked at in time.
    pub(super) fn await_link(&mut self, host: HostId) {
        let due = self.now + limits::MOVE_NO_LINK;
        let there = self.leaving.iter().filter(|(_, moving)| moving.to == host);
        let there: Vec<Timer> = there
            .map(|(tid, moving)| Timer::Move(*tid, moving.incarnation))
            .collect();
        for timer in there {
            self.set_timer(due, timer);
        }
    }

    /// The log says where a task is from now on, and under which incarnation.
    pub(super) fn on_moved(&mut self, tid: Tid, to: HostId, incarnation: u32, out: &mut Outbox) {
        self.routes.moved(tid, to, incarnation);
        if to == self.me {
            self.settle_here(tid, incarnation, out);
        } else {
            self.settle_there(tid, to, out);
        }
        let app = self.agreement.state().living_task(tid).map(|task| task.app);
        if let Some(run) = app.and_then(|app| self.runs.get_mut(&app)) {
            run.hosts.insert(to);
        }
        self.tell_located(tid, to, incarnation, out);
        self.review_offer(tid, to, incarnation, out);
        self.review_ends(tid, out);
        self.review_early(|_, about| about == tid, out);
        self.review_answer(tid, out);
        self.release_held(out);
    }

    /// It is this host's: it arrives, or stays.
    fn settle_here(&mut self, tid: Tid, incarnation: u32, out: &mut Outbox) {
        if let Some(task) = self.tasks.get(&tid) {
            let connected = task.connected && !task.leaving && !task.frozen;
            self.routes.set_connected(tid, connected);
            if let Some(status) = task.status {
                // It ended meanwhile; what was proposed then is void.
                self.agreement.propose(Change::Exit {
                    tid,
                    host: self.me,
                    incarnation,
                    status,
                });
            }
            if self.leaving.contains_key(&tid) {
                self.counters.moves.stayed += 1;
                self.thaw(tid, out);
                let to = self.leaving.get(&tid).map(|moving| moving.to);
                let name = self.host_name(to.unwrap_or_default());
                let why = format!("host '{name}' did not take it in time");
                let failed = self.cannot_move(tid, FailKind::System, &why);
                self.give_up_move(tid, failed, out);
            }
            return;
        }
        let Some(arrived) = self.arriving.remove(&tid) else {
            return;
        };
        let belongings = arrived.belongings.unwrap_or_default();
        let app = self.agreement.state().living_task(tid).map(|task| task.app);
        let mut task = LocalTask::new(app.unwrap_or(tid), belongings.console, None);
        task.siblings = belongings.siblings as usize;
        task.asked = belongings.asked;
        task.answer = belongings.answer.as_ref().and_then(|bytes| frame_of(bytes));
        if belongings.awaits != HostId::NONE {
            task.waiting = Some(Waiting::Elsewhere(belongings.awaits));
        }
        task.told = belongings.told;
        task.untaken = belongings
            .untaken
            .iter()
            .filter_map(|bytes| frame_of(bytes))
            .collect();
        task.connected = !arrived.lost;
        task.process = !arrived.lost;
        for what in belongings.watches {
            task.watches.insert(what);
            self.watchers.entry(what).or_default().insert(tid);
        }
        self.counters.moves.came += 1;
        self.tasks.insert(tid, task);
        self.routes.set_connected(tid, !arrived.lost);
        out.push_back(Output::Begin { tid, incarnation });
        self.tell_again(tid, out);
        self.tell_hosts_since(tid, &belongings.hosts, out);
        if !self.agreement.state().is_present(belongings.awaits) {
            self.ask_anew(tid, belongings.awaits);
        }
        if arrived.lost {
            // It ended here before the log gave it to this host.
            self.lose_arrived(tid, incarnation);
        }
    }

    fn lose_arrived(&mut self, tid: Tid, incarnation: u32) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.exiting = true;
            self.agreement.propose(Change::Exit {
                tid,
                host: self.me,
                incarnation,
                status: ExitStatus::HostLost,
            });
        }
    }

    /// It is another host's.
    fn settle_there(&mut self, tid: Tid, to: HostId, out: &mut Outbox) {
        if self.arriving.contains_key(&tid) {
            self.discard(tid, out);
        }
        let mut sent_again = 0;
        if self.tasks.contains_key(&tid) {
            self.forget_watches(tid);
            self.parked.remove(&tid);
            if let Some(mut task) = self.tasks.remove(&tid) {
                let unanswered = |moving: &Leaving| moving.unanswered;
                if self.leaving.get(&tid).is_some_and(unanswered)
                    && let Some(answer) = &task.answer
                {
                    self.send_answer_after(tid, task.asked, answer);
                }
                sent_again = task.absent.missed_chunks();
                let (waited, missed) = task.absent.leave(&mut self.absent_bytes);
                self.send_on(tid, waited, missed, out);
            }
            out.push_back(Output::Discard(tid));
        }
        if let Some(moving) = self.leaving.remove(&tid) {
            self.counters.moves.went += 1;
            self.counters.moves.went_in_doubt += u64::from(moving.doubted);
            let span = |from: Time, to: Time| to.since(from).as_micros() as u64;
            let loaded = moving.loaded.unwrap_or(moving.saved).max(moving.saved);
            // Whoever has all of it may be quicker to say so than the end of the sender is seen.
            let sent = moving.sent.unwrap_or(loaded).clamp(moving.saved, loaded);
            let stopped = span(moving.copied, moving.saved);
            let save_us = (moving.written.time.as_micros() as u64).min(stopped);
            let report = MoveReport {
                from: self.me,
                to,
                bytes: moving.written.bytes,
                copied: moving.rounds.0,
                rounds: moving.rounds.1,
                total_us: span(moving.begun, self.now),
                prepare_us: span(moving.begun, moving.prepared),
                copy_us: span(moving.prepared, moving.copied),
                interrupt_us: stopped - save_us,
                save_us,
                transfer_us: span(moving.saved, sent),
                restore_us: span(sent, loaded),
                drain_us: span(loaded, moving.released),
                commit_us: span(moving.released, self.now),
                sent_again,
            };
            self.tell_move_end(moving.asker, tid, Ok(report), out);
        }
    }

    /// Tells the tasks here, and this daemon's own ends of channels, where a task is.
    fn tell_located(&mut self, tid: Tid, host: HostId, incarnation: u32, out: &mut Outbox) {
        let located = Located {
            peer: Some(tid),
            host,
            incarnation,
        };
        let frame = located.frame();
        for (other, task) in &self.tasks {
            if task.connected && !task.frozen && *other != tid {
                let frame = frame.clone().between(self.tid, *other);
                out.push_back(Output::Task(*other, frame));
            }
        }
        self.keeper.located(self.now, &located, &mut self.frames);
    }

    /// A task here ended while it was on its way, or the log says so.
    pub(super) fn end_moves_of(&mut self, tid: Tid, out: &mut Outbox) {
        if let Some(moving) = self.leaving.get(&tid) {
            let abort = MoveAbort {
                tid,
                incarnation: moving.incarnation,
            };
            let to = moving.to;
            self.send_order(to, &Order::MoveAbort(abort));
            let text = format!("task {} has ended", tid.show(self.machine));
            self.give_up_move(tid, Failed::new(FailKind::NoSuchTask, text), out);
        }
        let state = self.agreement.state();
        if let Some(arriving) = self.arriving.get(&tid)
            && !state.is_present(arriving.from)
        {
            match arriving.belongings {
                Some(_) => self.counters.moves.sources_lost_released += 1,
                None => self.counters.moves.sources_lost += 1,
            }
        }
        self.review_ends(tid, out);
        self.review_early(|_, about| about == tid, out);
        self.early_offers.remove(&tid);
        self.early_answers.remove(&tid);
        self.discard(tid, out);
    }

    /// A host is gone: what was on its way there stays, what was awaited from it does not come.
    pub(super) fn lose_moves_of(&mut self, host: HostId, out: &mut Outbox) {
        self.early_offers.retain(|_, (from, _)| *from != host);
        for tid in self.tasks.keys().copied().collect::<Vec<_>>() {
            self.ask_anew(tid, host);
        }
        let name = self.host_name(host);
        let there = self.leaving.iter().filter(|(_, moving)| moving.to == host);
        for tid in there.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.counters.moves.targets_lost += 1;
            self.thaw(tid, out);
            let why = format!("host '{name}' was lost");
            let failed = self.cannot_move(tid, FailKind::HostLost, &why);
            self.give_up_move(tid, failed, out);
        }
        let here = self
            .arriving
            .iter()
            .filter(|(_, arriving)| arriving.from == host);
        for tid in here.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.discard(tid, out);
        }
        let lost = self
            .asked_moves
            .iter()
            .filter(|(_, asked)| asked.host == host && !asked.has_ended());
        for number in lost.map(|(number, _)| *number).collect::<Vec<_>>() {
            if let Some(asked) = self.asked_moves.remove(&number) {
                let state = self.agreement.state();
                let owner = asked.tid.and_then(|tid| state.living_task(tid));
                let text = match owner.map(|task| self.host_name(task.host)) {
                    None => format!("host '{name}' was lost, and what ran there"),
                    Some(owner) => format!(
                        "host '{name}' was lost before it told how the move went; the task runs on \
                         '{owner}'"
                    ),
                };
                let failed = Failed::new(FailKind::HostLost, text);
                self.answer_asker(asked.asker, &Answer::Failed(failed), out);
            }
        }
    }
}
