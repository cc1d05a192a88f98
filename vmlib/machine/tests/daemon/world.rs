//! Several daemons wired in memory: links without delay, processes that do what the test says, and
//! one clock that jumps to the next due time. All events have one order, so a failed test fails
//! again.

mod asks;
mod coordinator_process;
mod disks;
mod moves;
mod processes;
mod shell;
mod store;

pub use coordinator_process::CoordinatorProcess;
pub use disks::{Disks, damaged};
pub use store::Store;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};
use vm_endpoint::Endpoint;
use vm_machine::{
    AgreementConfig, ConnId, Daemon, DaemonConfig, Input, LaunchSpec, Outbox, ProcessInput, Time,
};
use vm_wire::{
    Frame, HostId, MachineId, Message, Op, Tid,
    agreed::{ExitStatus, HostFacts},
    direct::Connection,
    interrupt::Folders,
    limits,
    peer::{Join, Joined, MoveWay, Order},
    task::{Place, Spawn},
};

pub const MACHINE: MachineId = MachineId::from_bits(7);
pub const SIGTERM: i32 = 15;
pub const SIGKILL: i32 = 9;

/// A host with its daemon.
struct Node {
    daemon: Daemon,
    /// The result with which its daemon ended.
    end: Option<Result<String, String>>,
    /// Whether the host crashed.
    dead: bool,
}

/// A process that a daemon started, or that enrolled from a shell.
pub struct Process {
    pub host: HostId,
    pub program: String,
    token: Option<u64>,
    /// The endpoint, while the process is a task of its daemon.
    pub endpoint: Option<Endpoint>,
    /// Whether it is frozen. Frames then wait in its socket.
    pub frozen: bool,
    socket: Vec<Frame>,
    alive: bool,
    next_request: u64,
    answers: BTreeMap<u64, Vec<Frame>>,
    /// Notifications, each with the number of messages received from that task before it.
    pub told: Vec<Told>,
    pub signals: Vec<i32>,
    pub input: Vec<u8>,
}

/// The fate of the images of moving tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carry {
    /// Images arrive at once.
    Whole,
    /// No task can be saved.
    Refused,
    /// Images are written, and arrive when the test says so.
    Held,
    /// The pre-copy rounds are over when the test says so.
    Slow,
}

/// The event when the target of a move has the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The host of the source loses its power.
    SourceCrashes,
    /// The link between source and target breaks for good.
    LinkBreaks,
}

/// A notification that a task received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Ended(Tid, ExitStatus, Option<u64>),
    Host(String, bool),
}

/// The part of the shells in direct connections.
#[derive(Debug, Default)]
pub struct Directs {
    /// Each with the host whose daemon expects it.
    pub expected: Vec<(HostId, Connection)>,
    /// Each with the number of the connection.
    pub nudged: Vec<(Tid, u64)>,
}

