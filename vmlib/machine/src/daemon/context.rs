//! The context that all subsystems of a daemon share: clock, configuration, identity, agreement,
//! routes, timers, numbers and outbox.
//!
//! A subsystem gets `&mut Context` beside its own tables. The context knows no subsystem.

use super::{config::DaemonConfig, counters::Counters, effect::Effect};
use crate::{Agreement, AgreementOutput, LinkOutput, Outbox, Output, Time, route::Routes};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_endpoint::{Endpoint, EndpointConfig, Keeper};
use vm_wire::{
    Frame, HostId, MachineId, Message, Tid,
    agreed::ExitStatus,
    interrupt::Folders,
    limits,
    peer::Order,
    task::{FailKind, Failed, RingClosed, RouteEnd},
};

/// An action of the daemon that is due at a certain time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The time limit for the links of a host that has just joined.
    Arrival,
    /// Makes the link to a host again.
    Reconnect(HostId),
    /// Checks whether the link to a host has been down for `limits::LINK_DOWN`.
    LinkDown(HostId),
    /// The time limit for the log to know the task that request `.1` of task `.0` is about.
    Parked(Tid, u64),
    /// The time limit for the log to know the second task, from which the first task awaits
    /// messages.
    Awaited(Tid, Tid),
    /// The time limit for the replies of hosts to a listing.
    Listing(u64),
    /// The time limit for starting processes that a measurement waits for.
    Measure(u64),
    /// The time limit for the last lines of a run that ends.
    Flush(Tid),
    /// Checks whether the move of a task, in that incarnation, takes too long or is in doubt.
    Move(Tid, u32),
    /// Checks whether the coordinator process of an application, by its number, takes too long.
    Coordinator(Tid, u64),
    /// The time limit for a coordinator to accept the move request of that number.
    Asked(u64),
    /// The time limit for a coordinator to accept the checkpoint request of that number.
    CheckpointAsked(u64),
    /// Repeats a move request that was refused for a reason that passes.
    AskAgain(u64),
    /// The next checkpoint by the policy of an application is due.
    Policy(Tid),
    /// The time limit for portable tasks of an application to reach safe points before a cut.
    Hold(Tid),
    /// Removes the checkpoints of an application that has ended well.
    Finished(Tid),
    /// Checks whether a cut of an application, of that epoch, takes too long.
    Cut(Tid, u32),
    /// The time limit for the restore of an application in that generation.
    Revive(Tid, u32),
    /// Tries the recovery of an application.
    Recover(Tid),
    /// The time limit for the store inventories of hosts, for the query of that number.
    Stock(u64),
    /// Checks whether the time of a suspended application is over, and whether it can be resumed.
    Suspension(Tid),
    /// Checks whether there is room for suspended applications.
    Room,
    /// The time limit for an expected direct connection, by its number.
    Direct(u64),
    /// Tries the tasks that a drain could not move yet, and checks its time limit.
    Drain,
    /// Reviews the departure of this host.
    Departure,
}

/// The purpose of a request to the shell that has a result.
#[derive(Debug)]
pub(super) enum Question {
    /// The path of the program of the spawn order `(requester, request)`.
    Program(Tid, u64),
    /// A checkpoint, for the restart request of that number.
    Restart(u64),
    /// The manifest of a checkpoint, for the local tasks of an application that is restarted in
    /// that generation.
    Revive(Tid, u32),
    /// The manifest of a checkpoint, for the request of that number from another host's daemon.
    Manifest(HostId, u64),
    /// The inventory of this host's store, for the query of the same number.
    OwnStock,
    /// The inventory of this host's store, for the request of that number from another host's
    /// daemon.
    Stock(HostId, u64),
    /// The usage of this host's tasks, for the listing of the same number.
    Listing,
    /// The usage of this host's tasks, for the request of that number from another host's daemon.
    Usage(HostId, u64),
}

/// The state of a daemon that all its subsystems share.
#[derive(Debug)]
pub(super) struct Context {
    pub config: DaemonConfig,
    pub machine: MachineId,
    pub me: HostId,
    /// The id of this daemon as an end of channels.
    pub tid: Tid,
    /// The time of the current step.
    pub now: Time,
    pub agreement: Agreement,
    pub endpoint: Endpoint,
    /// Retains the undelivered messages of ended tasks.
    pub keeper: Keeper,
    pub routes: Routes,
    /// Sequence number of the next task that is born on this host.
    pub next_sequence: u32,
    /// Number of the next request that this daemon makes itself.
    pub next_request: u64,
    pub next_question: u64,
    pub questions: BTreeMap<u64, Question>,
    pub timers: BTreeSet<(Time, Timer)>,
    pub counters: Counters,
    /// Outputs of the agreement that are not carried out yet.
    pub decisions: VecDeque<AgreementOutput>,
    /// Frames of the endpoint and the keeper that are not routed yet.
    pub frames: VecDeque<Frame>,
    /// Effects that are not delivered yet. Empty between two steps.
    pub effects: VecDeque<Effect>,
    /// Outputs to the shell, in their order. Empty between two steps.
    pub out: Outbox,
}

