//! The processes that coordinate applications: the production state machine beside each daemon,
//! with a socket between the two. Coordinators start late or not at all, die, are stopped and
//! continued, and end when their daemons request it or die themselves.
//!
//! Three rules are checked here. The phases of a move follow each other: no phase is left out, none
//! is repeated, and a coordinator that takes over finds the move no earlier than the former
//! coordinator left it. The serving coordinator is the one that the log names. An order of an older
//! term has no effect: sometimes a coordinator repeats an order under the term before its own, with
//! a number that was never requested, and no owner may ever report a move of that number.

use super::state::{
    Event, World,
    coordinator::Process,
    fault::{Ambush, Heal},
};
use crate::sim::{
    coverage::Turn,
    network::Slot,
    queue::{MS, Moment, SECOND},
};
use std::collections::VecDeque;
use vm_coordinator::Coordinator;
use vm_machine::{Agreed, Input, ProcessInput};
use vm_wire::{
    Body, Frame, HostId, Message, Op, RequestKey, Tid,
    coordinator::{Mail, Serve},
    peer::{MoveOrder, MovePhase, MoveState, Order},
    task::FailKind,
};

/// Numbers from here on were never requested.
const FORGED: u64 = 1 << 50;

impl World {
    /// The library of a master that gets its Welcome forks a coordinator, if it can.
    pub(super) fn fork_coordinator(&mut self, slot: Slot, number: u64) {
        if self.random.percent(85) {
            self.begin_coordinator(slot, number);
        } else {
            // The process has several threads already, so its library cannot fork.
            self.coordinator_ends(slot, number);
        }
    }

    /// A daemon starts a coordinator.
    pub(super) fn start_coordinator(&mut self, slot: Slot, number: u64) {
        if self.random.percent(95) {
            self.begin_coordinator(slot, number);
        } else {
            self.coordinator_ends(slot, number);
        }
    }

    fn begin_coordinator(&mut self, slot: Slot, number: u64) {
        let (machine, first) = Coordinator::new(number as u32);
        self.coordinators.push(Process {
            slot,
            number,
            machine,
            alive: true,
            stopped: false,
            unread: VecDeque::new(),
            serves: None,
            arrival_in: 0,
            arrival_out: 0,
            tick_at: None,
        });
        let begins = self.random.between(100, 30 * MS);
        let index = self.coordinators.len() - 1;
        self.coordinators[index].arrival_out = self.queue.now() + begins;
        self.coordinators[index].arrival_in = self.queue.now() + begins;
        self.coordinator_says(index, first);
    }

    /// The daemon sees the end of a coordinator's socket.
    fn coordinator_ends(&mut self, slot: Slot, number: u64) {
        let delay = self.random.between(20, 2 * MS);
        let input = Input::Process(ProcessInput::CoordinatorGone(number));
        self.queue.after(delay, Event::Input(slot, input));
    }

    fn coordinator_of(&self, slot: Slot, number: u64) -> Option<usize> {
        self.coordinators
            .iter()
            .rposition(|process| (process.slot, process.number) == (slot, number))
    }

    /// A daemon sends a frame to a coordinator.
    pub(super) fn tell_coordinator(&mut self, slot: Slot, number: u64, frame: Frame) {
        let latency = self.random.between(5, 60);
        let now = self.queue.now();
        if let Some(index) = self.coordinator_of(slot, number) {
            let process = &mut self.coordinators[index];
            process.arrival_in = process.arrival_in.max(now + latency);
            let at = process.arrival_in;
            self.queue.at(at, Event::ToCoordinator(index, frame));
        }
    }

    /// Sends a coordinator's frame to its daemon.
    fn coordinator_says(&mut self, index: usize, frame: Frame) {
        let latency = self.random.between(5, 60);
        let now = self.queue.now();
        let process = &mut self.coordinators[index];
        process.arrival_out = process.arrival_out.max(now + latency);
        let (slot, number) = (process.slot, process.number);
        let input = Input::Coordinator(number, frame);
        self.queue
            .at(process.arrival_out, Event::Input(slot, input));
    }

