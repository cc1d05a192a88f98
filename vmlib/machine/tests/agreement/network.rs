//! Many [`Agreement`]s over a network whose delays and cuts the test determines.
//!
//! Time is virtual: [`Network::run_until`] carries out deliveries and deadlines in their order. The
//! network checks these invariants while it runs:
//!
//! - at equal indices the states of all hosts are equal;
//! - no host applies `HostDead(h)` before the lease of `h` has ended;
//! - a host ends by itself before its lease ends;
//! - each proposed change is applied at most once.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};
use vm_machine::{Agreement, AgreementConfig, AgreementOutput, Applied, ConnId, Time, Void};
use vm_wire::{
    Frame, HostId, MachineId, Message, Op, Tid,
    agreed::{Change, HostFacts, SpawnRecord},
    peer::{Alive, Feed, FeedAsk, Grant, Join, Joined, Propose, Raft, RaftMessage, Refused},
};

/// The machine of all tests.
pub const MACHINE: MachineId = MachineId::from_bits(0xbeef);

/// A host of the network.
pub struct Node {
    pub agreement: Agreement,
    /// End of its lease, according to its outputs.
    lease: Time,
    /// Time of its end, by itself or by the test.
    pub ended: Option<Time>,
    leads: bool,
    /// The last index at which the network compared its state.
    checked: u64,
    /// Whether it does not run: frames for it wait.
    pub stalled: bool,
    held: Vec<Event>,
    /// Sequence number of its next task.
    next_task: u32,
}

/// An event in the queue.
#[derive(Clone)]
enum Event {
    Frame(HostId, HostId, Frame),
    Link(HostId, HostId),
    NoLink(HostId, HostId),
    Join(HostId, ConnId, Join),
    Answer(ConnId, Frame),
}

/// The network; see the module.
pub struct Network {
    pub now: Time,
    pub nodes: BTreeMap<HostId, Node>,
    pub config: AgreementConfig,
    /// Time that a frame takes. The test may change it.
    pub latency: Duration,
    /// Frames from and to these hosts are printed.
    pub trace: Option<Vec<HostId>>,
    /// Events since the test last took them.
    pub events: Vec<String>,
    queue: BTreeMap<(Time, u64), Event>,
    order: u64,
    links: BTreeSet<(HostId, HostId)>,
    cuts: BTreeSet<(HostId, HostId)>,
    /// Tasks whose spawn was applied, also if it was void.
    pub outcomes: BTreeSet<Tid>,
    /// Arrival time of the last frame in each direction.
    last_on: BTreeMap<(HostId, HostId), Time>,
    joiners: BTreeMap<ConnId, Join>,
    next_conn: u64,
    /// The state at each index, from the first host that reached it.
    states: BTreeMap<u64, Vec<u8>>,
    /// The last printed entry, and the host that applied it: each entry is printed once.
    printed: (u64, HostId),
    /// The voters that were printed last.
    voters: Vec<HostId>,
    /// Chooses the frames to drop.
    pub lossy: Option<Box<dyn FnMut() -> bool>>,
}

fn pair(a: HostId, b: HostId) -> (HostId, HostId) {
    (a.min(b), a.max(b))
}

pub fn facts(name: &str) -> HostFacts {
    HostFacts {
        name: name.to_owned(),
        addr: format!("{name}:1"),
        cpus: 1,
        tasks_max: 4096,
        arch: "any".to_owned(),
        store_local: false,
    }
}

impl Network {
    /// A machine founded by host `n1`.
    pub fn founded(config: AgreementConfig) -> Self {
        let now = Time(1_000_000);
        let agreement = Agreement::found(now, config.clone(), MACHINE, facts("n1"), 1);
        let mut network = Network {
            now,
            nodes: BTreeMap::new(),
            config,
            latency: Duration::from_millis(1),
            trace: None,
            events: Vec::new(),
            queue: BTreeMap::new(),
            order: 0,
            links: BTreeSet::new(),
            cuts: BTreeSet::new(),
            outcomes: BTreeSet::new(),
            last_on: BTreeMap::new(),
            joiners: BTreeMap::new(),
            next_conn: 0,
            states: BTreeMap::new(),
            printed: (0, HostId::NONE),
            voters: Vec::new(),
            lossy: None,
        };
        network.add(agreement);
        network
    }

