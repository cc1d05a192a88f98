//! Tasks that move: the part of the processes, as the library and the daemons' shells play it.
//!
//! An order reaches a process after a small delay, and meanwhile the program runs. Then the process
//! is frozen; its *image* is the program at that moment. The image is written, crosses the network,
//! and is restored as another frozen process. Each of these steps may fail. Frames in the sockets
//! are not part of an image.
//!
//! A process and the processes that are restored from its image are *copies*. Of all copies of one
//! freeze only one may ever resume: the first copy that resumes claims the freeze.

use super::state::{
    Event, World,
    fault::Ambush,
    image::{Fate, Image},
    process::{Gait, Order},
    request::MoveRequest,
};
use crate::sim::{
    coverage::Turn,
    network::Slot,
    node::{State, slot_of},
    program::Sabotage,
    queue::{MS, Moment, SECOND},
};
use vm_machine::{ConnId, Input, MoveInput, Written};
use vm_wire::{
    HostId, Op, Tid,
    console::{Answer, Request},
    peer::MoveWay,
    task::{FailKind, Failed},
};

/// How long a transfer waits while packets are lost before its connection is given up.
pub(super) const PATIENCE: Moment = 5 * SECOND;
/// Interval at which a transfer checks for lost packets.
const LOOK: Moment = 50 * MS;

impl World {
    /// Consoles request moves: sometimes one, sometimes many.
    pub(super) fn request_moves(&mut self) {
        if self.is_quiet() {
            return;
        }
        let pause = self.random.between(10 * MS, 500 * MS);
        self.queue.after(pause, Event::Requests);
        let count = if self.random.percent(25) {
            self.random.between(2, 8)
        } else {
            1
        };
        for _ in 0..count {
            let Some(tid) = self.some_task() else {
                return;
            };
            if self.random.percent(if self.secluded { 20 } else { 6 }) {
                self.request_checkpoint(tid);
                continue;
            }
            let name = self.random.pick(&self.nodes).map(|node| node.name.clone());
            let to = name.filter(|_| self.random.percent(70));
            self.request_move(tid, to, false);
            if self.random.percent(15) {
                self.request_move(tid, None, false);
            }
        }
    }

    fn some_task(&mut self) -> Option<Tid> {
        let key = *self
            .random
            .pick(&self.rosters.keys().copied().collect::<Vec<_>>())?;
        let roster = self.rosters.get(&key)?;
        self.random.pick(roster).copied()
    }

    fn request_move(&mut self, tid: Tid, to: Option<String>, back: bool) {
        let running = self.running();
        let Some(&slot) = self.random.pick(&running) else {
            return;
        };
        let way = MoveWay {
            precopy: self.random.percent(80),
            compress: false,
            suspended: false,
        };
        let conn = self.request(slot, tid, &Request::Move(tid, to, way), back);
        if self.random.percent(5) {
            let patience = self.random.below(2 * SECOND);
            self.queue.after(patience, Event::Leaves(conn));
        }
    }

    /// A console sends a request that moves a task.
    pub(super) fn request(&mut self, slot: Slot, tid: Tid, what: &Request, back: bool) -> ConnId {
        let conn = self.ask_for(slot, what);
        let request = MoveRequest {
            slot,
            tid,
            answered: false,
            gone: false,
            back,
        };
        self.requests.insert(conn, request);
        conn
    }

    /// Closes a console that waits for a move.
    pub(super) fn console_leaves(&mut self, conn: ConnId) -> Result<(), String> {
        let Some(request) = self
            .requests
            .get_mut(&conn)
            .filter(|request| !request.answered)
        else {
            return Ok(());
        };
        request.gone = true;
        let slot = request.slot;
        self.feed(slot, Input::ConnGone(conn))
    }

