//! The daemon of a host, as a pure state machine.
//!
//! Each host has one [`Daemon`]. Its shell feeds it one [`Input`] at a time and carries out the
//! [`Output`](crate::Output)s of each step in their order. The daemon does nothing between two
//! inputs. [`Daemon::deadline`] gives the time at which the shell must feed [`Input::Tick`].
//!
//! # Parts
//!
//! Each folder is a subsystem: its tables are structs in files that import no step. Its steps are
//! functions in files that no table imports: of the subsystem's struct, or of `Daemon` where a step
//! needs several subsystems.
//!
//! | folder or file | what it decides |
//! |---|---|
//! | `routing/` | the route of each frame, on the hot path and off it; the links to other hosts |
//! | `host/` | how this host arrives and leaves; hosts that cannot reach each other |
//! | `tasks/` | how a process becomes a task; requests, ends and notifications of tasks |
//! | `migration/` | moves: requests, coordinators and their orders, the source, the target, the end |
//! | `drain/` | the drain of this host |
//! | `checkpoint/` | checkpoints: requests, policies, cuts, parts, and their copies on the disks of two hosts |
//! | `restart/` | restarts of applications, by request or after a loss; which checkpoint is whole on all disks |
//! | `rings` | memory that two tasks of this host share to exchange messages past the daemon |
//! | `directs` | connections to tasks of other hosts, to exchange messages past the daemons |
//! | `suspension` | suspended applications, and how they are resumed |
//! | `console/` | the consoles: replies, listings, the programs that they run, the output of these |
//! | `consoles` | which subsystem carries out a request of a console |
//! | `hosts`, `flow` | steps in which several of these take part, in their order |
//! | `orders` | reliable messages between daemons |
//! | `context` | the state that all of these need: clock, identity, agreement, routes, timers, outbox |
//! | `effect`, `settle` | work that one of these leaves for another, and its delivery |
//! | `local_task`, `task_life`, `task_request`, `requester`, `objection`, `absent`, `counters`, `signal_numbers` | types that several of these share |
//!
//! # Invariants
//!
//! - All daemons decide by the same agreed state. The state that only this daemon has (`tasks`,
//!   links, consoles) is lost with its host, and no other daemon depends on it.
//! - A task is in the local table from the log entry that places it on this host (a spawn, a move
//!   or a restart) until its `Exit` was applied and its process has ended, or until a log entry
//!   moves it to another host.
//! - No input from outside can make a step panic. The daemon closes the connection of a task or a
//!   console that breaks the protocol; it closes the link of a peer that does, and counts the case.
//! - Every table is bounded: by the tasks of the machine, each of which has one request under way,
//!   or by a limit of [`vm_wire::limits`].
//!
//! # Route of a message
//!
//! The daemon looks a data frame up once in [`Routes`](crate::route::Routes) and moves the frame
//! into the outbox. No memory is allocated or copied, and the body is not read. The daemon holds a
//! frame whose receiver has no socket yet or is frozen, or whose link is being made, as far as there
//! is room. The daemon drops every other frame that it cannot route. The sender retains a dropped
//! frame, and is notified when the receiver is reachable again or has ended.

mod absent;
mod checkpoint;
mod config;
mod console;
mod consoles;
mod context;
mod counters;
mod directs;
mod drain;
mod effect;
mod flow;
mod host;
mod hosts;
mod local_task;
mod migration;
mod objection;
mod orders;
mod requester;
mod restart;
mod rings;
mod routing;
mod settle;
mod signal_numbers;
mod suspension;
mod task_life;
mod task_request;
mod tasks;

pub use config::DaemonConfig;
pub use counters::{Counters, MoveCounters};
pub use hosts::AT_ONCE;
pub use migration::MovesUnderway;

use crate::{
    Agreement, ConsoleInput, Input, MoveInput, Outbox, ProcessInput, StoreInput, Time,
    agreed::SnapshotError,
};
use checkpoint::Checkpoints;
use console::Consoles;
use context::Context;
use directs::Directs;
use drain::Drain;
use host::{Arrival, Departure, Unreachable};
use local_task::LocalTask;
use migration::Migration;
use restart::Restarts;
use rings::Rings;
use routing::Routing;
use std::collections::BTreeMap;
use suspension::Suspensions;
use tasks::{Births, Parked, Watching};
use vm_wire::{HostId, MachineId, Tid, peer::Joined};