    fn add(&mut self, agreement: Agreement) {
        let node = Node {
            lease: self.now,
            ended: None,
            leads: false,
            checked: 0,
            stalled: false,
            held: Vec::new(),
            next_task: 1,
            agreement,
        };
        self.nodes.insert(node.agreement.me(), node);
    }

    /// A daemon of that name requests host `via` to let it join.
    pub fn join(&mut self, name: &str, via: HostId) {
        self.next_conn += 1;
        let (conn, nonce) = (ConnId(self.next_conn), 1000 + self.next_conn);
        let facts = facts(name);
        let join = Join { nonce, facts };
        self.joiners.insert(conn, join.clone());
        self.post(Event::Join(via, conn, join));
    }

    /// Host `host` proposes to start one task there.
    pub fn spawn(&mut self, host: HostId) -> Tid {
        let node = self.nodes.get_mut(&host).expect("the host is there");
        let first = node.next_task;
        node.next_task += 1;
        node.agreement.propose(Change::Spawn(SpawnRecord {
            requester: Tid::daemon(MACHINE, host),
            request: u64::from(first),
            host,
            index: 0,
            first,
            count: 1,
            app: Tid::NONE,
            program: "work".to_owned(),
            enrolled: false,
            generation: 0,
            console: HostId::NONE,
        }));
        Tid::new(MACHINE, host, first)
    }

    /// Host `host` proposes a change.
    pub fn propose(&mut self, host: HostId, change: Change) {
        let node = self.nodes.get_mut(&host).expect("the host is there");
        node.agreement.propose(change);
    }

    /// A host ends at once, with all its tasks.
    pub fn kill(&mut self, host: HostId) {
        self.end(host, "is killed");
    }