    /// Handles the reply to the request of a console.
    pub(super) fn on_reply(&mut self, conn: ConnId, answer: &Answer) -> Result<(), String> {
        let Some(request) = self.requests.get_mut(&conn) else {
            return Ok(());
        };
        let (tid, slot, back) = (request.tid, request.slot, request.back);
        if std::mem::replace(&mut request.answered, true) {
            return Err(format!("a console was told twice of a move of {tid}"));
        }
        self.queue
            .after(10, Event::Input(slot, Input::ConnGone(conn)));
        self.trace(|| format!("the move of {tid} is answered: {answer:?}"));
        let Answer::Moved(report) = answer else {
            return match answer {
                // If a majority is left, there is always a coordinator that takes up a move.
                Answer::Failed(failed)
                    if failed.text.contains("has not answered within") && !self.harsh =>
                {
                    Err(format!("the move of {tid}: {failed}"))
                }
                Answer::Failed(_) => Ok(()),
                other => Err(format!("a move of {tid} was answered with {other:?}")),
            };
        };
        self.turns.note(Turn::Answered);
        if back {
            self.turns.note(Turn::Back);
        }
        if !self.is_quiet() && self.random.percent(25) {
            let from = self.slot_of_host(report.from);
            let name = from.map(|slot| self.nodes[slot].name.clone());
            self.request_move(tid, name, true);
        }
        Ok(())
    }

