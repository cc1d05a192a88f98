//! What a host's daemon decides.
//!
//! One [`Daemon`] per host. Its shell feeds it one [`Input`] at a time and carries out the
//! [`Output`]s in their order; between two inputs nothing happens but time, and
//! [`Daemon::deadline`] says until when nothing needs to.
//!
//! # Parts
//!
//! | file | what it decides |
//! |---|---|
//! | `traffic` | where frames between tasks go: the hot path, and all that is not |
//! | `links` | which links there shall be, and what follows when one is made or broken |
//! | `arrival` | when a host that has joined is there; where it is reached |
//! | `unreachable` | hosts that cannot reach each other while others reach both: who is told |
//! | `tasks` | the table of the processes here; how a process becomes a task |
//! | `requests` | what a task asks; each request is answered once, a repeated one likewise |
//! | `spawn` | tasks that are asked for here, tasks that are ordered here |
//! | `exit` | how tasks end |
//! | `moves` | tasks that leave for another host, tasks that arrive |
//! | `coordinators` | the processes that drive moves, and whose orders count |
//! | `prepare` | portable tasks that come to their safe points before a cut |
//! | `check`, `drain` | what speaks against a move; all tasks of a host leave |
//! | `answers` | answers to tasks that have moved since they asked |
//! | `revive`, `recover` | applications that are brought back, by a person or by themselves |
//! | `copies`, `stock` | images on the disks of two hosts; which checkpoint is whole on all disks |
//! | `suspend`, `suspended` | applications that are suspended, and resumed; single tasks likewise |
//! | `notify` | who is told of it, after which message |
//! | `signals`, `groups` | what they say |
//! | `orders` | reliable messages between daemons |
//! | `departure` | how this host leaves, or ends with its machine |
//! | `console`, `listing`, `runs`, `flush` | what a person asks, is shown, and runs, to the last line |
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
//! A frame of data is looked up once in [`Routes`] and moved into the outbox; nothing is allocated
//! or copied, and the body is not looked at. A frame whose receiver has no socket yet, or whose link
//! is being made, waits as far as there is room. Any other that cannot go on is dropped; its sender
//! retains it and is told when there is a new way, or that there will be none.

mod absent;
mod answers;
mod arrival;
mod arriving;
mod asked;
mod check;
mod checkpoints;
mod console;
mod coordinators;
mod copies;
mod cut;
mod departure;
mod drain;
mod exit;
mod flush;
mod groups;
mod leaving;
mod links;
mod listing;
mod moves;
mod notify;
mod orders;
mod owner;
mod part;
mod prepare;
mod progress;
mod recover;
mod requests;
mod revive;
mod runs;
mod signals;
mod spawn;
mod stock;
mod streams;
mod suspend;
mod suspended;
mod tasks;
mod traffic;
mod unreachable;

pub use departure::AT_ONCE;
pub use moves::{MoveCounters, MovesUnderway};
pub use traffic::Counters;

use crate::{
    Agreement, AgreementConfig, AgreementOutput, Applied, Endpoint, EndpointConfig, HostPhase,
    Input, Keeper, Outbox, Output, Time,
    agreed::SnapshotError,
    route::{Held, Routes},
};
use absent::Absent;
use arriving::Arriving;
use asked::MoveAsked;
use checkpoints::CheckpointAsked;
use console::Console;
use coordinators::Coordinators;
use copies::Coming;
use cut::Cuts;
use departure::Departure;
use drain::Drain;
use leaving::Leaving;
use links::Link;
use listing::Listing;
use notify::LastAsked;
use owner::MoveOrders;
use prepare::{Holding, Preparing};
use recover::Again;
use revive::{RestartAsked, Revived};
use runs::Run;
use spawn::{Enrolling, Ordered, Spawning};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};
use stock::Gathering;
use tasks::LocalTask;
use unreachable::Unreachable;
use vm_wire::{
    Frame, HostId, MachineId, Tid,
    agreed::{ExitStatus, HostFacts},
    limits,
    peer::{Joined, MoveOffer, TaskAnswer},
    task::Watched,
};

