//! The simulated world: hosts, network, processes and time, and the loop of events.
//!
//! The loop takes one event at a time from the queue and gives it to the state machine that it
//! concerns. The outputs of the state machine become new events. Faults are events, too. The
//! checkers examine every message that a program receives, every notification, and every change of
//! an agreed state.
//!
//! Code map: `state` has the tables and the events; this file has the loop; `outputs` carries out the
//! outputs of daemons; `daemons` has their leases, ends and consoles; `links` makes and breaks
//! connections; `tasks` runs the processes of tasks; `joins` lets daemons join; `moves` freezes tasks,
//! transfers their images and restores them; `drains` drains hosts; `checkpoints` has the store that
//! all hosts share, `stores` the stores of single hosts, `suspended` the images of suspended tasks;
//! `recovery` restarts applications; `coordinators` has the processes that drive moves; `faults` begins
//! and ends faults; `checks` has the rules that always hold; `settle` the rules that hold at the end.

mod checkpoints;
mod checks;
mod coordinators;
mod daemons;
mod directs;
mod drains;
mod faults;
mod joins;
mod links;
mod moves;
mod outputs;
mod recovery;
mod settle;
mod state;
mod stores;
mod suspended;
mod tasks;

use super::{
    clock::Clock,
    coverage::{Coverage, Turn, Turns},
    ledger::Ledger,
    network::{Network, Slot},
    node::{Node, State},
    pipe::DirectCounts,
    queue::{MS, Moment, Queue, SECOND},
    random::Random,
    ring_memory::RingCounts,
};
use state::{Connection, Event, disks::Disks, history::History, shelf::Shelf, store::Store};
pub use state::{Options, World};
use std::collections::{BTreeMap, BTreeSet};
use vm_machine::{ConnId, Input, Outbox, Time};
use vm_wire::{HostId, MachineId};

/// Masters are started while there are fewer tasks than this.
const TASKS_WANTED: usize = 24;
/// The least number of events of a seed.
pub const EVENTS_LEAST: u64 = 10_000;
/// The least number of faults of a seed.
pub const FAULTS_LEAST: u64 = 5;
/// The least and the greatest length of the time of faults.
const FAULTS_TIME: (Moment, Moment) = (8 * SECOND, 40 * SECOND);
/// After the last fault everything must have ended within this time.
const QUIET_TIME: Moment = 40 * SECOND;
/// Bound on the events of a run: more events mean that some activity repeats for ever.
const EVENTS_MOST: u64 = 3_000_000;

/// The report of a broken rule.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The time of the failure, in microseconds of the simulated world.
    pub at: Moment,
    /// The broken rule, in words.
    pub what: String,
}

/// Counts of a run, and its first failure.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Steps of state machines.
    pub events: u64,
    /// Simulated time, in microseconds.
    pub time: Moment,
    /// Messages that programs received.
    pub messages: u64,
    /// Counts of rings.
    pub rings: RingCounts,
    /// Counts of direct connections.
    pub directs: DirectCounts,
    /// Number of processes of tasks.
    pub tasks: u64,
    /// Machines that ended because a majority was lost.
    pub ended: u64,
    /// Counts of faults, by phase.
    pub coverage: Coverage,
    /// Counts of outcomes of moves and checkpoints.
    pub turns: Turns,
    /// The first broken rule.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// Adds the counts of another world.
    pub fn add(&mut self, other: Outcome) {
        self.events += other.events;
        self.time += other.time;
        self.messages += other.messages;
        self.rings += other.rings;
        self.directs += other.directs;
        self.tasks += other.tasks;
        self.ended += other.ended;
        self.coverage.add(&other.coverage);
        self.turns.add(&other.turns);
        self.failure = self.failure.take().or(other.failure);
    }
}

impl World {
    /// A world: 3 to 7 hosts, one of which founds the machine.
    pub fn new(mut random: Random, options: Options) -> Self {
        let hosts = random.between(3, 7) as usize;
        let machine = MachineId::from_bits(random.bits() as u32);
        let harsh = random.percent(12);
        let secluded = random.percent(50);
        let mut world = World {
            options,
            queue: Queue::default(),
            random,
            machine,
            nodes: Vec::new(),
            network: Network::default(),
            processes: Vec::new(),
            connections: BTreeMap::new(),
            connection_next: 1,
            secluded,
            own_stores: machine.get().is_multiple_of(3),
            disks: Disks::default(),
            shelf: Shelf::new(machine),
            rosters: BTreeMap::new(),
            launched: BTreeSet::new(),
            ledger: Ledger::default(),
            history: History::default(),
            crashed: BTreeSet::new(),
            coverage: Coverage::default(),
            turns: Turns::default(),
            images: Vec::new(),
            claims: Vec::new(),
            expected: BTreeMap::new(),
            requests: BTreeMap::new(),
            opened: BTreeMap::new(),
            coordinators: Vec::new(),
            phases_met: BTreeMap::new(),
            ordered_by: BTreeMap::new(),
            drains: BTreeMap::new(),
            store: Store::default(),
            left_at: BTreeMap::new(),
            aim: None,
            ambush: None,
            driven: false,
            strikes: 0,
            blocked_until: 0,
            next_break: 0,
            harsh,
            quiet_since: None,
            halting: false,
            finished: false,
            events: 0,
            rings: RingCounts::default(),
            directs: DirectCounts::default(),
            awaited_directs: BTreeMap::new(),
            dialled: BTreeMap::new(),
            outbox: Outbox::new(),
        };
        for slot in 0..hosts {
            world.add_node(format!("n{slot}"));
        }
        world
    }