/// The daemon of one host. See the module.
#[derive(Debug)]
pub struct Daemon {
    cx: Context,
    routing: Routing,
    unreachable: Unreachable,
    tasks: BTreeMap<Tid, LocalTask>,
    births: Births,
    watching: Watching,
    rings: Rings,
    directs: Directs,
    parked: Parked,
    migration: Migration,
    consoles: Consoles,
    checkpoints: Checkpoints,
    restarts: Restarts,
    suspensions: Suspensions,
    drain: Option<Drain>,
    departure: Departure,
    arrival: Arrival,
    /// The daemon has emitted [`Output::End`](crate::Output::End) and ignores all inputs.
    over: bool,
}

impl Daemon {
    /// The daemon that founds a machine: its first host.
    pub fn found(now: Time, machine: MachineId, config: DaemonConfig, out: &mut Outbox) -> Self {
        let agreement = Agreement::found(
            now,
            config.agreement.clone(),
            machine,
            config.facts.clone(),
            config.nonce,
        );
        Self::new(now, config, agreement, out)
    }

    /// The daemon of a host that a machine has admitted.
    ///
    /// # Errors
    /// [`SnapshotError`] if the snapshot of the agreed state in `joined` cannot be read.
    pub fn joined(
        now: Time,
        config: DaemonConfig,
        joined: &Joined,
        out: &mut Outbox,
    ) -> Result<Self, SnapshotError> {
        let log = config.agreement.clone();
        let agreement = Agreement::joined(now, log, joined.host, &joined.snapshot)?;
        Ok(Self::new(now, config, agreement, out))
    }

    fn new(now: Time, config: DaemonConfig, agreement: Agreement, out: &mut Outbox) -> Self {
        let cx = Context::new(now, config, agreement);
        let state = cx.agreement.state();
        let present = state.hosts().map(|(host, _)| host);
        let known = present.filter(|host| state.is_present(*host)).collect();
        let mut daemon = Daemon {
            cx,
            routing: Routing::default(),
            unreachable: Unreachable::default(),
            tasks: BTreeMap::new(),
            births: Births::default(),
            watching: Watching {
                known,
                ..Watching::default()
            },
            rings: Rings::default(),
            directs: Directs::default(),
            parked: Parked::default(),
            migration: Migration::default(),
            consoles: Consoles::default(),
            checkpoints: Checkpoints::default(),
            restarts: Restarts::default(),
            suspensions: Suspensions::default(),
            drain: None,
            departure: Departure::default(),
            arrival: Arrival::default(),
            over: false,
        };
        daemon.take_part_in_cuts();
        daemon.restarts.review_recoveries(&mut daemon.cx);
        daemon.suspensions.review_all(&mut daemon.cx);
        daemon.arrive();
        daemon.tick();
        daemon.settle();
        out.append(&mut daemon.cx.out);
        daemon
    }

    /// This daemon's part in the agreement, for inspection.
    pub fn agreement(&self) -> &Agreement {
        &self.cx.agreement
    }

    /// The hosts to which this host has links.
    pub fn linked(&self) -> Vec<HostId> {
        self.cx.routes.links().collect()
    }

    /// Counters of events since the daemon started.
    pub fn counters(&self) -> &Counters {
        &self.cx.counters
    }

    /// Payload and overhead of the messages of ended tasks that this daemon retains. Bytes.
    pub fn kept_bytes(&self) -> u64 {
        self.cx.keeper.bytes()
    }

    /// The tasks in the local table: each has a process here, is suspended here, or has an end
    /// that this daemon still handles.
    pub fn local_tasks(&self) -> impl Iterator<Item = Tid> {
        self.tasks.keys().copied()
    }

    /// Number of rings between tasks of this host.
    pub fn ring_count(&self) -> usize {
        self.rings.count()
    }

    /// Number of direct connections of tasks of this host, expected ones included.
    pub fn direct_count(&self) -> usize {
        self.directs.count()
    }

    /// The time at which [`Input::Tick`] is due.
    pub fn deadline(&self) -> Time {
        let due = [
            self.cx.endpoint.deadline(),
            self.cx.keeper.deadline(),
            self.routing.held.deadline(),
            self.cx.timers.first().map(|(due, _)| *due),
        ];
        let agreement = self.cx.agreement.deadline();
        due.into_iter().flatten().fold(agreement, Time::min)
    }