    /// Handles a frame that has arrived in a coordinator's socket.
    pub(super) fn coordinator_hears(&mut self, index: usize, frame: Frame) -> Result<(), String> {
        let process = &mut self.coordinators[index];
        if !process.alive {
            return Ok(());
        }
        if process.stopped {
            process.unread.push_back(frame);
            return Ok(());
        }
        self.events += 1;
        let asks_again = self.check_told(index, &frame)?;
        let now = self.nodes[self.coordinators[index].slot].time(self.queue.now());
        let mut out = VecDeque::new();
        let machine = &mut self.coordinators[index].machine;
        let taken = machine.on_frame(now, &frame, &mut out);
        taken.map_err(|error| format!("a coordinator is told what makes no sense: {error}"))?;
        self.after_coordinator(index, out, asks_again)
    }

    /// Handles a deadline of a coordinator.
    pub(super) fn tick_coordinator(&mut self, index: usize, at: Moment) -> Result<(), String> {
        let process = &mut self.coordinators[index];
        if process.tick_at != Some(at) || !process.alive || process.stopped {
            return Ok(());
        }
        process.tick_at = None;
        self.events += 1;
        let now = self.nodes[process.slot].time(self.queue.now());
        let mut out = VecDeque::new();
        self.coordinators[index].machine.tick(now, &mut out);
        self.after_coordinator(index, out, false)
    }

    fn after_coordinator(
        &mut self,
        index: usize,
        out: VecDeque<Frame>,
        asks_again: bool,
    ) -> Result<(), String> {
        for frame in out {
            let forged = self.check_said(index, &frame, asks_again)?;
            self.coordinator_says(index, frame);
            if let Some(forged) = forged {
                self.coordinator_says(index, forged);
            }
        }
        let now = self.queue.now();
        let process = &mut self.coordinators[index];
        if let Some(deadline) = process.machine.deadline() {
            let at = self.nodes[process.slot].clock.when(deadline).max(now + 1);
            if process.tick_at.is_none_or(|planned| at < planned) {
                process.tick_at = Some(at);
                self.queue.at(at, Event::TickCoordinator(index, at));
            }
        }
        Ok(())
    }

    /// Checks that a daemon may send this frame to its coordinator. Returns whether the frame
    /// requests a move that the coordinator knows already.
    fn check_told(&mut self, index: usize, frame: &Frame) -> Result<bool, String> {
        match frame.header.op {
            Op::Serve => {
                let serve = Serve::read(frame).map_err(|error| error.to_string())?;
                self.coordinators[index].serves = Some(serve);
                let node = &self.nodes[self.coordinators[index].slot];
                let agreed = node
                    .agreed()
                    .and_then(|agreed| agreed.coordinator(serve.app));
                let known = agreed.map_or(0, |agreed| agreed.term);
                match known >= serve.term || !node.is_alive() {
                    true => Ok(false),
                    false => Err(format!("a coordinator of {} serves too early", serve.app)),
                }
            }
            Op::Mail => {
                let mail = Mail::read(frame).map_err(|error| error.to_string())?;
                let order = Order::from_payload(&mail.order).map_err(|error| error.to_string())?;
                let known = |key: RequestKey| {
                    let mut moves = self.coordinators[index].machine.moves();
                    moves.any(|(of, _, _)| of == key)
                };
                match order {
                    Order::MoveReported(reported) if reported.request >= FORGED => {
                        // The order to a lost owner, or about a task that the log has forgotten,
                        // ends with a failure of its own.
                        let gone = FailKind::HostLost;
                        let node = &self.nodes[self.coordinators[index].slot];
                        let known = node.agreed().and_then(|agreed| agreed.task(reported.tid));
                        match &reported.state {
                            MoveState::Ended(Err(failed))
                                if failed.kind == gone || known.is_none() =>
                            {
                                Ok(false)
                            }
                            state => Err(format!(
                                "an order of an older term about {} was heeded: {state:?}",
                                reported.tid
                            )),
                        }
                    }
                    Order::MoveAsk(ask) => Ok(known(RequestKey::new(mail.host, ask.request))),
                    _ => Ok(false),
                }
            }
            _ => Ok(false),
        }
    }