    /// Runs the world to its end.
    pub fn run(mut self) -> Outcome {
        let failure = self.history_to_its_end().err().map(|what| Failure {
            at: self.queue.now(),
            what,
        });
        for slot in 0..self.nodes.len() {
            self.count_moves(slot);
        }
        Outcome {
            events: self.events,
            time: self.queue.now(),
            messages: self.ledger.received,
            rings: self.rings,
            directs: self.directs,
            tasks: self.processes.len() as u64,
            ended: u64::from(!self.halting && !self.nodes.iter().any(Node::is_running)),
            coverage: self.coverage,
            turns: self.turns,
            failure,
        }
    }

    fn history_to_its_end(&mut self) -> Result<(), String> {
        self.found(0)?;
        for slot in 1..self.nodes.len() {
            let delay = self.random.below(300 * MS);
            self.queue.after(delay, Event::AskJoin(slot));
        }
        self.queue.after(500 * MS, Event::Populate);
        self.queue.after(SECOND, Event::Requests);
        self.queue.after(SECOND, Event::Strike(0));
        if self.shelf.is_used() {
            self.queue.after(SECOND, Event::Suspensions);
        }
        while !self.finished {
            let Some(event) = self.queue.pop() else {
                return Err("nothing will ever happen any more".to_owned());
            };
            if self.events > EVENTS_MOST {
                return Err(format!("more than {EVENTS_MOST} events"));
            }
            self.happen(event)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Input(slot, input) => self.feed(slot, input),
            Event::PartCrosses(sent) => self.part_crosses(sent),
            Event::Frame {
                from,
                to,
                generation,
                frame,
            } => self.arrive(from, to, generation, frame),
            Event::Tick(slot, at) => {
                if self.nodes[slot].tick_at != Some(at) {
                    return Ok(());
                }
                self.nodes[slot].tick_at = None;
                if !self.nodes[slot].is_running() {
                    return Ok(());
                }
                self.step(slot, Input::Tick)
            }
            Event::Lease(slot, at) => self.lease_ends(slot, at),
            Event::Connect { from, to, give_up } => self.connect(from, to, give_up),
            Event::Broken {
                at,
                other,
                generation,
            } => self.notice(at, other, generation),
            Event::AskJoin(slot) => self.ask_join(slot),
            Event::Admitted(slot, frame) => self.admitted(slot, &frame),
            Event::Enrol(process) => self.enrol(process),
            Event::FromProcess(process, input) => self.process_says(process, input),
            Event::Report(process, images, input) => self.reported(process, images, input),
            Event::Order(process, order) => self.heed(process, order),
            Event::ToCoordinator(index, frame) => self.coordinator_hears(index, frame),
            Event::TickCoordinator(index, at) => self.tick_coordinator(index, at),
            Event::Saved(image) => self.saved(image),
            Event::Stored(index, way, saved) => self.stored(index, way, saved),
            Event::Shelved(shelving) => self.shelved(*shelving),
            Event::Suspensions => {
                self.request_suspensions();
                Ok(())
            }
            Event::Copied(index, ticket) => {
                self.copied(index, ticket);
                Ok(())
            }
            Event::Crosses(image) => self.crosses(image),
            Event::Undrain(slot) => {
                self.undrain_host(slot);
                Ok(())
            }
            Event::Requests => {
                self.request_moves();
                Ok(())
            }
            Event::Leaves(conn) => self.console_leaves(conn),
            Event::ToTask(process, frame) => self.in_socket(process, frame),
            Event::DirectComes(id) => self.direct_comes(id),
            Event::FarWake(tid) => self.far_wake(tid),
            Event::Nudge(process, id) => {
                self.nudge(process, id);
                Ok(())
            }
            Event::RingWake(process) => self.ring_wake(process),
            Event::Wake(process, at) => self.wake(process, at),
            Event::Kill(process, signal) => self.kill(process, signal),
            Event::Strike(number) => self.strike(number),
            Event::Heal(heal) => self.heal(heal),
            Event::Populate => self.populate(),
            Event::Settled => self.settled(),
        }
    }