    /// Handles one input and appends its outputs to `out`. No output follows
    /// [`Output::End`](crate::Output::End).
    pub fn step(&mut self, now: Time, input: Input, out: &mut Outbox) {
        if self.over {
            return;
        }
        self.cx.now = now;
        std::mem::swap(&mut self.cx.out, out);
        self.dispatch(input);
        self.settle();
        debug_assert!(self.over || self.cx.effects.is_empty());
        std::mem::swap(&mut self.cx.out, out);
    }

    fn dispatch(&mut self, input: Input) {
        match input {
            Input::Task(tid, frame) => self.on_task(tid, frame),
            Input::Peer(host, frame) => self.on_peer(host, frame),
            Input::Coordinator(number, frame) => self.on_coordinator(number, &frame),
            Input::Tick => self.tick(),
            Input::LinkUp(host) => self.on_link_up(host),
            Input::LinkDown(host) => self.on_link_down(host),
            Input::Joiner(conn, frame) => self.on_joiner(conn, &frame),
            Input::Address(addr) => self.on_address(addr),
            Input::Enrol { conn, pid, enrol } => self.on_enrol(conn, pid, enrol),
            Input::TaskGone(tid) => self.on_task_gone(tid),
            Input::ConnGone(conn) => self.on_conn_gone(conn),
            Input::Dropped(pairs) => self.on_dropped(pairs),
            Input::Console(event) => self.on_console_event(event),
            Input::Process(event) => self.on_process_event(event),
            Input::Move(event) => self.on_move_event(event),
            Input::Store(event) => self.on_store_event(event),
            Input::RingFailed { id, ends } => self.on_ring_failed(id, ends),
            Input::DirectCame(id) => self.on_direct_came(id),
            Input::Stop => self.on_stop(),
        }
    }

    fn on_console_event(&mut self, event: ConsoleInput) {
        match event {
            ConsoleInput::Frame(conn, frame) => self.on_console(conn, frame),
            ConsoleInput::Full(conn) => {
                self.consoles.on_full(&mut self.cx, &self.tasks, conn, true)
            }
            ConsoleInput::Room(conn) => {
                self.consoles
                    .on_full(&mut self.cx, &self.tasks, conn, false)
            }
        }
    }

    fn on_process_event(&mut self, event: ProcessInput) {
        match event {
            ProcessInput::Ended(tid, status) => self.on_process_ended(tid, status),
            ProcessInput::LaunchFailed(tid, failed) => self.on_launch_failed(tid, &failed),
            ProcessInput::Launched(tid, pid) => self.on_launched(tid, pid),
            ProcessInput::Output { tid, stream, bytes } => {
                self.on_task_output(tid, stream, bytes);
            }
            ProcessInput::Usage(question, rows) => {
                self.consoles.on_measured(&mut self.cx, question, rows)
            }
            ProcessInput::ProgramFound(question, found) => self.on_program_found(question, found),
            ProcessInput::Stopped(tid, stopped) => self.on_stopped(tid, stopped),
            ProcessInput::CoordinatorGone(number) => self.on_coordinator_gone(number),
        }
    }

    fn on_move_event(&mut self, event: MoveInput) {
        match event {
            MoveInput::Copied(tid, bytes, rounds) => self.on_copied(tid, bytes, rounds),
            MoveInput::Sent(tid, sent) => self.on_sent(tid, sent),
            MoveInput::SentAll(tid) => self.on_sent_all(tid),
            MoveInput::Portable(tid) => self.on_portable(tid),
            MoveInput::InCalls(tid) => self.on_in_calls(tid),
            MoveInput::Held(tid) => self.on_held(tid),
            MoveInput::Frozen(tid, result) => self.on_frozen(tid, result),
            MoveInput::Arrived(tid, result) => self.on_arrived(tid, result),
        }
    }

    fn on_store_event(&mut self, event: StoreInput) {
        match event {
            StoreInput::Loaded(question, result) => {
                self.restarts.on_loaded(&mut self.cx, question, result)
            }
            StoreInput::Part(tid, epoch, result) => self.on_stored(tid, epoch, result),
            StoreInput::Suspended(tid, number, result) => {
                self.on_suspended_image(tid, number, result);
            }
            StoreInput::CopyTaken(ticket, result) => {
                self.checkpoints
                    .copies
                    .on_copy_taken(&mut self.cx, ticket, result);
            }
            StoreInput::PartSent(ticket, result) => self.on_part_sent(ticket, result),
            StoreInput::Inventory(question, result) => {
                self.restarts.on_stocked(&mut self.cx, question, result)
            }
            StoreInput::Committed(committed) => self.on_committed(committed),
        }
    }
}