pub struct World {
    pub now: Time,
    nodes: BTreeMap<HostId, Node>,
    pub processes: BTreeMap<Tid, Process>,
    /// Inputs that are not delivered yet, in order.
    queue: VecDeque<(HostId, Input)>,
    links: BTreeSet<(HostId, HostId)>,
    /// Links that cannot be made.
    cut: BTreeSet<(HostId, HostId)>,
    next_conn: u64,
    /// Direct connections that daemons expect, and tasks that were interrupted after the close of one.
    pub directs: Directs,
    /// Connections of processes that enrol without a token.
    shells: BTreeMap<ConnId, HostId>,
    joiners: BTreeMap<ConnId, (String, Option<Frame>)>,
    pub consoles: BTreeMap<ConnId, Vec<Frame>>,
    pub rejected: BTreeMap<ConnId, Frame>,
    pub closed: Vec<Tid>,
    /// Applications whose checkpoints were removed, and the daemons that removed them.
    pub forgotten: Vec<(HostId, Tid)>,
    pub log: Vec<(Tid, String)>,
    /// Other outputs of interest, in their order.
    pub noted: Vec<String>,
    /// Hosts that search for the program "far", until [`World::find_far`].
    pub far: Vec<(HostId, u64)>,
    /// Processes of the program "slow", which start at [`World::start_slow`].
    pub slow: Vec<(HostId, Box<LaunchSpec>)>,
    /// Whether processes survive SIGTERM.
    pub stubborn: bool,
    /// Whether the end of killed processes is reported only when the test says so.
    pub linger: bool,
    lingering: BTreeMap<Tid, (HostId, ExitStatus)>,
    /// Tasks that receive no data.
    pub deaf: BTreeSet<Tid>,
    pub carry: Carry,
    /// The options of requested moves.
    pub way: MoveWay,
    /// The working folders in the last image, if hosts other than the first have one.
    pub folders: Option<Folders>,
    /// Tasks that cannot be saved, each for that many attempts.
    pub unsavable: BTreeMap<Tid, u32>,
    /// Tasks that cannot be saved for a reason that passes, each for that many attempts.
    pub busy: BTreeMap<Tid, u32>,
    /// Tasks whose next image goes into the store, and the epochs of their cuts.
    pub storing: BTreeMap<Tid, u32>,
    /// Tasks that are to be suspended alone or are suspended: the names of their images, and the
    /// numbers of their suspensions.
    pub suspending: BTreeMap<Tid, (String, u64)>,
    pub shelf: BTreeMap<String, (Tid, Endpoint)>,
    /// The state of the store that the tests control.
    pub store: Store,
    /// The disks, if hosts have stores of their own.
    pub disks: Option<Disks>,
    /// Hosts that expect a task, by ticket.
    pub expected: BTreeMap<u64, (HostId, Tid)>,
    /// Images on their way, by task, each with its ticket.
    pub images: BTreeMap<Tid, (u64, Endpoint)>,
    /// Images that are being written while their tasks run, with their tickets.
    copies: BTreeMap<Tid, u64>,
    /// Restored tasks that are frozen.
    pub standing: BTreeMap<(HostId, Tid), Endpoint>,
    /// Chooses the orders between daemons that are lost.
    pub lost: Option<fn(&Order) -> bool>,
    /// Frames about the log to this host are lost.
    pub behind: Option<HostId>,
    /// The event when a target has the release of a task.
    pub released: Option<Then>,
    /// The processes of coordinators, by host and number.
    pub coordinators: BTreeMap<(HostId, u64), CoordinatorProcess>,
    /// Whether no process of a coordinator can be started.
    pub no_coordinators: bool,
    /// Drain time at the end of daemons that join from now on.
    pub drain_at_stop: Option<Duration>,
    /// Whether these daemons suspend tasks that cannot leave, for 90 s.
    pub suspend_at_stop: bool,
    /// Time within which they must have links.
    pub link_time: Option<Duration>,
    log_config: AgreementConfig,
}

/// The order in a frame between daemons, if the frame has a whole order.
fn order_of(frame: &Frame) -> Option<Order> {
    let whole = frame.header.op == Op::Data && frame.header.to.is_daemon();
    Order::from_payload(&frame.body).ok().filter(|_| whole)
}

fn pair(a: HostId, b: HostId) -> (HostId, HostId) {
    (a.min(b), a.max(b))
}

impl World {
    /// A machine of hosts n1, n2...
    pub fn new(hosts: u16) -> Self {
        Self::with_log(hosts, limits::LOG_ENTRIES_MAX)
    }

    /// A machine of hosts with stores of their own.
    pub fn with_own_stores(hosts: u16) -> Self {
        let disks = Some(Disks::default());
        Self::with(hosts, limits::LOG_ENTRIES_MAX, disks)
    }

    /// A machine whose daemons keep that many entries of the log.
    pub fn with_log(hosts: u16, log_entries_max: u64) -> Self {
        Self::with(hosts, log_entries_max, None)
    }

    fn with(hosts: u16, log_entries_max: u64, disks: Option<Disks>) -> Self {
        let mut world = World {
            now: Time(1_000_000),
            nodes: BTreeMap::new(),
            processes: BTreeMap::new(),
            queue: VecDeque::new(),
            links: BTreeSet::new(),
            cut: BTreeSet::new(),
            next_conn: 1,
            directs: Directs::default(),
            shells: BTreeMap::new(),
            joiners: BTreeMap::new(),
            consoles: BTreeMap::new(),
            rejected: BTreeMap::new(),
            closed: Vec::new(),
            forgotten: Vec::new(),
            log: Vec::new(),
            noted: Vec::new(),
            far: Vec::new(),
            slow: Vec::new(),
            stubborn: false,
            linger: false,
            lingering: BTreeMap::new(),
            deaf: BTreeSet::new(),
            carry: Carry::Whole,
            way: MoveWay::default(),
            folders: None,
            unsavable: BTreeMap::new(),
            busy: BTreeMap::new(),
            storing: BTreeMap::new(),
            suspending: BTreeMap::new(),
            shelf: BTreeMap::new(),
            store: Store::default(),
            disks: None,
            expected: BTreeMap::new(),
            images: BTreeMap::new(),
            copies: BTreeMap::new(),
            standing: BTreeMap::new(),
            lost: None,
            behind: None,
            released: None,
            coordinators: BTreeMap::new(),
            no_coordinators: false,
            drain_at_stop: None,
            suspend_at_stop: false,
            link_time: None,
            log_config: AgreementConfig { log_entries_max },
        };
        let mut out = Outbox::new();
        world.disks = disks;
        let mut config = DaemonConfig::new(world.facts("n1"), 1);
        config.agreement = world.log_config.clone();
        let daemon = Daemon::found(world.now, MACHINE, config, &mut out);
        world.begin(HostId::FOUNDER, daemon, out);
        for number in 2..=hosts {
            let joined = world.join(HostId::FOUNDER, &format!("n{number}"));
            assert_eq!(joined, Ok(HostId(number)));
        }
        world.run_for(Duration::from_secs(2));
        world
    }