/// What a daemon needs to know at its start.
#[derive(Debug, Clone)]
pub struct DaemonConfig {
    /// What the host says of itself.
    pub facts: HostFacts,
    /// Drawn at random at the start; makes asking twice for a place in the machine one host.
    pub nonce: u64,
    /// Drawn at random at the start, secret: tokens of tasks are made of it.
    pub seed: u64,
    /// The release, for people.
    pub release: String,
    /// Unacknowledged bytes that a task may have towards one receiver.
    pub window_bytes: u64,
    /// Bytes of messages that a task may keep unread.
    pub inbox_bytes: u64,
    /// Whether it drains its host when it is asked to end ([`Input::Stop`]), and how long at most,
    /// before it leaves with what is left.
    pub drain_at_stop: Option<Duration>,
    /// Whether the applications of tasks that cannot leave are suspended in that drain.
    pub suspend_at_stop: bool,
    /// For how long applications are suspended that cannot leave when this host drains. Milliseconds;
    /// 0: until they are resumed.
    pub suspended_for_ms: u64,
    /// The working folder of this host: what a task has open below it is looked for below that of
    /// the host to which it moves.
    pub work_dir: Option<String>,
    /// Where its checkpoints are, for people.
    pub store: String,
    /// The time of day at the shell's [`Time`] 0: milliseconds since 1970.
    pub clock_ms: u64,
    /// Whether it makes links at once to the hosts of the machine that it was let into, and within which
    /// time it has to have them ([`Output::Linked`]).
    pub link_time: Option<Duration>,
    /// For the log.
    pub agreement: AgreementConfig,
}

impl DaemonConfig {
    /// The defaults, for a host of these facts.
    pub fn new(facts: HostFacts, nonce: u64) -> Self {
        DaemonConfig {
            facts,
            nonce,
            seed: nonce,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            window_bytes: limits::WINDOW_BYTES_DEFAULT,
            inbox_bytes: limits::INBOX_BYTES_DEFAULT,
            drain_at_stop: None,
            suspend_at_stop: false,
            suspended_for_ms: 0,
            work_dir: None,
            store: String::new(),
            link_time: None,
            clock_ms: 0,
            agreement: AgreementConfig::default(),
        }
    }
}

/// Something that is due at a time of the daemon's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// This host has to have links.
    Arrival,
    /// Make the link to a host again.
    Reconnect(HostId),
    /// The link to a host may be down for long.
    LinkDown(HostId),
    /// A task waited long enough for the log to know whom its request is about.
    Parked(Tid, u64),
    /// The log had time to know the second task, of which the first awaits messages.
    Awaited(Tid, Tid),
    /// A listing waited long enough for the other hosts.
    Listing(u64),
    /// A measurement waited long enough for processes that are being started.
    Measure(u64),
    /// A run's end waited long enough for the last lines.
    Flush(Tid),
    /// A stage of a move takes too long, or is in doubt.
    Move(Tid, u32),
    /// The process of an application's coordinator, by its number, takes too long.
    Coordinator(Tid, u64),
    /// No coordinator has taken up a move, or a checkpoint, that is wanted here.
    Asked(u64),
    CheckpointAsked(u64),
    /// A move that could not be made for a reason that passes is wanted again.
    AskAgain(u64),
    /// A checkpoint of an application is to be made by itself.
    Policy(Tid),
    /// Portable tasks of an application have had time to come to safe points, before a cut.
    Hold(Tid),
    /// An application has ended well some time ago.
    Finished(Tid),
    /// A cut of an application may have lasted for too long.
    Cut(Tid, u32),
    /// An application takes too long to be brought back, in that generation.
    Revive(Tid, u32),
    /// Bring an application back that goes back.
    Recover(Tid),
    /// Hosts were asked what is in their stores, in the question of that number.
    Stock(u64),
    /// The time of an application that is suspended may be over, or it may be resumed.
    Suspension(Tid),
    /// There may be room for applications that are suspended.
    Room,
    /// Look at the tasks that a drain could not move yet, and how long it may still take.
    Drain,
    /// Look how far the departure is.
    Departure,
}

