//! What a host's daemon decides.
//!
//! One [`Daemon`] per host. Its shell feeds it one [`Input`] at a time and carries out the
//! [`Output`](crate::Output)s in their order; between two inputs nothing happens but time, and
//! [`Daemon::deadline`] says until when nothing needs to.
//!
//! # Parts
//!
//! | file | what it decides |
//! |---|---|
//! | `traffic` | where frames between tasks go: the hot path, and all that is not |
//! | `links` | which links there shall be, and what follows when one is made or broken |
//! | `host` | how this host arrives and leaves; hosts that cannot reach each other |
//! | `tasks` | the table of the processes here; how a process becomes a task |
//! | `requests` | what a task asks; each request is answered once, a repeated one likewise |
//! | `spawn` | tasks that are asked for here, tasks that are ordered here |
//! | `exit` | how tasks end |
//! | `moves` | tasks that leave for another host, tasks that arrive |
//! | `coordinators` | the processes that drive moves, and whose orders count |
//! | `checkpoint/` | checkpoints: requests, policies, cuts, parts, and their copies on the disks of two hosts |
//! | `check`, `drain` | what speaks against a move; all tasks of a host leave |
//! | `answers` | answers to tasks that have moved since they asked |
//! | `restart/` | restarts of applications, by request or after a loss; which checkpoint is whole on all disks |
//! | `suspension`, `suspended` | suspended applications, and how they are resumed; single tasks likewise |
//! | `flow` | steps that several of these take part in, in their order |
//! | `notify` | who is told of it, after which message |
//! | `signals`, `groups` | what they say |
//! | `orders` | reliable messages between daemons |
//! | `hosts` | what follows when a host joins, leaves, or is lost, and when this daemon ends |
//! | `console` | the consoles: replies, listings, the programs that they run, to the last line |
//! | `consoles` | which subsystem carries out a request of a console |
//! | `context` | what all of these need: clock, identity, agreement, routes, timers, outbox |
//! | `effect`, `settle` | what one of these has another do, and its delivery |
//!
//! # What holds
//!
//! - All daemons decide by the same agreed state; what is only here (`tasks`, links, consoles)
//!   dies with the host without harm to the others.
//! - A task is in the local table from the entry that bore it (or the wish for it) until both its
//!   `Exit` was applied and its process has ended.
//! - Nothing that comes from outside can make a step panic: a task or a console that breaks the
//!   protocol loses its connection, a peer loses its link and is counted.
//! - Every table is bounded: by the tasks of the machine, each of which has one request under
//!   way, or by a limit of [`vm_wire::limits`].
//!
//! # How a message goes
//!
//! A frame of data is looked up once in [`Routes`](crate::route::Routes) and moved into the outbox; nothing is allocated
//! or copied, and the body is not looked at. A frame whose receiver has no socket yet, or whose link
//! is being made, waits as far as there is room. Any other that cannot go on is dropped; its sender
//! retains it and is told when there is a new way, or that there will be none.

mod absent;
mod answers;
mod arriving;
mod asked;
mod check;
mod checkpoint;
mod config;
mod console;
mod consoles;
mod context;
mod coordinators;
mod counters;
mod drain;
mod effect;
mod exit;
mod flow;
mod groups;
mod host;
mod hosts;
mod leaving;
mod links;
mod local_task;
mod moves;
mod notify;
mod objection;
mod orders;
mod owner;
mod progress;
mod requester;
mod requests;
mod restart;
mod settle;
mod signal_numbers;
mod signals;
mod spawn;
mod suspended;
mod suspension;
mod task_request;
mod tasks;
mod traffic;

pub use config::DaemonConfig;
pub use counters::{Counters, MoveCounters};
pub use hosts::AT_ONCE;
pub use moves::MovesUnderway;

use crate::{Agreement, Input, Outbox, Time, agreed::SnapshotError, route::Held};
use absent::Absent;
use arriving::Arriving;
use asked::MoveAsked;
use checkpoint::{Checkpoints, cut_steps::Cuts};
use console::Consoles;
use context::Context;
use coordinators::Coordinators;
use drain::Drain;
use host::{Arrival, Departure, Unreachable};
use leaving::Leaving;
use links::Link;
use local_task::LocalTask;
use notify::LastAsked;
use owner::MoveOrders;
use restart::Restarts;
use spawn::{Enrolling, Ordered, Spawning};
use std::collections::{BTreeMap, BTreeSet};
use suspension::Suspensions;
use vm_wire::{
    Frame, HostId, MachineId, Tid,
    peer::{Joined, MoveOffer, TaskAnswer},
    task::Watched,
};