impl Context {
    /// The context of a daemon that starts with the agreed state in `agreement`.
    pub fn new(now: Time, config: DaemonConfig, agreement: Agreement) -> Self {
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
            ring_after: None,
        });
        Context {
            config,
            machine,
            me,
            tid,
            now,
            agreement,
            endpoint,
            keeper: Keeper::new(),
            routes,
            next_sequence: 1,
            next_request: 1,
            next_question: 1,
            questions: BTreeMap::new(),
            timers: BTreeSet::new(),
            counters: Counters::default(),
            decisions: VecDeque::new(),
            frames: VecDeque::new(),
            effects: VecDeque::new(),
            out: Outbox::new(),
        }
    }

    /// Leaves an effect for another subsystem.
    pub fn effect(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Adds an output for the shell, which carries it out after the step.
    pub fn emit(&mut self, output: impl Into<Output>) {
        self.out.push_back(output.into());
    }

    /// The name of a host, for people.
    pub fn host_name(&self, host: HostId) -> String {
        match self.agreement.state().host(host) {
            Some(found) => found.facts.name.clone(),
            None => host.to_string(),
        }
    }

    /// The error text for a request that needs a link which this host does not have.
    pub fn cannot_reach(&self, host: HostId) -> String {
        let (here, name) = (&self.config.facts.name, self.host_name(host));
        format!("host '{here}' cannot reach host '{name}' (see 'vm conf')")
    }

    pub fn set_timer(&mut self, due: Time, timer: Timer) {
        self.timers.insert((due, timer));
    }

    /// Removes a timer that is not due yet.
    pub fn cancel_timer(&mut self, timer: Timer) {
        self.timers.retain(|(_, other)| *other != timer);
    }

    pub fn question(&mut self, what: Question) -> u64 {
        let question = self.next_question;
        self.next_question += 1;
        self.questions.insert(question, what);
        question
    }

    /// Sends an order to another host's daemon. `false` if the send queue is full.
    pub fn send_order(&mut self, host: HostId, order: &Order) -> bool {
        let to = Tid::daemon(self.machine, host);
        let payload = Bytes::from(order.to_payload());
        self.endpoint
            .queue(self.now, to, payload, &mut self.frames)
            .is_ok()
    }

    /// Tells a task that its ring or direct connection to `peer` is closed. A frozen task that continues
    /// on this host reads the frame afterwards; a task that continues elsewhere has no route any more.
    pub fn tell_route_closed(&mut self, tid: Tid, peer: Tid, id: u64) {
        let why = RouteEnd::Closed;
        let closed = RingClosed { peer, id, why }.frame();
        let frame = closed.between(self.tid, tid);
        self.emit(Output::Task(tid, frame));
    }

    /// Sends an order that may be lost, if the send queue keeps half of its room for other orders.
    pub fn send_news(&mut self, host: HostId, order: &Order) -> bool {
        let to = Tid::daemon(self.machine, host);
        self.queue_within(limits::QUEUE_BYTES / 2, to, order)
    }

    /// Sends an order, if fewer than `limit` bytes wait for that daemon.
    pub fn send_within(&mut self, limit: usize, host: HostId, order: &Order) -> bool {
        let to = Tid::daemon(self.machine, host);
        self.queue_within(limit, to, order)
    }

    pub fn queue_within(&mut self, limit: usize, to: Tid, order: &Order) -> bool {
        let payload = Bytes::from(order.to_payload());
        let (now, frames) = (self.now, &mut self.frames);
        let queued = self
            .endpoint
            .queue_within(limit as u64, now, to, payload, frames);
        queued.is_ok()
    }

    /// Closes the link of a peer that broke the protocol.
    pub fn refuse_peer(&mut self, host: HostId, why: &str) {
        self.counters.refused_peer += 1;
        let name = self.host_name(host);
        self.out
            .push_back(Output::Note(format!("closed the link to {name}: {why}")));
        self.out.push_back(LinkOutput::Disconnect(host).into());
    }

    /// The failure of a request about a task that has ended or does not exist.
    pub fn no_such_task(&self, tid: Tid) -> Failed {
        let shown = tid.show(self.machine);
        let text = match self
            .agreement
            .state()
            .task(tid)
            .and_then(|task| task.status)
        {
            Some(status) => {
                let app = self
                    .agreement
                    .state()
                    .task(tid)
                    .map_or(tid, |task| task.app);
                let suspended = self.agreement.state().suspended(app).map(|_| {
                    let app = app.show(self.machine);
                    format!("; its application is suspended: 'vm resume {app}' resumes it")
                });
                let how = suspended.unwrap_or_default();
                format!("task {shown} has {}{how}", past(status))
            }
            None => format!("there is no task {shown}"),
        };
        Failed::new(FailKind::NoSuchTask, text)
    }

    /// The generation of the application of a task, living or ended; 0 if the task is unknown.
    pub fn generation_of(&self, tid: Tid) -> u32 {
        let state = self.agreement.state();
        let app = state.task(tid).map(|task| task.app);
        app.map_or(0, |app| state.epochs(app).generation)
    }

    /// The generation of the application of a living task, by the local log; 0 if there is no such
    /// task.
    pub fn living_generation_of(&self, tid: Tid) -> u32 {
        let state = self.agreement.state();
        let task = state.living_task(tid);
        task.map_or(0, |task| state.epochs(task.app).generation)
    }

    /// The time of day in milliseconds since 1970.
    pub fn clock_ms(&self) -> u64 {
        self.config.clock_ms.saturating_add(self.now.0 / 1_000)
    }

    /// A token that no other process can guess: a step of splitmix64 over the secret seed. Two
    /// tokens are never equal, because a step maps different seeds to different tokens.
    pub fn token(&mut self) -> u64 {
        self.config.seed = self.config.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.config.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Reserves the sequence numbers of `count` new tasks and returns the first one. `None` if
    /// there are not enough left.
    pub fn number_tasks(&mut self, count: u32) -> Option<u32> {
        let first = self.next_sequence;
        let next = first.checked_add(count)?;
        if next - 1 > Tid::SEQUENCE_MAX {
            return None;
        }
        self.next_sequence = next;
        Some(first)
    }

    /// Whether each host has a store of its own.
    pub fn has_own_stores(&self) -> bool {
        self.config.facts.store_local
    }

    /// The host that receives requests for an application's coordinator: the host of the
    /// coordinator, or, if there is none yet, the host that has to start one. `None` while the host
    /// of the coordinator is lost and the log has not appointed another one.
    pub fn where_to_ask(&self, app: Tid) -> Option<HostId> {
        let state = self.agreement.state();
        let agreed = state.coordinator(app).map(|agreed| agreed.host);
        let host = agreed.or_else(|| state.coordinating_host(app))?;
        (host == self.me || state.is_present(host)).then_some(host)
    }

    /// Whether this host is the only one of the machine.
    pub fn is_alone(&self) -> bool {
        let mut hosts = self.agreement.state().hosts();
        hosts.all(|(other, _)| other == self.me)
    }

    /// The other hosts of the machine.
    pub fn other_hosts(&self) -> Vec<HostId> {
        let hosts = self.agreement.state().hosts();
        let others = hosts.map(|(host, _)| host).filter(|host| *host != self.me);
        others.collect()
    }

    /// The working folders of this host and of the host where a task was saved, if they differ.
    pub fn folders_here(&self, saved: Option<String>) -> Option<Folders> {
        let (here, there) = saved.zip(self.config.work_dir.clone())?;
        (here != there).then_some(Folders { here, there })
    }

    /// The number of an application's tasks on each host.
    pub fn places_of(&self, app: Tid) -> BTreeMap<HostId, u32> {
        let state = self.agreement.state();
        let mut hosts = BTreeMap::new();
        for task in state.tasks_of(app).filter_map(|tid| state.task(tid)) {
            *hosts.entry(task.host).or_default() += 1;
        }
        hosts
    }

    /// Sets the time limit for the store inventories of other hosts.
    pub fn await_stores(&mut self, question: u64, verify: bool) {
        let wait = match verify {
            true => limits::REVIVE_TIME,
            false => limits::STOCK_WAIT,
        };
        let due: Time = self.now + wait;
        self.set_timer(due, Timer::Stock(question));
    }
}

/// A status as the end of "task t1.1 has ...".
pub(in crate::daemon) fn past(status: ExitStatus) -> String {
    match status {
        ExitStatus::Left(_) | ExitStatus::Code(_) => status.to_string(),
        ExitStatus::Signal(_) | ExitStatus::HostLost | ExitStatus::Suspended => {
            format!("been {status}")
        }
        ExitStatus::RolledBack => "gone back to a checkpoint, with its application".to_owned(),
        ExitStatus::NotStarted => "ended: it could not be started".to_owned(),
        ExitStatus::Unknown => {
            "ended so long ago that nothing is known of it, or never was".to_owned()
        }
    }
}