    /// The description of a move that has not ended, if there is one.
    pub(super) fn unsettled_moves(&self) -> Option<String> {
        let process = self
            .processes
            .iter()
            .find(|process| process.alive && process.gait != Gait::Runs);
        if let Some(process) = process {
            return Some(format!(
                "{} stands still on slot {}",
                process.tid, process.slot
            ));
        }
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            let underway = node.daemon.as_ref()?.moves_underway();
            if !underway.is_empty() {
                return Some(format!("{} has left over {underway:?}", node.host));
            }
        }
        let waits = |request: &&MoveRequest| {
            !request.answered && !request.gone && self.nodes[request.slot].is_running()
        };
        if let Some(request) = self.requests.values().find(waits) {
            return Some(format!("a console waits for the move of {}", request.tid));
        }
        let tid = self.suspended_tasks().pop()?;
        Some(format!("{tid} is suspended"))
    }

    /// A daemon opens a connection for the image of a task, and may start pre-copy.
    pub(super) fn copy(
        &mut self,
        slot: Slot,
        tid: Tid,
        address: &str,
        ticket: u64,
        way: MoveWay,
    ) -> Result<(), String> {
        let to = slot_of(address).ok_or("a task is frozen for nowhere")?;
        self.aim_at(slot, to, tid);
        if way.precopy {
            self.order(slot, tid, Order::Copy(to, ticket));
        } else {
            self.opened.insert((slot, tid), (to, ticket));
        }
        Ok(())
    }

    /// A daemon freezes a task.
    pub(super) fn freeze(&mut self, slot: Slot, tid: Tid, way: MoveWay) {
        if let Some((name, number)) = self.shelf.opened.remove(&(slot, tid)) {
            return self.order(slot, tid, Order::Suspend(name, number));
        }
        if let Some(way) = self.store.opened.remove(&(slot, tid)) {
            return self.order(slot, tid, Order::Save(way));
        }
        let opened = self.opened.remove(&(slot, tid)).filter(|_| !way.precopy);
        self.order(slot, tid, Order::Freeze(opened));
    }

    /// A daemon sends an order to a process.
    pub(super) fn order(&mut self, slot: Slot, tid: Tid, order: Order) {
        let Some(index) = self.process_of(slot, tid) else {
            return;
        };
        let delay = match self.random.percent(20) {
            true => self.random.below(5 * MS),
            false => self.random.between(5, 100),
        };
        let process = &mut self.processes[index];
        process.images.0 += u64::from(order.is_of_image());
        process.arrival_order = process.arrival_order.max(self.queue.now() + delay);
        self.queue
            .at(process.arrival_order, Event::Order(index, order));
    }

    /// Handles an order that reaches a process. A process that writes its image reads no order.
    pub(super) fn heed(&mut self, index: usize, order: Order) -> Result<(), String> {
        let process = &mut self.processes[index];
        if !process.alive || process.discarded {
            return Ok(());
        }
        if process.gait == Gait::Saves {
            process.orders.push(order);
            return Ok(());
        }
        process.images.1 += u64::from(order.is_of_image());
        match (process.gait, order) {
            (Gait::Saves, _) => unreachable!("orders wait"),
            (Gait::Runs, Order::Copy(to, ticket)) => {
                process.copying = Some((to, ticket));
                let tid = process.tid;
                if self.random.percent(5) {
                    let failed = Failed::new(FailKind::Refused, "it has an open socket");
                    self.report(index, Input::Move(MoveInput::Frozen(tid, Err(failed))));
                } else {
                    let time = self.random.between(100, 300 * MS);
                    self.queue.after(time, Event::Copied(index, ticket));
                }
                Ok(())
            }
            (Gait::Runs, Order::Freeze(opened)) => {
                if let Some((to, ticket)) = process.copying.take().or(opened) {
                    self.stand(index, to, ticket);
                }
                Ok(())
            }
            (Gait::Runs, Order::Save(way)) => {
                process.copying = None;
                self.stand_for_store(index, way);
                Ok(())
            }
            (Gait::Runs, Order::Suspend(name, number)) => {
                process.copying = None;
                self.stand_for_shelf(index, name, number);
                Ok(())
            }
            (Gait::Runs, Order::Cancel) => {
                process.copying = None;
                Ok(())
            }
            (Gait::Stands, Order::Go(generation)) => self.go(index, generation),
            // The process runs anyway, or is frozen for another reason: the order has no effect.
            (Gait::Runs, Order::Go(_)) | (Gait::Stands, _) => Ok(()),
        }
    }

    /// Handles the end of the pre-copy of a process.
    pub(super) fn copied(&mut self, index: usize, ticket: u64) {
        let process = &self.processes[index];
        let current = process.copying.is_some_and(|(_, now)| now == ticket);
        if process.alive && process.gait == Gait::Runs && current {
            self.report(
                index,
                Input::Move(MoveInput::Copied(process.tid, 1 << 20, 2)),
            );
        }
    }

    /// Freezes a process. Its image is the program at this moment.
    fn stand(&mut self, index: usize, to: Slot, ticket: u64) {
        let now = self.queue.now();
        let fate = match self.random.below(100) {
            0..6 => Fate::Unsavable,
            6..11 => Fate::BreaksEarly,
            11..16 => Fate::BreaksLate,
            16..21 => Fate::Unrestorable,
            _ => Fate::Arrives,
        };
        let time = match self.random.below(100) {
            0..70 => self.random.between(500, 60 * MS),
            70..95 => self.random.between(60 * MS, 700 * MS),
            _ => self.random.between(700 * MS, 4 * SECOND),
        };
        let freeze = self.claims.len();
        let process = &mut self.processes[index];
        let leaves = process
            .program
            .as_ref()
            .is_some_and(|program| program.request() == Some(Op::Exit));
        if !leaves && let Some(program) = &mut process.program {
            self.rings.kept += program.close_rings();
            program.close_directs(&mut process.random);
        }
        let Some(program) = process.program.clone().filter(|_| !leaves) else {
            let failed = Failed::new(FailKind::Busy, "it is leaving the machine");
            return self.report(
                index,
                Input::Move(MoveInput::Frozen(self.processes[index].tid, Err(failed))),
            );
        };
        process.gait = Gait::Saves;
        process.freeze = Some(freeze);
        let (from, tid) = (process.slot, process.tid);
        let saved_at = process.time(&self.nodes[from], now);
        self.claims.push(None);
        self.trace(|| format!("{tid} stands, to be moved to slot {to}: {fate:?}"));
        let image = Image {
            from,
            to,
            ticket,
            tid,
            of: index,
            freeze,
            program,
            saved_at,
            give_up: now + time + PATIENCE,
            fate,
        };
        self.images.push(Some(image));
        let time = match fate {
            Fate::Unsavable => time / 50,
            _ => time,
        };
        self.queue.after(time, Event::Saved(self.images.len() - 1));
    }

    /// Sends a report of a process to its daemon, after a random delay.
    pub(super) fn report(&mut self, index: usize, input: Input) {
        let delay = match self.random.percent(20) {
            true => self.random.below(5 * MS),
            false => self.random.between(5, 100),
        };
        let process = &mut self.processes[index];
        process.arrival_report = process.arrival_report.max(self.queue.now() + delay);
        let report = Event::Report(index, process.images.1, input);
        self.queue.at(process.arrival_report, report);
    }

    /// Delivers a report that a process made after it had read `images` orders for an image. A
    /// report about an abandoned image is dropped.
    pub(super) fn reported(
        &mut self,
        index: usize,
        images: u64,
        input: Input,
    ) -> Result<(), String> {
        let of_image = matches!(
            input,
            Input::Move(MoveInput::Copied(..)) | Input::Move(MoveInput::Frozen(..))
        );
        match of_image && images < self.processes[index].images.0 {
            true => Ok(()),
            false => self.process_says(index, input),
        }
    }

    /// Handles a process that has written its image, or cannot write it.
    pub(super) fn saved(&mut self, number: usize) -> Result<(), String> {
        let Some(image) = &self.images[number] else {
            return Ok(());
        };
        let (index, from, to, fate) = (image.of, image.from, image.to, image.fate);
        let (tid, give_up, freeze) = (image.tid, image.give_up, image.freeze);
        let blocked = self.network.link(from, to).0.is_blocked() && from != to;
        let refused = !self.nodes[to].is_alive() || self.ticket_of(number).is_none();
        if !self.processes[index].alive {
            // The bytes that have arrived are not a whole image.
            self.image_lost(number);
            return Ok(());
        }
        if blocked && !refused && fate != Fate::Unsavable && self.queue.now() < give_up {
            self.queue.after(LOOK, Event::Saved(number));
            return Ok(());
        }
        let saved = matches!(fate, Fate::Arrives | Fate::BreaksLate | Fate::Unrestorable)
            && !blocked
            && !refused;
        self.trace(|| format!("{tid} is saved: {saved}"));
        let process = &mut self.processes[index];
        if saved {
            process.gait = Gait::Stands;
            let written = Written {
                bytes: 1 << 20,
                ..Written::default()
            };
            self.report(index, Input::Move(MoveInput::Frozen(tid, Ok(written))));
            let delay = self.random.between(60, 30 * MS);
            self.queue.after(delay, Event::Crosses(number));
            if self.options.sabotage == Some(Sabotage::GoOnAlone) {
                let generation = self.generation_of(index);
                self.queue
                    .after(delay + 50 * MS, Event::Order(index, Order::Go(generation)));
            }
        } else {
            process.gait = Gait::Runs;
            let failed = Failed::new(FailKind::Refused, "the image cannot be written");
            self.report(index, Input::Move(MoveInput::Frozen(tid, Err(failed))));
            self.image_lost(number);
            // The process resumes by itself.
            self.claim(freeze, index)?;
            self.walk_on(index);
        }
        for order in std::mem::take(&mut self.processes[index].orders) {
            self.heed(index, order)?;
        }
        Ok(())
    }

    /// The task for which the target expects this image.
    fn ticket_of(&self, number: usize) -> Option<Tid> {
        let image = self.images[number].as_ref()?;
        self.expected.get(&(image.to, image.ticket)).copied()
    }

    /// Loses an image: the target sees the connection end, if there was one.
    fn image_lost(&mut self, number: usize) {
        if self.random.percent(70) {
            let delay = self.random.between(60, 20 * MS);
            if let Some(image) = &mut self.images[number] {
                image.fate = Fate::BreaksLate;
                self.queue.after(delay, Event::Crosses(number));
            }
        } else {
            self.images[number] = None;
        }
    }

    /// Handles the end of an image that reaches its target.
    pub(super) fn crosses(&mut self, number: usize) -> Result<(), String> {
        let Some(image) = &self.images[number] else {
            return Ok(());
        };
        let (from, to) = (image.from, image.to);
        if !self.nodes[to].is_alive() {
            self.images[number] = None;
            return Ok(());
        }
        let late = self.queue.now() >= image.give_up;
        let blocked = self.network.link(from, to).0.is_blocked() && from != to;
        if (blocked && !late) || self.nodes[to].state == State::Stopped {
            self.queue.after(LOOK, Event::Crosses(number));
            return Ok(());
        }
        let cut = !self.nodes[from].is_alive() && self.random.percent(50);
        let Some(image) = self.images[number].take() else {
            return Ok(());
        };
        let Some(tid) = self.expected.remove(&(to, image.ticket)) else {
            self.trace(|| format!("nobody on slot {to} awaits the image of {}", image.tid));
            return Ok(());
        };
        if blocked || cut || image.fate != Fate::Arrives {
            let failed = Failed::new(FailKind::System, "it cannot be brought back");
            self.turns.note(Turn::ImageLost);
            return self.feed(to, Input::Move(MoveInput::Arrived(tid, Err(failed))));
        }
        let now = self.queue.now();
        let index = self.new_process(to, tid, None);
        let shown = self.nodes[to].time(now);
        let process = &mut self.processes[index];
        let mut program = image.program;
        program.lose_rings();
        program.lose_directs();
        process.program = Some(program);
        process.offset = image.saved_at.0 as i64 - shown.0 as i64;
        process.gait = Gait::Stands;
        process.freeze = Some(image.freeze);
        process.came_from = Some(image.from);
        self.trace(|| format!("{tid} is brought back on slot {to}"));
        self.aim_at(from, to, tid);
        self.report(index, Input::Move(MoveInput::Arrived(tid, Ok(()))));
        Ok(())
    }

    /// Resumes a frozen process.
    fn go(&mut self, index: usize, generation: u32) -> Result<(), String> {
        if let Some(freeze) = self.processes[index].freeze {
            self.claim(freeze, index)?;
        }
        let process = &mut self.processes[index];
        process.gait = Gait::Runs;
        if let Some(program) = &mut process.program {
            program.thawed(generation);
        }
        let tid = process.tid;
        if let Some(from) = process.came_from.take()
            && !self.nodes[from].is_running()
        {
            self.turns.note(Turn::SourceGone);
        }
        self.trace(|| format!("{tid} goes on"));
        self.walk_on(index);
        Ok(())
    }

    pub(super) fn walk_on(&mut self, index: usize) {
        let now = self.queue.now();
        let process = &mut self.processes[index];
        process.wake_at = Some(now + 1);
        self.queue.at(now + 1, Event::Wake(index, now + 1));
        if let Some(signal) = process.pending_signal.take() {
            self.queue.after(0, Event::Kill(index, signal));
        }
    }

    /// Records that a copy resumes: of all copies of a freeze, only one may.
    pub(super) fn claim(&mut self, freeze: usize, index: usize) -> Result<(), String> {
        match self.claims[freeze].replace(index) {
            Some(other) if other != index => Err(format!(
                "{} goes on twice: on slot {} and on slot {}",
                self.processes[index].tid, self.processes[other].slot, self.processes[index].slot
            )),
            _ => Ok(()),
        }
    }

    /// Makes a daemon expect an image.
    pub(super) fn expect(&mut self, slot: Slot, tid: Tid, ticket: u64) {
        self.trace(|| format!("slot {slot} awaits {tid}"));
        self.forget_expected(slot, tid);
        self.expected.insert((slot, ticket), tid);
    }

    fn forget_expected(&mut self, slot: Slot, tid: Tid) {
        self.expected
            .retain(|(at, _), awaited| (*at, *awaited) != (slot, tid));
    }

    /// A daemon resumes a restored process under the given incarnation. An input that the daemon
    /// got at the same moment, and handles next, may have moved the task elsewhere since, under a
    /// higher incarnation.
    pub(super) fn begin(
        &mut self,
        slot: Slot,
        tid: Tid,
        incarnation: u32,
        generation: u32,
    ) -> Result<(), String> {
        let agreed = self.nodes[slot].agreed();
        let task = agreed.and_then(|agreed| agreed.living_task(tid));
        let elsewhere = task.is_some_and(|task| {
            task.incarnation <= incarnation && task.host != self.nodes[slot].host
        });
        if elsewhere {
            return Err(format!("{tid} begins where it does not belong"));
        }
        self.begins_life(slot, tid, generation)?;
        self.order(slot, tid, Order::Go(generation));
        Ok(())
    }

    /// Ends a copy that is no longer needed. Its end is not reported.
    pub(super) fn discard(&mut self, slot: Slot, tid: Tid) {
        self.trace(|| format!("slot {slot} discards {tid}"));
        self.forget_expected(slot, tid);
        for index in self.processes_of(slot) {
            if self.processes[index].tid == tid {
                self.processes[index].discarded = true;
                let delay = self.random.below(2 * MS);
                self.queue.after(delay, Event::Kill(index, 9));
            }
        }
    }

    /// Gives an input from a process, or from its end, to its daemon, unless the daemon has
    /// discarded the process.
    pub(super) fn process_says(&mut self, index: usize, input: Input) -> Result<(), String> {
        match self.processes[index].discarded {
            true => Ok(()),
            false => self.feed(self.processes[index].slot, input),
        }
    }

    /// Sometimes aims the next fault at this move.
    fn aim_at(&mut self, from: Slot, to: Slot, tid: Tid) {
        if self.random.percent(30) {
            self.aim = Some((from, to, tid));
            self.begins(Ambush::Moving);
        }
    }

    /// Records the host on which a task left in order.
    pub(super) fn note_left(&mut self, tid: Tid, slot: Slot) {
        let host: HostId = self.nodes[slot].host;
        self.left_at.insert(tid, host);
    }
}