/// A host's daemon. See the module.
#[derive(Debug)]
pub struct Daemon {
    cx: Context,
    held: Held,
    /// What waits for links.
    absent_links: BTreeMap<HostId, Absent>,
    /// Bytes that wait for links, and for tasks here without a data socket.
    absent_bytes: usize,
    links: BTreeMap<HostId, Link>,
    unreachable: Unreachable,
    tasks: BTreeMap<Tid, LocalTask>,
    /// Tokens of tasks that have not enrolled yet.
    tokens: BTreeMap<u64, Tid>,
    /// Spawns asked for here, by `(asker, request)`.
    spawnings: BTreeMap<(Tid, u64), Spawning>,
    /// Spawns ordered here, likewise.
    ordered: BTreeMap<(Tid, u64), Ordered>,
    /// Processes from a shell that become masters, by the request of this daemon.
    enrolling: BTreeMap<u64, Enrolling>,
    /// The hosts of which the tasks here were told that they came, and not that they went.
    known: BTreeSet<HostId>,
    /// The local tasks that watch.
    watchers: BTreeMap<Watched, BTreeSet<Tid>>,
    /// Last numbers that were asked for, by the ended task and its watcher.
    asked_last: BTreeMap<(Tid, Tid), LastAsked>,
    /// The local tasks with a request that waits for a change of a group.
    awaiting_group: BTreeMap<String, BTreeSet<Tid>>,
    /// The local tasks with a request about a task that the log does not know yet.
    parked: BTreeSet<Tid>,
    consoles: Consoles,
    /// Tasks here that are on their way to other hosts.
    leaving: BTreeMap<Tid, Leaving>,
    /// Tasks of other hosts that are on their way here.
    arriving: BTreeMap<Tid, Arriving>,
    /// Offers of tasks of which the log here does not know yet that they are there: from, and under
    /// which incarnation.
    early_offers: BTreeMap<Tid, (HostId, MoveOffer)>,
    /// Answers to tasks of which the log here does not know yet that they are here.
    early_answers: BTreeMap<Tid, TaskAnswer>,
    /// Moves, drains and checks that were asked for here.
    asked_moves: BTreeMap<u64, MoveAsked>,
    coordinators: Coordinators,
    move_orders: MoveOrders,
    cuts: Cuts,
    /// Answers to tasks whose cut is in the log and was not carried out here yet.
    postponed: Vec<(Tid, u64, Frame)>,
    checkpoints: Checkpoints,
    restarts: Restarts,
    suspensions: Suspensions,
    drain: Option<Drain>,
    departure: Departure,
    /// Whether the endpoint may have got a message.
    mail: bool,
    arrival: Arrival,
    /// Nothing is decided any more.
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

    /// A daemon that was let into a machine.
    ///
    /// # Errors
    /// [`SnapshotError`] when what it was told cannot be read.
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
            held: Held::default(),
            absent_links: BTreeMap::new(),
            absent_bytes: 0,
            links: BTreeMap::new(),
            unreachable: Unreachable::default(),
            tasks: BTreeMap::new(),
            tokens: BTreeMap::new(),
            spawnings: BTreeMap::new(),
            ordered: BTreeMap::new(),
            enrolling: BTreeMap::new(),
            known,
            watchers: BTreeMap::new(),
            asked_last: BTreeMap::new(),
            awaiting_group: BTreeMap::new(),
            parked: BTreeSet::new(),
            consoles: Consoles::default(),
            leaving: BTreeMap::new(),
            arriving: BTreeMap::new(),
            early_offers: BTreeMap::new(),
            early_answers: BTreeMap::new(),
            asked_moves: BTreeMap::new(),
            coordinators: Coordinators::default(),
            move_orders: MoveOrders::default(),
            cuts: Cuts::new(),
            postponed: Vec::new(),
            checkpoints: Checkpoints::default(),
            restarts: Restarts::default(),
            suspensions: Suspensions::default(),
            drain: None,
            departure: Departure::default(),
            mail: false,
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