    fn end(&mut self, host: HostId, why: &str) {
        let now = self.now;
        let node = self.nodes.get_mut(&host).expect("the host is there");
        if node.ended.is_none() {
            node.ended = Some(now);
            self.say(format!("{} {why}", name(host)));
            for other in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.drop_link(host, other);
            }
        }
    }

    /// Cuts all links between hosts of `a` and hosts of `b`.
    pub fn cut(&mut self, a: &[HostId], b: &[HostId]) {
        for (a, b) in a.iter().flat_map(|a| b.iter().map(move |b| (*a, *b))) {
            self.cuts.insert(pair(a, b));
            self.drop_link(a, b);
        }
    }

    /// Ends all cuts.
    pub fn heal(&mut self) {
        self.cuts.clear();
    }

    /// Breaks the link between two hosts and drops its frames. The link can be made again.
    pub fn drop_link(&mut self, a: HostId, b: HostId) {
        if !self.links.remove(&pair(a, b)) {
            return;
        }
        let on_it = |event: &Event| match event {
            Event::Frame(from, to, _) => pair(*from, *to) == pair(a, b),
            _ => false,
        };
        self.queue.retain(|_, event| !on_it(event));
        self.post(Event::NoLink(a, b));
        self.post(Event::NoLink(b, a));
    }

    /// Stops a host until [`Network::resume`].
    pub fn stall(&mut self, host: HostId) {
        self.nodes
            .get_mut(&host)
            .expect("the host is there")
            .stalled = true;
    }

    pub fn resume(&mut self, host: HostId) {
        let node = self.nodes.get_mut(&host).expect("the host is there");
        node.stalled = false;
        for event in std::mem::take(&mut node.held) {
            self.post(event);
        }
    }

    pub fn is_up(&self, host: HostId) -> bool {
        self.nodes
            .get(&host)
            .is_some_and(|node| node.ended.is_none())
    }

    pub fn up(&self) -> impl Iterator<Item = (HostId, &Agreement)> {
        let up = |(_, node): &(&HostId, &Node)| node.ended.is_none();
        self.nodes
            .iter()
            .filter(up)
            .map(|(host, node)| (*host, &node.agreement))
    }

    fn say(&mut self, text: String) {
        let since = self.now.since(Time(1_000_000));
        self.events
            .push(format!("{:8.3} {text}", since.as_secs_f64()));
    }

    fn post(&mut self, event: Event) {
        let mut at = self.now + self.latency;
        // A link keeps the order of its frames, also when the latency changes.
        if let Event::Frame(from, to, _) = &event {
            let last = self.last_on.entry((*from, *to)).or_insert(at);
            at = at.max(*last);
            *last = at;
        }
        self.order += 1;
        self.queue.insert((at, self.order), event);
    }

    /// Advances the time.
    pub fn run(&mut self, duration: Duration) {
        self.run_until(duration, |_| false);
    }

    /// Advances the time until `done`. Returns whether that was within `limit`.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&Network) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            let runs = |(_, node): &(&HostId, &Node)| node.ended.is_none() && !node.stalled;
            let due = self.nodes.iter().filter(runs);
            let due = due
                .map(|(host, node)| (node.agreement.deadline(), *host))
                .min();
            let event = self.queue.first_key_value().map(|(key, _)| *key);
            let next = due
                .map(|due| due.0)
                .into_iter()
                .chain(event.map(|key| key.0))
                .min();
            if next.is_none_or(|next| next > end) {
                self.now = end;
                self.check_ends();
                return false;
            }
            self.now = self.now.max(next.expect("it was just seen"));
            self.check_ends();
            match (event, due) {
                (Some(key), _) if key.0 <= self.now => {
                    // The end of a host may have removed the event from the queue meanwhile.
                    if let Some(event) = self.queue.remove(&key) {
                        self.carry_out(event);
                    }
                }
                (_, Some((_, host))) => {
                    let now = self.now;
                    self.step(host, |agreement, out| agreement.tick(now, out));
                }
                _ => {}
            }
        }
    }

    /// The kernel ends a host at the end of its lease.
    fn check_ends(&mut self) {
        let over = |(_, node): &(&HostId, &Node)| {
            node.ended.is_none() && node.agreement.lease_has_begun() && node.lease <= self.now
        };
        for host in self
            .nodes
            .iter()
            .filter(over)
            .map(|(h, _)| *h)
            .collect::<Vec<_>>()
        {
            assert!(
                self.nodes[&host].stalled,
                "{host} outlived its soft deadline"
            );
            self.end(host, "is ended by the kernel");
        }
    }

    fn carry_out(&mut self, event: Event) {
        let now = self.now;
        let to = match &event {
            Event::Frame(_, to, _) | Event::Link(to, _) | Event::NoLink(to, _) => Some(*to),
            Event::Join(to, ..) => Some(*to),
            Event::Answer(..) => None,
        };
        if let Some(node) = to.and_then(|to| self.nodes.get_mut(&to)) {
            if node.ended.is_some() {
                return;
            }
            if node.stalled {
                node.held.push(event);
                return;
            }
        }
        match event {
            Event::Frame(from, to, frame) => {
                let traced = |hosts: &Vec<_>| hosts.contains(&from) || hosts.contains(&to);
                if self.trace.as_ref().is_some_and(traced) {
                    self.say(format!("{} -> {} {}", name(from), name(to), show(&frame)));
                }
                self.step(to, |agreement, out| {
                    agreement
                        .handle(now, from, &frame, out)
                        .expect("frames are sound");
                });
            }
            Event::Link(host, peer) => {
                self.step(host, |agreement, out| agreement.link_up(now, peer, out));
            }
            Event::NoLink(host, peer) => {
                self.step(host, |agreement, _| agreement.link_down(peer));
            }
            Event::Join(host, conn, join) => {
                self.step(host, |agreement, out| agreement.join(now, conn, join, out));
            }
            Event::Answer(conn, frame) => self.answer(conn, &frame),
        }
    }

    fn answer(&mut self, conn: ConnId, frame: &Frame) {
        let Some(join) = self.joiners.remove(&conn) else {
            return;
        };
        let joiner = join.facts.name;
        match frame.header.op {
            Op::Joined => {
                let joined = Joined::read(frame).expect("it is sound");
                self.say(format!("{joiner} is {}", name(joined.host)));
                let (now, config) = (self.now, self.config.clone());
                let agreement = Agreement::joined(now, config, joined.host, &joined.snapshot);
                self.add(agreement.expect("the snapshot is sound"));
            }
            _ => {
                let refused = Refused::read(frame).expect("it is sound");
                self.say(format!("{joiner} is refused: {}", refused.why));
            }
        }
    }

    fn step(
        &mut self,
        host: HostId,
        step: impl FnOnce(&mut Agreement, &mut VecDeque<AgreementOutput>),
    ) {
        let Some(node) = self
            .nodes
            .get_mut(&host)
            .filter(|node| node.ended.is_none())
        else {
            return;
        };
        let mut out = VecDeque::new();
        step(&mut node.agreement, &mut out);
        self.check_state(host);
        self.note_leader(host);
        for output in out {
            self.output(host, output);
        }
    }

    fn output(&mut self, host: HostId, output: AgreementOutput) {
        match output {
            AgreementOutput::Send(to, frame) => {
                let lost = self.lossy.as_mut().is_some_and(|lossy| lossy());
                if self.links.contains(&pair(host, to)) && !lost {
                    self.post(Event::Frame(host, to, frame));
                }
            }
            AgreementOutput::Joiner(conn, frame) => self.post(Event::Answer(conn, frame)),
            AgreementOutput::Lease(until) => {
                let node = self.nodes.get_mut(&host).expect("it is stepping");
                let open = node.lease == Time(u64::MAX);
                let until = until.unwrap_or(Time(u64::MAX));
                assert!(open || until > node.lease, "a lease is never shortened");
                node.lease = until;
            }
            AgreementOutput::Connect(peer, addr) => {
                assert_eq!(
                    self.nodes[&host]
                        .agreement
                        .state()
                        .host(peer)
                        .unwrap()
                        .facts
                        .addr,
                    addr
                );
                if self.is_up(peer) && !self.cuts.contains(&pair(host, peer)) {
                    self.links.insert(pair(host, peer));
                    self.post(Event::Link(host, peer));
                    self.post(Event::Link(peer, host));
                } else {
                    self.post(Event::NoLink(host, peer));
                }
            }
            AgreementOutput::Applied(index, applied) => self.applied(host, index, &applied),
            AgreementOutput::Lost(why) => self.end(host, &format!("ends: {why}")),
        }
    }

    fn applied(&mut self, host: HostId, index: u64, applied: &Applied) {
        if let Applied::HostDead(dead) = applied
            && let Some(node) = self.nodes.get(dead)
        {
            let lease = node.lease;
            assert!(
                lease < self.now,
                "{dead} was declared dead at {:?}, before {lease:?}",
                self.now
            );
            assert!(node.ended.is_some(), "{dead} was declared dead alive");
        }
        let twice = matches!(applied, Applied::Void(Change::Spawn(_), Void::BornBefore));
        assert!(!twice, "applied twice: {applied:?}");
        if index > self.printed.0 {
            self.printed = (index, host);
        }
        if self.printed == (index, host) {
            if let Applied::Spawned(record) | Applied::Void(Change::Spawn(record), _) = applied {
                self.outcomes
                    .insert(Tid::new(MACHINE, record.host, record.first));
            }
            self.say(format!(
                "{} applies {index}: {}",
                name(host),
                show_applied(applied)
            ));
        }
    }

    /// Compares the state of a host with the states of others at the same index.
    fn check_state(&mut self, host: HostId) {
        let node = self.nodes.get_mut(&host).expect("it is stepping");
        let state = node.agreement.state();
        if node.checked < state.index() {
            node.checked = state.index();
            let first = self
                .states
                .entry(state.index())
                .or_insert_with(|| state.encode());
            assert!(
                *first == state.encode(),
                "{host} differs at {}",
                state.index()
            );
        }
    }

    /// Prints the hosts that begin or cease to lead, and the voters that a leader sees.
    fn note_leader(&mut self, host: HostId) {
        let node = self.nodes.get_mut(&host).expect("it is stepping");
        let leads = node.agreement.leader() == host;
        let voters = node.agreement.voters();
        let mut news = Vec::new();
        if leads != node.leads {
            node.leads = leads;
            let does = if leads { "leads" } else { "leads no more" };
            news.push(format!("{} {does}", name(host)));
        }
        if leads && voters != self.voters {
            news.push(format!("{} has the voters {}", name(host), names(&voters)));
            self.voters = voters;
        }
        news.into_iter().for_each(|text| self.say(text));
    }

    /// One line for each host that is up.
    pub fn status(&self) -> String {
        let mut lines = String::new();
        for (host, agreement) in self.up() {
            let state = agreement.state();
            let hosts: Vec<_> = state.hosts().map(|(host, _)| host).collect();
            lines += &format!(
                "{}: at {}, led by {}, voters {}, hosts {}, tasks {}\n",
                name(host),
                state.index(),
                name(agreement.leader()),
                names(&agreement.voters()),
                names(&hosts),
                state.living_tasks().count(),
            );
        }
        lines
    }
}