    /// Checks that a frame of a coordinator follows from its earlier frames. Sometimes returns a
    /// forged order under an older term.
    fn check_said(
        &mut self,
        index: usize,
        frame: &Frame,
        asks_again: bool,
    ) -> Result<Option<Frame>, String> {
        if frame.header.op != Op::Mail {
            return Ok(None);
        }
        let mail = Mail::read(frame).map_err(|error| error.to_string())?;
        match Order::from_payload(&mail.order).map_err(|error| error.to_string())? {
            Order::MoveProgress(progress) => {
                let key = RequestKey::new(mail.host, progress.request);
                self.check_phase(index, key, progress.tid, progress.phase, asks_again)?;
                Ok(None)
            }
            Order::MoveOrder(order) => Ok(self.forge(index, &order, mail.host)),
            Order::MoveCancel(_) => {
                self.turns.note(Turn::Cancelled);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn check_phase(
        &mut self,
        index: usize,
        key: RequestKey,
        tid: Tid,
        phase: MovePhase,
        asks_again: bool,
    ) -> Result<(), String> {
        self.trace(|| format!("the move of {tid} is in its {phase}"));
        let term = |index: usize| self.coordinators[index].serves.map(|serves| serves.term);
        let met = self.phases_met.get(&key);
        if met.is_some_and(|(_, by)| term(*by) > term(index)) {
            // The coordinator sent this before it knew that another one had replaced it.
            return Ok(());
        }
        let last = self.phases_met.insert(key, (phase, index));
        let next = |last: MovePhase| MovePhase::ALL.into_iter().find(|phase| *phase > last);
        let follows = match last {
            // The request was repeated, so the coordinator repeats the phase that it knows.
            Some((last, by)) if by == index && asks_again => last == phase,
            Some((last, by)) if by == index => next(last) == Some(phase),
            Some((last, _)) => {
                self.turns.note(Turn::TakenOver);
                last <= phase
            }
            None => {
                // A move that another coordinator has ordered may have progressed before this
                // coordinator orders anything.
                let by = self.ordered_by.get(&key);
                let others = by.is_some_and(|by| by.iter().any(|by| *by != index));
                phase == MovePhase::Initialisation || others
            }
        };
        if !follows {
            return Err(format!(
                "the move of {tid} comes to its {phase} after {last:?}, by coordinator {index}"
            ));
        }
        if self.random.percent(10) {
            self.begins(Ambush::Driven(phase));
        }
        Ok(())
    }

    /// An order as the former coordinator would have given it, for a move that was never requested.
    fn forge(&mut self, index: usize, order: &MoveOrder, owner: HostId) -> Option<Frame> {
        let key = RequestKey::new(order.requester, order.request);
        // A coordinator that orders a move after another coordinator may find it in any phase.
        self.ordered_by.entry(key).or_default().insert(index);
        // An owner whose log is behind may still accept an order of the former term.
        let app = self.coordinators[index].serves?.app;
        let slot = self.slot_of_host(owner)?;
        let known = self.nodes[slot].agreed()?.coordinator(app)?.term;
        if order.term < 2 || known < order.term || !self.random.percent(30) {
            return None;
        }
        let forged = MoveOrder {
            term: order.term - 1,
            request: FORGED + order.request,
            ..order.clone()
        };
        let order = Body::from(Order::MoveOrder(forged).to_payload());
        Some(Mail { host: owner, order }.frame())
    }

    /// A daemon ends a coordinator.
    pub(super) fn end_coordinator(&mut self, slot: Slot, number: u64) {
        if let Some(index) = self.coordinator_of(slot, number) {
            self.coordinators[index].alive = false;
        }
    }

    /// Ends the coordinators of a daemon that has ended.
    pub(super) fn lose_coordinators_of(&mut self, slot: Slot) {
        for process in &mut self.coordinators {
            process.alive &= process.slot != slot;
        }
    }

    /// SIGKILL of a coordinator.
    pub(super) fn kill_coordinator(&mut self) -> bool {
        let Some(index) = self.some_coordinator() else {
            return false;
        };
        let process = &mut self.coordinators[index];
        process.alive = false;
        let (slot, number) = (process.slot, process.number);
        self.coordinator_ends(slot, number);
        true
    }

    /// SIGSTOP of a coordinator, until it is continued, or its daemon has ended it.
    pub(super) fn hang_coordinator(&mut self) -> bool {
        let Some(index) = self.some_coordinator() else {
            return false;
        };
        self.coordinators[index].stopped = true;
        let time = self.random.between(50 * MS, 8 * SECOND);
        self.queue.after(time, Event::Heal(Heal::Wakes(index)));
        true
    }

    /// Continues a stopped coordinator.
    pub(super) fn wake_coordinator(&mut self, index: usize) -> Result<(), String> {
        self.coordinators[index].stopped = false;
        while let Some(frame) = self.coordinators[index].unread.pop_front() {
            self.coordinator_hears(index, frame)?;
        }
        self.coordinators[index].tick_at = None;
        match self.coordinators[index].alive {
            true => self.after_coordinator(index, VecDeque::new(), false),
            false => Ok(()),
        }
    }

    /// A coordinator for a fault to strike: mostly one that drives a move.
    fn some_coordinator(&mut self) -> Option<usize> {
        let living = self.coordinators.iter().enumerate();
        let living: Vec<usize> = living
            .filter(|(_, process)| process.alive && !process.stopped)
            .map(|(index, _)| index)
            .collect();
        let drives = |index: &usize| self.coordinators[*index].machine.moves().next().is_some();
        let driving: Vec<usize> = living.iter().copied().filter(drives).collect();
        let busy = self.random.percent(80);
        let picked = self.random.pick(&driving).copied().filter(|_| busy);
        picked.or_else(|| self.random.pick(&living).copied())
    }

    /// Whether a coordinator drives a move in that phase.
    pub(super) fn is_driven(&self, phase: MovePhase) -> bool {
        let living = self.coordinators.iter().filter(|process| process.alive);
        living
            .flat_map(|process| process.machine.moves())
            .any(|(_, _, now)| now == Some(phase))
    }

    /// At the end each application has the coordinator that the log names, and there is no other
    /// coordinator.
    pub(super) fn unsettled_coordinators(&self, agreed: &Agreed) -> Option<String> {
        for app in agreed.apps() {
            let Some(named) = agreed.coordinator(app) else {
                return Some(format!("{app} has no coordinator"));
            };
            let slot = self.slot_of_host(named.host)?;
            let daemon = self.nodes[slot].daemon.as_ref()?;
            let serving = daemon.serving_coordinator(app);
            let Some((number, _)) = serving.filter(|(_, term)| *term == named.term) else {
                return Some(format!("the coordinator of {app} does not serve"));
            };
            let index = self.coordinator_of(slot, number)?;
            if self.coordinators[index].stopped {
                return Some(format!("the coordinator of {app} is stopped"));
            }
            if !self.coordinators[index].alive {
                return Some(format!("the coordinator of {app} is dead"));
            }
        }
        let named = |process: &Process| {
            let daemon = self.nodes[process.slot].daemon.as_ref();
            let serves = process.serves.zip(daemon);
            serves.is_some_and(|(serves, daemon)| {
                daemon.serving_coordinator(serves.app) == Some((process.number, serves.term))
            })
        };
        let mut living = self.coordinators.iter().filter(|process| process.alive);
        let left = living.find(|process| !named(process) || process.machine.moves().count() > 0)?;
        Some(format!(
            "coordinator {} of slot {} is left over: it serves {:?}, drives {} moves",
            left.number,
            left.slot,
            left.serves.map(|serves| (serves.app, serves.term)),
            left.machine.moves().count()
        ))
    }
}