    fn begin(&mut self, host: HostId, daemon: Daemon, out: Outbox) {
        let node = Node {
            daemon,
            end: None,
            dead: false,
        };
        self.nodes.insert(host, node);
        self.carry_out(host, out);
    }

    pub fn conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId(self.next_conn)
    }

    /// A daemon of that name requests host `asked` to let it join. Returns the new host's number.
    pub fn join(&mut self, asked: HostId, name: &str) -> Result<HostId, String> {
        let conn = self.conn();
        let nonce = conn.0 + 1000;
        let facts = self.facts(name);
        let join = Join { nonce, facts };
        self.joiners.insert(conn, (name.to_owned(), None));
        self.input(asked, Input::Joiner(conn, join.frame()));
        self.run_until("an answer to the join", |world| {
            world.joiners[&conn].1.is_some()
        });
        let frame = self.joiners[&conn].1.clone().expect("waited for");
        if frame.header.op != Op::Joined {
            let refused = vm_wire::peer::Refused::read(&frame).expect("a refusal");
            return Err(refused.why.text);
        }
        let joined = Joined::read(&frame).expect("a Joined");
        let mut out = Outbox::new();
        let mut config = DaemonConfig::new(self.facts(name), nonce);
        config.seed = nonce;
        config.work_dir = Some(format!("/work/{name}"));
        config.drain_at_stop = self.drain_at_stop;
        config.suspend_at_stop = self.suspend_at_stop;
        config.link_time = self.link_time;
        if self.suspend_at_stop {
            config.suspended_for_ms = 90_000;
        }
        config.agreement = self.log_config.clone();
        let daemon = Daemon::joined(self.now, config, &joined, &mut out).expect("a good snapshot");
        self.begin(joined.host, daemon, out);
        Ok(joined.host)
    }

    fn facts(&self, name: &str) -> HostFacts {
        HostFacts {
            store_local: self.disks.is_some(),
            ..facts(name)
        }
    }

    pub fn input(&mut self, host: HostId, input: impl Into<Input>) {
        self.queue.push_back((host, input.into()));
    }

    pub fn daemon(&self, host: u16) -> &Daemon {
        &self.nodes[&HostId(host)].daemon
    }

    /// The result with which the daemon of a host ended.
    pub fn end_of(&self, host: u16) -> Option<&Result<String, String>> {
        self.nodes[&HostId(host)].end.as_ref()
    }

    pub fn is_up(&self, host: HostId) -> bool {
        let up = |node: &Node| !node.dead && node.end.is_none();
        self.nodes.get(&host).is_some_and(up)
    }

    // Time and order of events.

    /// Carries out all inputs that are due now.
    fn drain(&mut self) {
        while let Some((host, input)) = self.queue.pop_front() {
            if !self.is_up(host) {
                continue;
            }
            let released = match &input {
                Input::Peer(from, frame) if self.released.is_some() => order_of(frame)
                    .filter(|order| matches!(order, Order::MoveRelease(_)))
                    .map(|_| *from),
                _ => None,
            };
            let mut out = Outbox::new();
            let now = self.now;
            let node = self.nodes.get_mut(&host).expect("it is up");
            node.daemon.step(now, input, &mut out);
            self.carry_out(host, out);
            match (released, self.released) {
                (Some(from), Some(Then::SourceCrashes)) => self.crash(from.0),
                (Some(from), Some(Then::LinkBreaks)) => self.cut(from.0, host.0, true),
                _ => {}
            }
        }
    }

    fn next_due(&self) -> Time {
        let daemons = self.nodes.iter().filter(|(host, _)| self.is_up(**host));
        let daemons = daemons.map(|(_, node)| node.daemon.deadline());
        let tasks = self.processes.values();
        let tasks = tasks.filter(|process| process.alive && !process.frozen);
        let tasks = tasks.filter_map(|process| process.endpoint.as_ref()?.deadline());
        let due = daemons
            .chain(tasks)
            .chain(self.coordinators_due())
            .min()
            .unwrap_or(Time(u64::MAX));
        due.max(self.now)
    }

    fn tick_all(&mut self) {
        self.tick_coordinators();
        let due: Vec<HostId> = self
            .nodes
            .iter()
            .filter(|(host, node)| self.is_up(**host) && node.daemon.deadline() <= self.now)
            .map(|(host, _)| *host)
            .collect();
        for host in due {
            self.input(host, Input::Tick);
        }
        for tid in self.processes.keys().copied().collect::<Vec<_>>() {
            let now = self.now;
            self.with_endpoint(tid, |endpoint, out| endpoint.tick(now, out));
        }
    }

    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.drain();
            let due = self.next_due();
            if due > end {
                self.now = end;
                return;
            }
            self.now = due;
            self.tick_all();
        }
    }

    /// Advances the time until a condition holds; fails after 20 seconds of virtual time.
    pub fn run_until(&mut self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        let end = self.now + Duration::from_secs(20);
        loop {
            self.drain();
            if holds(self) {
                return;
            }
            self.now = self.next_due();
            assert!(
                self.now <= end,
                "waited too long for {what}: {:?}",
                self.noted
            );
            self.tick_all();
        }
    }

    fn connect(&mut self, from: HostId, to: HostId) {
        let link = pair(from, to);
        if self.links.contains(&link) {
            return;
        }
        if self.cut.contains(&link) || !self.is_up(to) || !self.is_up(from) {
            self.input(from, Input::LinkDown(to));
        } else {
            self.links.insert(link);
            self.input(from, Input::LinkUp(to));
            self.input(to, Input::LinkUp(from));
        }
    }

    fn disconnect(&mut self, a: HostId, b: HostId) {
        if self.links.remove(&pair(a, b)) {
            // Inputs that are not delivered yet are lost.
            self.queue.retain(|(to, input)| match input {
                Input::Peer(from, _) => pair(*to, *from) != pair(a, b),
                _ => true,
            });
            self.input(a, Input::LinkDown(b));
            self.input(b, Input::LinkDown(a));
        }
    }

    /// Breaks the link between two hosts, for good if `block`.
    pub fn cut(&mut self, a: u16, b: u16, block: bool) {
        let (a, b) = (HostId(a), HostId(b));
        if block {
            self.cut.insert(pair(a, b));
        }
        self.disconnect(a, b);
    }

    pub fn heal(&mut self, a: u16, b: u16) {
        self.cut.remove(&pair(HostId(a), HostId(b)));
    }

    /// The search of a host for the program "far" succeeds.
    pub fn find_far(&mut self, host: u16) {
        let looks = |(at, _): &mut (HostId, u64)| *at == HostId(host);
        for (at, question) in self.far.extract_if(.., looks).collect::<Vec<_>>() {
            self.input(
                at,
                ProcessInput::ProgramFound(question, Ok("/bin/far".to_owned())),
            );
        }
    }

    /// A host loses its power.
    pub fn crash(&mut self, host: u16) {
        let host = HostId(host);
        self.nodes.get_mut(&host).expect("a node").dead = true;
        self.stop_host(host);
    }

    fn stop_host(&mut self, host: HostId) {
        for process in self.processes.values_mut().filter(|p| p.host == host) {
            process.alive = false;
        }
        self.standing.retain(|(at, _), _| *at != host);
        for other in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.disconnect(host, other);
        }
    }
}

pub fn spawn(program: &str, count: u32, place: Place) -> Spawn {
    Spawn {
        program: program.to_owned(),
        args: vec!["-v".to_owned()],
        env: Vec::new(),
        dir: None,
        count,
        place,
    }
}

pub fn on(host: u16) -> Place {
    Place::Host(format!("n{host}"))
}

pub fn facts(name: &str) -> HostFacts {
    HostFacts {
        name: name.to_owned(),
        addr: format!("{name}:1"),
        cpus: 2,
        tasks_max: 20,
        arch: "x86_64".to_owned(),
        store_local: false,
    }
}

pub fn tid(host: u16, sequence: u32) -> Tid {
    Tid::new(MACHINE, HostId(host), sequence)
}