fn name(host: HostId) -> String {
    format!("n{}", host.0)
}

fn names(hosts: &[HostId]) -> String {
    hosts
        .iter()
        .map(|host| name(*host))
        .collect::<Vec<_>>()
        .join(" ")
}

fn show(frame: &Frame) -> String {
    let sound = "frames are sound";
    match frame.header.op {
        Op::Raft => {
            let Raft { term, message } = Raft::read(frame).expect(sound);
            match message {
                RaftMessage::Append {
                    before,
                    commit,
                    entries,
                } => {
                    let (index, count) = (before.index, entries.len());
                    format!("Append term={term} index={index} commit={commit} entries={count}")
                }
                RaftMessage::Snapshot(snapshot) => {
                    format!("Snapshot term={term} index={}", snapshot.at.index)
                }
                other => format!("{other:?} term={term}"),
            }
        }
        Op::Alive => {
            let Alive { number, applied } = Alive::read(frame).expect(sound);
            format!("Alive {number} applied={applied}")
        }
        Op::Grant => {
            let grant = Grant::read(frame).expect(sound);
            let (leader, voters) = (name(grant.leader), names(&grant.voters));
            format!("Grant {} leader={leader} voters={voters}", grant.number)
        }
        Op::Propose => {
            let propose = Propose::read(frame).expect(sound);
            format!("Propose {} of {}", propose.number, name(propose.proposer))
        }
        Op::FeedAsk => format!("FeedAsk after={}", FeedAsk::read(frame).expect(sound).after),
        Op::Feed => {
            let feed = Feed::read(frame).expect(sound);
            format!("Feed first={} entries={}", feed.first, feed.entries.len())
        }
        other => format!("{other:?}"),
    }
}

fn show_applied(applied: &Applied) -> String {
    match applied {
        Applied::HostJoined { host, .. } => format!("{} joins", name(*host)),
        Applied::HostLeaving(host) => format!("{} begins to leave", name(*host)),
        Applied::HostGone(host) => format!("{} is gone", name(*host)),
        Applied::HostDead(host) => format!("{} is dead", name(*host)),
        Applied::Spawned(record) => {
            let tid = Tid::new(MACHINE, record.host, record.first);
            format!("{} tasks from {tid} are born", record.count)
        }
        Applied::Exited { tid, status, .. } => format!("{tid} {status}"),
        Applied::Void(change, why) => {
            let change = format!("{change:?}");
            let kind = change
                .split([' ', '('])
                .next()
                .unwrap_or_default()
                .to_owned();
            format!("void {kind}, for {why}")
        }
        other => format!("{other:?}"),
    }
}