    /// This daemon's part in the agreement, to be looked at.
    pub fn agreement(&self) -> &Agreement {
        &self.cx.agreement
    }

    /// The hosts to which there are links.
    pub fn linked(&self) -> Vec<HostId> {
        self.cx.routes.links().collect()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.cx.counters
    }

    /// Payload and overhead of the messages that tasks which have ended left here. Bytes.
    pub fn kept_bytes(&self) -> u64 {
        self.cx.keeper.bytes()
    }

    /// The tasks whose processes or ends are this daemon's matter.
    pub fn local_tasks(&self) -> impl Iterator<Item = Tid> {
        self.tasks.keys().copied()
    }

    /// When [`Input::Tick`] is due.
    pub fn deadline(&self) -> Time {
        let due = [
            self.cx.endpoint.deadline(),
            self.cx.keeper.deadline(),
            self.held.deadline(),
            self.cx.timers.first().map(|(due, _)| *due),
        ];
        let agreement = self.cx.agreement.deadline();
        due.into_iter().flatten().fold(agreement, Time::min)
    }

    /// Takes one input; what is to be done goes into `out`. After [`Output::End`](crate::Output::End) nothing follows.
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
            Input::Tick => self.tick(),
            Input::LinkUp(host) => self.on_link_up(host),
            Input::LinkDown(host) => self.on_link_down(host),
            Input::Joiner(conn, frame) => self.on_joiner(conn, &frame),
            Input::Address(addr) => self.on_address(addr),
            Input::Enrol { conn, pid, enrol } => self.on_enrol(conn, pid, enrol),
            Input::TaskGone(tid) => self.on_task_gone(tid),
            Input::ProcessEnded(tid, status) => self.on_process_ended(tid, status),
            Input::LaunchFailed(tid, failed) => self.on_launch_failed(tid, &failed),
            Input::Launched(tid, pid) => self.on_launched(tid, pid),
            Input::TaskOutput { tid, stream, bytes } => {
                self.on_task_output(tid, stream, bytes);
            }
            Input::Console(conn, frame) => self.on_console(conn, frame),
            Input::ConsoleFull(conn) => {
                self.consoles.on_full(&mut self.cx, &self.tasks, conn, true)
            }
            Input::ConsoleRoom(conn) => {
                self.consoles
                    .on_full(&mut self.cx, &self.tasks, conn, false)
            }
            Input::ConnGone(conn) => self.on_conn_gone(conn),
            Input::Dropped(pairs) => self.on_dropped(pairs),
            Input::Usage(question, rows) => self.consoles.on_measured(&mut self.cx, question, rows),
            Input::ProgramFound(question, found) => self.on_program_found(question, found),
            Input::Copied(tid, bytes, rounds) => self.on_copied(tid, bytes, rounds),
            Input::Sent(tid, sent) => self.on_sent(tid, sent),
            Input::SentAll(tid) => self.on_sent_all(tid),
            Input::Stopped(tid, stopped) => self.on_stopped(tid, stopped),
            Input::Loaded(question, result) => {
                self.restarts.on_loaded(&mut self.cx, question, result)
            }
            Input::Portable(tid) => self.on_portable(tid),
            Input::InCalls(tid) => self.on_in_calls(tid),
            Input::Held(tid) => self.on_held(tid),
            Input::Frozen(tid, result) => self.on_frozen(tid, result),
            Input::Arrived(tid, result) => self.on_arrived(tid, result),
            Input::Stored(tid, epoch, result) => self.on_stored(tid, epoch, result),
            Input::Suspended(tid, number, result) => {
                self.on_suspended_image(tid, number, result);
            }
            Input::CopyTaken(ticket, result) => {
                self.checkpoints
                    .copies
                    .on_copy_taken(&mut self.cx, ticket, result);
            }
            Input::PartSent(ticket, result) => self.on_part_sent(ticket, result),
            Input::Stocked(question, result) => {
                self.restarts.on_stocked(&mut self.cx, question, result)
            }
            Input::Committed(committed) => self.on_committed(committed),
            Input::Coordinator(number, frame) => self.on_coordinator(number, &frame),
            Input::CoordinatorGone(number) => self.on_coordinator_gone(number),
            Input::Stop => self.on_stop(),
        }
    }
}
