//! The context that all subsystems of a daemon share: its clock, configuration, identity, the agreement, the
//! routes, the timers, the numbers that it gives out, and the outbox.
//!
//! A subsystem gets `&mut Context` beside its own tables. The context knows no subsystem.

use super::{config::DaemonConfig, counters::Counters, effect::Effect};
use crate::{Agreement, AgreementOutput, Outbox, Output, Time, route::Routes};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_endpoint::{Endpoint, EndpointConfig, Keeper};
use vm_wire::{
    Frame, HostId, MachineId, Tid,
    agreed::ExitStatus,
    interrupt::Folders,
    limits,
    peer::Order,
    task::{FailKind, Failed},
};

/// Something that is due at a time of the daemon's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
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

/// The purpose of a question to the shell.
#[derive(Debug)]
pub(super) enum Question {
    /// The program of the spawn order `(asker, request)`.
    Program(Tid, u64),
    /// The content of a checkpoint, for the restart request of that number.
    Restart(u64),
    /// Likewise, for the tasks here of an application that is brought back in that generation.
    Revive(Tid, u32),
    /// The manifest of a checkpoint, for the question of another host's daemon.
    Manifest(HostId, u64),
    /// The checkpoints in this host's store, for the inventory query that has the same number.
    OwnStock,
    /// Likewise, for the question of another host's daemon.
    Stock(HostId, u64),
    /// The usage of this host's tasks, for the listing that has the same number.
    Listing,
    /// Likewise, for the question of another host's daemon.
    Usage(HostId, u64),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Context {
    pub config: DaemonConfig,
    pub machine: MachineId,
    pub me: HostId,
    /// This daemon as an end of channels.
    pub tid: Tid,
    /// The time of the step.
    pub now: Time,
    pub agreement: Agreement,
    pub endpoint: Endpoint,
    /// Messages that ended tasks left for others.
    pub keeper: Keeper,
    pub routes: Routes,
    /// Sequence number of the next task born here.
    pub next_sequence: u32,
    /// Number of the next request that this daemon itself makes of the log.
    pub next_request: u64,
    pub next_question: u64,
    pub questions: BTreeMap<u64, Question>,
    pub timers: BTreeSet<(Time, Timer)>,
    pub counters: Counters,
    /// Decisions of the agreement that are not carried out yet.
    pub decisions: VecDeque<AgreementOutput>,
    /// Frames of endpoint and keeper that are not routed yet.
    pub frames: VecDeque<Frame>,
    /// Effects that are not delivered yet. Empty between two steps.
    pub effects: VecDeque<Effect>,
    /// Orders to the shell, in their order. Empty between two steps.
    pub out: Outbox,
}

impl Context {
    /// The context of a daemon that begins with this state of the log.
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

    /// Has another subsystem do this.
    pub fn effect(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Has the shell do this after the step.
    pub fn emit(&mut self, output: Output) {
        self.out.push_back(output);
    }

    /// A host's name, for people.
    pub fn host_name(&self, host: HostId) -> String {
        match self.agreement.state().host(host) {
            Some(found) => found.facts.name.clone(),
            None => host.to_string(),
        }
    }

    /// The reason why nothing is requested of a host to which this one has no link.
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

    /// Sends an order to another host's daemon; `false` if too many wait already.
    pub fn send_order(&mut self, host: HostId, order: &Order) -> bool {
        let to = Tid::daemon(self.machine, host);
        let payload = Bytes::from(order.to_payload());
        self.endpoint
            .queue(self.now, to, payload, &mut self.frames)
            .is_ok()
    }

    /// Likewise, if it leaves room for orders: it can be lost, and they cannot.
    pub fn send_news(&mut self, host: HostId, order: &Order) -> bool {
        let to = Tid::daemon(self.machine, host);
        self.queue_within(limits::QUEUE_BYTES / 2, to, order)
    }

    /// Likewise, if less than so many bytes wait for that daemon.
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

    /// A peer broke the protocol.
    pub fn refuse_peer(&mut self, host: HostId, why: &str) {
        self.counters.refused_peer += 1;
        let name = self.host_name(host);
        self.out
            .push_back(Output::Note(format!("closed the link to {name}: {why}")));
        self.out.push_back(Output::Disconnect(host));
    }

    /// The failure that names a task which is not there.
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
                    format!("; its application is suspended: 'vm resume {app}' brings it back")
                });
                let how = suspended.unwrap_or_default();
                format!("task {shown} has {}{how}", past(status))
            }
            None => format!("there is no task {shown}"),
        };
        Failed::new(FailKind::NoSuchTask, text)
    }

    /// Of the application of a task here.
    pub fn generation_of(&self, tid: Tid) -> u32 {
        let state = self.agreement.state();
        let app = state.task(tid).map(|task| task.app);
        app.map_or(0, |app| state.epochs(app).generation)
    }

    /// The life in which the application of a task is, as the log here knows it.
    pub fn life_of(&self, tid: Tid) -> u32 {
        let state = self.agreement.state();
        let task = state.living_task(tid);
        task.map_or(0, |task| state.epochs(task.app).generation)
    }

    /// The time of day. Milliseconds since 1970.
    pub fn clock_ms(&self) -> u64 {
        self.config.clock_ms.saturating_add(self.now.0 / 1_000)
    }

    /// A token that no other process can know: a step of splitmix64 over the secret seed. No token is
    /// given out twice, because a step maps different seeds to different tokens.
    pub fn token(&mut self) -> u64 {
        self.config.seed = self.config.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.config.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Sequence numbers for `count` new tasks: the first one.
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

    /// The host of an application's coordinator; if the application has none yet, the host that has to
    /// start one. None while the host of the coordinator is lost: the log will name the next one.
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

    /// The names of the working folder on this host and on the host where a task was saved, if they differ.
    pub fn folders_here(&self, saved: Option<String>) -> Option<Folders> {
        let (here, there) = saved.zip(self.config.work_dir.clone())?;
        (here != there).then_some(Folders { here, there })
    }

    /// The hosts on which tasks of an application live, and how many.
    pub fn places_of(&self, app: Tid) -> BTreeMap<HostId, u32> {
        let state = self.agreement.state();
        let mut hosts = BTreeMap::new();
        for task in state.tasks_of(app).filter_map(|tid| state.task(tid)) {
            *hosts.entry(task.host).or_default() += 1;
        }
        hosts
    }

    /// So long a wait for other hosts' stores ends at the latest.
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