    /// Gives an input to a daemon. The inputs of a stopped daemon wait in its sockets.
    fn feed(&mut self, slot: Slot, input: Input) -> Result<(), String> {
        match self.nodes[slot].state {
            State::Running => self.step(slot, input),
            State::Stopped => {
                self.nodes[slot].deferred.push_back(input);
                Ok(())
            }
            State::Joining | State::Down => Ok(()),
        }
    }

    /// Makes one step of a daemon, and carries out its outputs.
    fn step(&mut self, slot: Slot, input: Input) -> Result<(), String> {
        self.events += 1;
        let now = self.nodes[slot].time(self.queue.now());
        let mut outbox = std::mem::take(&mut self.outbox);
        if let Some(daemon) = self.nodes[slot].daemon.as_mut() {
            daemon.step(now, input, &mut outbox);
        }
        self.after_step(slot, outbox)
    }

    fn after_step(&mut self, slot: Slot, mut outbox: Outbox) -> Result<(), String> {
        self.check_agreed(slot)?;
        self.check_peers(slot)?;
        while let Some(output) = outbox.pop_front() {
            self.carry_out(slot, output)?;
        }
        self.outbox = outbox;
        self.plan_tick(slot);
        Ok(())
    }

    /// Plans the next tick of a daemon by its deadline.
    fn plan_tick(&mut self, slot: Slot) {
        let now = self.queue.now();
        let node = &mut self.nodes[slot];
        let Some(daemon) = node
            .daemon
            .as_ref()
            .filter(|_| node.state == State::Running)
        else {
            return;
        };
        let deadline = daemon.deadline();
        if deadline == Time(u64::MAX) {
            return;
        }
        // The poll of a real shell is not exact: it wakes a little late, never early.
        let at = node.clock.when(deadline).max(now + 1);
        if node.tick_at.is_none_or(|planned| at < planned) {
            node.tick_at = Some(at);
            self.queue.at(at, Event::Tick(slot, at));
        }
    }

    /// Adds the process of a new daemon.
    fn add_node(&mut self, name: String) -> Slot {
        let mut clock = Clock::new(self.random.below(1_000_000 * SECOND));
        clock.set_rate(self.queue.now(), 1_000_000);
        let nonce = self.random.bits();
        self.nodes.push(Node::new(name, nonce, clock));
        self.nodes.len() - 1
    }

    /// Takes the counts of moves from a daemon.
    fn count_moves(&mut self, slot: Slot) {
        let Some(daemon) = &self.nodes[slot].daemon else {
            return;
        };
        let moves = daemon.counters().moves;
        let counts = [
            (Turn::Committed, moves.came),
            (Turn::OfferRefused, moves.offers_refused),
            (Turn::SaveRefused, moves.saves_refused),
            (Turn::Aborted, moves.images_lost),
            (Turn::TargetLost, moves.targets_lost),
            (Turn::Stayed, moves.stayed),
            (Turn::WentInDoubt, moves.went_in_doubt),
            (Turn::SourceLost, moves.sources_lost),
            (Turn::SourceLostReleased, moves.sources_lost_released),
            (Turn::FrameKept, moves.frames_kept),
            (Turn::Suspended, moves.suspended),
            (Turn::Resumed, moves.resumed),
            (Turn::HandedOn, moves.handed_on),
            (Turn::CancelledAtSource, moves.cancelled),
            (Turn::OrderStale, moves.orders_stale),
            (Turn::CoordinatorLost, moves.coordinators_lost),
            (Turn::CoordinatorHung, moves.coordinators_hung),
        ];
        for (turn, count) in counts {
            self.turns.note_many(turn, count);
        }
    }

    fn new_connection(&mut self, other: Connection) -> ConnId {
        let conn = ConnId(self.connection_next);
        self.connection_next += 1;
        self.connections.insert(conn, other);
        conn
    }

    /// The slot of a living host's daemon.
    fn slot_of_host(&self, host: HostId) -> Option<Slot> {
        self.nodes.iter().position(|node| node.host == host)
    }

    /// Whether faults are over.
    fn is_quiet(&self) -> bool {
        self.quiet_since.is_some()
    }

    /// Prints a line of the trace.
    fn trace(&self, line: impl FnOnce() -> String) {
        if self.options.trace {
            eprintln!("{:>12.6}  {}", self.queue.now() as f64 / 1e6, line());
        }
    }
}