/// What the answer to a question to the shell is for.
#[derive(Debug)]
enum Question {
    /// The program of the spawn order `(asker, request)`.
    Program(Tid, u64),
    /// What a checkpoint holds that is to be restarted, for the wish of that number.
    Restart(u64),
    /// Likewise, for the tasks here of an application that is brought back in that generation.
    Revive(Tid, u32),
    /// What the manifest of a checkpoint says, for the question of another host's daemon.
    Manifest(HostId, u64),
    /// What is in the store here, for the wish that has asked all hosts in the question of that number.
    OwnStock,
    /// Likewise, for the question of another host's daemon.
    Stock(HostId, u64),
    /// What the tasks here use, for the listing of this daemon's that has the same number.
    Listing,
    /// Likewise, for the question of another host's daemon.
    Usage(HostId, u64),
}

/// A host's daemon. See the module.
#[derive(Debug)]
pub struct Daemon {
    config: DaemonConfig,
    machine: MachineId,
    me: HostId,
    /// This daemon as an end of channels.
    tid: Tid,
    /// The time of the step.
    now: Time,
    agreement: Agreement,
    endpoint: Endpoint,
    keeper: Keeper,
    routes: Routes,
    held: Held,
    /// What waits for links.
    absent_links: BTreeMap<HostId, Absent>,
    /// Bytes that wait for links, and for tasks here without a data socket.
    absent_bytes: usize,
    links: BTreeMap<HostId, Link>,
    /// Since when a host of the machine cannot be linked to.
    links_lost: BTreeMap<HostId, Time>,
    unreachable: Unreachable,
    tasks: BTreeMap<Tid, LocalTask>,
    /// Tokens of tasks that have not enrolled yet.
    tokens: BTreeMap<u64, Tid>,
    /// Sequence number of the next task born here.
    next_sequence: u32,
    /// Number of the next request that this daemon itself makes of the log.
    next_request: u64,
    next_question: u64,
    questions: BTreeMap<u64, Question>,
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
    consoles: BTreeMap<crate::ConnId, Console>,
    /// Masters that a console here runs.
    runs: BTreeMap<Tid, Run>,
    /// The hosts that wait for the last lines of an application's tasks here.
    flushes: BTreeMap<Tid, BTreeSet<HostId>>,
    listings: BTreeMap<u64, Listing>,
    /// Measurements that wait for processes here that are being started, by their questions.
    measurements: BTreeMap<u64, BTreeSet<Tid>>,
    /// Masters here that wait for room in the channels to the hosts of their consoles.
    unsent: BTreeSet<Tid>,
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
    /// Cuts that are prepared, by application, and the tasks here that stand for them.
    preparing: BTreeMap<Tid, Preparing>,
    holding: BTreeMap<Tid, Holding>,
    /// Answers to tasks whose cut is in the log and was not carried out here yet.
    postponed: Vec<(Tid, u64, Frame)>,
    /// Checkpoints that were asked for here.
    asked_checkpoints: BTreeMap<u64, CheckpointAsked>,
    /// When this daemon makes checkpoints by itself, of which applications.
    policies: BTreeMap<Tid, Time>,
    /// Applications that have ended well, whose checkpoints this daemon is to remove.
    finished: BTreeSet<Tid>,
    /// Restarts that were asked for here.
    asked_restarts: BTreeMap<u64, RestartAsked>,
    /// Applications that are being brought back, and wait for this host.
    revived: BTreeMap<Tid, Revived>,
    /// Wishes that wait for what hosts have in their stores, by the question that these were asked.
    gatherings: BTreeMap<u64, Gathering>,
    /// Manifests that other hosts were asked for, by question.
    manifests: BTreeMap<u64, HostId>,
    /// Parts of checkpoints that other hosts send here, and that are sent to others, by ticket.
    coming: BTreeMap<u64, Coming>,
    lent: BTreeMap<u64, HostId>,
    /// Commits that other hosts' daemons wait for, by application and epoch.
    commits: BTreeMap<(Tid, u32), HostId>,
    /// Applications that go back, since when.
    recoveries: BTreeMap<Tid, Time>,
    /// Applications that were brought back, since when they run again.
    again: BTreeMap<Tid, Again>,
    /// When it was last looked whether there is room for applications that are suspended.
    room_looked: Option<Time>,
    drain: Option<Drain>,
    departure: Option<Departure>,
    timers: BTreeSet<(Time, Timer)>,
    counters: Counters,
    /// What the agreement decided and is not carried out yet.
    decisions: VecDeque<AgreementOutput>,
    /// What endpoint and keeper send and is not routed yet.
    frames: VecDeque<Frame>,
    /// Whether the endpoint may have got a message.
    mail: bool,
    /// To which hosts this one has to have links before it has arrived.
    arrival: Option<BTreeSet<HostId>>,
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
        let machine = agreement.state().machine();
        let me = agreement.me();
        let tid = Tid::daemon(machine, me);
        let mut routes = Routes::new(me);
        for (tid, task) in agreement.state().living_tasks() {
            routes.moved(tid, task.host, task.incarnation);
        }
        let endpoint = Endpoint::new(EndpointConfig {
            me: tid,
            window_bytes: limits::WINDOW_BYTES_DEFAULT,
            inbox_bytes: limits::INBOX_BYTES_DEFAULT,
            epoch: 0,
            generation: 0,
        });
        let state = agreement.state();
        let present = state.hosts().map(|(host, _)| host);
        let known = present.filter(|host| state.is_present(*host)).collect();
        let mut daemon = Daemon {
            config,
            machine,
            me,
            tid,
            now,
            agreement,
            endpoint,
            keeper: Keeper::new(),
            routes,
            held: Held::default(),
            absent_links: BTreeMap::new(),
            absent_bytes: 0,
            links: BTreeMap::new(),
            links_lost: BTreeMap::new(),
            unreachable: Unreachable::default(),
            tasks: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next_sequence: 1,
            next_request: 1,
            next_question: 1,
            questions: BTreeMap::new(),
            spawnings: BTreeMap::new(),
            ordered: BTreeMap::new(),
            enrolling: BTreeMap::new(),
            known,
            watchers: BTreeMap::new(),
            asked_last: BTreeMap::new(),
            awaiting_group: BTreeMap::new(),
            parked: BTreeSet::new(),
            consoles: BTreeMap::new(),
            runs: BTreeMap::new(),
            flushes: BTreeMap::new(),
            listings: BTreeMap::new(),
            measurements: BTreeMap::new(),
            unsent: BTreeSet::new(),
            leaving: BTreeMap::new(),
            arriving: BTreeMap::new(),
            early_offers: BTreeMap::new(),
            early_answers: BTreeMap::new(),
            asked_moves: BTreeMap::new(),
            coordinators: Coordinators::default(),
            move_orders: MoveOrders::default(),
            cuts: Cuts::new(),
            preparing: BTreeMap::new(),
            holding: BTreeMap::new(),
            postponed: Vec::new(),
            asked_checkpoints: BTreeMap::new(),
            policies: BTreeMap::new(),
            finished: BTreeSet::new(),
            asked_restarts: BTreeMap::new(),
            revived: BTreeMap::new(),
            gatherings: BTreeMap::new(),
            manifests: BTreeMap::new(),
            coming: BTreeMap::new(),
            lent: BTreeMap::new(),
            commits: BTreeMap::new(),
            recoveries: BTreeMap::new(),
            again: BTreeMap::new(),
            room_looked: None,
            drain: None,
            departure: None,
            timers: BTreeSet::new(),
            counters: Counters::default(),
            decisions: VecDeque::new(),
            frames: VecDeque::new(),
            mail: false,
            arrival: None,
            over: false,
        };
        daemon.take_part_in_cuts(out);
        daemon.review_recoveries(out);
        daemon.review_suspensions(out);
        daemon.arrive(out);
        daemon.tick(out);
        daemon.settle(out);
        daemon
    }

    /// This daemon's part in the agreement, to be looked at.
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// The hosts to which there are links.
    pub fn linked(&self) -> Vec<HostId> {
        self.routes.links().collect()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Payload and overhead of the messages that tasks which have ended left here. Bytes.
    pub fn kept_bytes(&self) -> u64 {
        self.keeper.bytes()
    }

    /// The tasks whose processes or ends are this daemon's matter.
    pub fn local_tasks(&self) -> impl Iterator<Item = Tid> {
        self.tasks.keys().copied()
    }

    /// When [`Input::Tick`] is due.
    pub fn deadline(&self) -> Time {
        let due = [
            self.endpoint.deadline(),
            self.keeper.deadline(),
            self.held.deadline(),
            self.timers.first().map(|(due, _)| *due),
        ];
        let agreement = self.agreement.deadline();
        due.into_iter().flatten().fold(agreement, Time::min)
    }

    /// Takes one input; what is to be done goes into `out`. After [`Output::End`] nothing follows.
    pub fn step(&mut self, now: Time, input: Input, out: &mut Outbox) {
        self.now = now;
        if self.over {
            return;
        }
        match input {
            Input::Task(tid, frame) => self.on_task(tid, frame, out),
            Input::Peer(host, frame) => self.on_peer(host, frame, out),
            Input::Tick => self.tick(out),
            Input::LinkUp(host) => self.on_link_up(host, out),
            Input::LinkDown(host) => self.on_link_down(host, out),
            Input::Joiner(conn, frame) => self.on_joiner(conn, &frame, out),
            Input::Address(addr) => self.on_address(addr),
            Input::Enrol { conn, pid, enrol } => self.on_enrol(conn, pid, enrol, out),
            Input::TaskGone(tid) => self.on_task_gone(tid),
            Input::ProcessEnded(tid, status) => self.on_process_ended(tid, status, out),
            Input::LaunchFailed(tid, failed) => self.on_launch_failed(tid, &failed, out),
            Input::Launched(tid, pid) => self.on_launched(tid, pid, out),
            Input::TaskOutput { tid, stream, bytes } => {
                self.on_task_output(tid, stream, bytes, out);
            }
            Input::Console(conn, frame) => self.on_console(conn, frame, out),
            Input::ConsoleFull(conn) => self.on_console_full(conn, true, out),
            Input::ConsoleRoom(conn) => self.on_console_full(conn, false, out),
            Input::ConnGone(conn) => self.on_conn_gone(conn, out),
            Input::Dropped(pairs) => self.on_dropped(pairs, out),
            Input::Usage(question, rows) => self.on_usage(question, rows, out),
            Input::ProgramFound(question, found) => self.on_program_found(question, found, out),
            Input::Copied(tid, bytes, rounds) => self.on_copied(tid, bytes, rounds, out),
            Input::Sent(tid, sent) => self.on_sent(tid, sent),
            Input::SentAll(tid) => self.on_sent_all(tid),
            Input::Stopped(tid, stopped) => self.on_stopped(tid, stopped, out),
            Input::Loaded(question, result) => self.on_loaded(question, result, out),
            Input::Portable(tid) => self.on_portable(tid),
            Input::InCalls(tid) => self.on_in_calls(tid),
            Input::Held(tid) => self.on_held(tid, out),
            Input::Frozen(tid, result) => self.on_frozen(tid, result, out),
            Input::Arrived(tid, result) => self.on_arrived(tid, result, out),
            Input::Stored(tid, epoch, result) => self.on_stored(tid, epoch, result, out),
            Input::Suspended(tid, number, result) => {
                self.on_suspended_image(tid, number, result, out);
            }
            Input::CopyTaken(ticket, result) => self.on_copy_taken(ticket, result),
            Input::PartSent(ticket, result) => self.on_part_sent(ticket, result, out),
            Input::Stocked(question, result) => self.on_stocked(question, result, out),
            Input::Committed(committed) => self.on_committed(committed, out),
            Input::Coordinator(number, frame) => self.on_coordinator(number, &frame, out),
            Input::CoordinatorGone(number) => self.on_coordinator_gone(number, out),
            Input::Stop => self.on_stop(out),
        }
        self.settle(out);
    }

    fn tick(&mut self, out: &mut Outbox) {
        let now = self.now;
        if self.agreement.deadline() <= now {
            self.agreement.tick(now, &mut self.decisions);
        }
        self.endpoint.tick(now, &mut self.frames);
        self.keeper.tick(now, &mut self.frames);
        if self.held.deadline().is_some_and(|due| due <= now) {
            self.on_held_expired(out);
        }
        while let Some((due, timer)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.pop_first();
            match timer {
                Timer::Arrival => self.on_arrival_due(out),
                Timer::Reconnect(host) => self.on_reconnect(host, out),
                Timer::LinkDown(host) => self.on_link_down_due(host, out),
                Timer::Parked(tid, request) => self.on_parked_too_long(tid, request, out),
                Timer::Awaited(tid, about) => self.on_awaited_due(tid, about, out),
                Timer::Listing(question) => self.on_listing_over(question, out),
                Timer::Measure(question) => self.on_measure_due(question, out),
                Timer::Flush(app) => self.on_flush_over(app, out),
                Timer::Move(tid, incarnation) => self.on_move_due(tid, incarnation, out),
                Timer::Coordinator(app, number) => self.on_coordinator_due(app, number, out),
                Timer::Asked(number) => self.on_asked_due(number, out),
                Timer::AskAgain(number) => self.on_ask_again(number, out),
                Timer::CheckpointAsked(number) => self.on_checkpoint_asked_due(number, out),
                Timer::Policy(app) => self.on_policy_due(app, out),
                Timer::Hold(app) => self.on_hold_due(app, out),
                Timer::Finished(app) => self.clear_finished(app, out),
                Timer::Cut(app, epoch) => self.on_cut_due(app, epoch, out),
                Timer::Revive(app, generation) => self.on_revive_due(app, generation),
                Timer::Recover(app) => self.review_recovery(app, out),
                Timer::Stock(question) => self.on_stock_due(question, out),
                Timer::Suspension(app) => self.review_suspension(app, out),
                Timer::Room => self.room_may_be(out),
                Timer::Drain => self.on_drain_due(),
                Timer::Departure => {}
            }
        }
    }

    /// Carries out all that follows from an input.
    fn settle(&mut self, out: &mut Outbox) {
        while !self.over {
            if let Some(decision) = self.decisions.pop_front() {
                self.carry_out(decision, out);
            } else if let Some(frame) = self.frames.pop_front() {
                self.forward(frame, false, out);
            } else if std::mem::take(&mut self.mail) && self.read_mail(out) {
            } else if self.move_orders.has_reports() {
                self.send_reports(out);
            } else {
                // What a drain wants of other daemons goes out now, and so does output of masters.
                self.review_drain(out);
                self.review_unsent(out);
                let reports = self.move_orders.has_reports();
                if self.frames.is_empty() && self.decisions.is_empty() && !reports {
                    break;
                }
            }
        }
        if !self.over && !self.agreement.is_pending() {
            self.sweep_lost_births(out);
            self.sweep_lost_terms(out);
            self.sweep_lost_memberships();
            self.sweep_lost_policies(out);
            self.sweep_lost_restarts(out);
        }
        if self.departure.is_some() && !self.over {
            self.review_departure(out);
        }
    }

    fn carry_out(&mut self, decision: AgreementOutput, out: &mut Outbox) {
        match decision {
            AgreementOutput::Send(host, frame) => {
                if self.routes.has_link(host) {
                    out.push_back(Output::Peer(host, frame));
                } else {
                    self.want_link(host, out);
                }
            }
            AgreementOutput::Joiner(conn, frame) => out.push_back(Output::Joiner(conn, frame)),
            AgreementOutput::Applied(index, applied) => self.on_applied(index, applied, out),
            AgreementOutput::Lease(end) => out.push_back(Output::Lease(end)),
            AgreementOutput::Connect(host, _) => self.want_link(host, out),
            AgreementOutput::Lost(why) => self.on_lost(why, out),
        }
    }

    fn on_applied(&mut self, index: u64, applied: Applied, out: &mut Outbox) {
        match applied {
            Applied::HostJoined { host, .. } => {
                self.on_host_joined(host, out);
                self.review_recoveries(out);
                self.review_suspensions(out);
            }
            Applied::HostAddress(host) => self.on_host_address(host, out),
            Applied::HostDraining(host) => self.on_host_draining(host),
            Applied::HostResumed(host) => {
                self.on_host_resumed(host, out);
                self.review_suspensions(out);
            }
            Applied::HostLeaving(host) => {
                self.on_host_leaving(host, out);
                self.review_coordinators(out);
                self.review_recoveries(out);
                self.review_suspensions(out);
            }
            Applied::HostGone(host) | Applied::HostDead(host) => {
                self.on_host_lost(host, out);
                self.review_arrival(out);
                self.review_coordinators(out);
                self.review_recoveries(out);
                self.review_suspensions(out);
            }
            Applied::Spawned(record) => {
                self.on_spawned(&record, out);
                self.tell_runs_of_links(out);
                self.review_coordinator(record.app, out);
            }
            Applied::Exited {
                tid, host, status, ..
            } => {
                self.on_exited(tid, host, status, out);
                if status == ExitStatus::RolledBack {
                    // The state may know of its next life already.
                    self.end_moves(|driven| driven.ask.tid == tid, out);
                }
                self.review_coordinator_of(tid, out);
                self.room_may_be(out);
            }
            Applied::Relocated {
                tid,
                to,
                incarnation,
                suspended,
                ..
            } => {
                self.on_moved(tid, to, incarnation, Some(suspended), out);
                self.tell_runs_of_links(out);
                self.review_coordinator_of(tid, out);
            }
            Applied::Stayed {
                tid,
                host,
                incarnation,
            } => {
                self.on_moved(tid, host, incarnation, None, out);
                self.review_coordinator_of(tid, out);
            }
            Applied::Group { group, .. } => self.on_group_changed(&group, out),
            Applied::Coordinator { app, .. } => self.on_coordinated(app, out),
            Applied::Cut { app, epoch, agreed } => {
                self.on_cut(app, epoch, agreed.map(|agreed| *agreed), out);
            }
            Applied::CutGone { app, epoch } => self.on_cut_gone(app, epoch, out),
            Applied::CutEnded { app, epoch, saved } => self.on_cut_ended(app, epoch, saved, out),
            Applied::Policy(app) => self.on_policy(app, out),
            Applied::Revived { app, generation } => self.on_revived(app, generation, out),
            Applied::Started {
                app,
                generation,
                reviving,
            } => self.on_started(app, generation, reviving, out),
            Applied::Abandoned {
                app,
                generation,
                asker,
                why,
            } => self.on_abandoned(app, generation, asker, &why, out),
            Applied::RolledBack(app) => self.on_rolled_back(app, out),
            Applied::Finished { app, host } => self.on_finished(app, host),
            Applied::GivenUp { app, why } => self.on_given_up(app, &why, out),
            Applied::Suspended(app) => self.on_suspended(app, out),
            Applied::NotResumed { app, why } => self.on_not_resumed(app, &why, out),
            Applied::Unsuspended { app, why } => self.on_unsuspended(app, why, out),
            Applied::Halted => self.on_halted(index, out),
            Applied::Void(change, why) => self.on_void(change, why, out),
        }
    }

    /// A host's name, for people.
    fn host_name(&self, host: HostId) -> String {
        match self.agreement.state().host(host) {
            Some(found) => found.facts.name.clone(),
            None => host.to_string(),
        }
    }

    /// Whether this host takes no new tasks.
    fn is_departing(&self) -> bool {
        let here = self.agreement.state().host(self.me);
        self.departure.is_some() || here.is_none_or(|host| host.phase != HostPhase::Living)
    }

    fn question(&mut self, what: Question) -> u64 {
        let question = self.next_question;
        self.next_question += 1;
        self.questions.insert(question, what);
        question
    }

    fn set_timer(&mut self, due: Time, timer: Timer) {
        self.timers.insert((due, timer));
    }
}
