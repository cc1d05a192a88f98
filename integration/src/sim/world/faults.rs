//! Faults: the choice of the next fault and of its victim, and its end.
//!
//! In most worlds faults are *gentle*: a majority of the voters is always left, so the machine must
//! survive. For that, a fault that costs a host, or a long break of the network, strikes only when
//! the machine has recovered from the last one. In *harsh* worlds any fault strikes at any time. A
//! machine that loses its majority must then end, in order and on every host.

use super::{
    EVENTS_LEAST, FAULTS_LEAST, FAULTS_TIME,
    state::{
        Event, World,
        fault::{Ambush, Heal},
        process::Gait,
    },
};
use crate::sim::{
    clock::SKEW_PPM_MAX,
    coverage::{Fault, Phase},
    network::Slot,
    node::{Node, State},
    queue::{MS, Moment, SECOND},
};
use std::collections::BTreeSet;
use vm_machine::Input;
use vm_wire::{HostId, Op, Tid, console::Request, limits, peer::MovePhase};

/// One break of the network that is shorter than this costs no host its lease, even while the machine
/// recovers from a worse fault.
const SHORT: Moment = 120 * MS;
/// Faults that are aimed at a move. A fault that is listed twice is twice as likely.
const FOR_MOVES: [Fault; 11] = [
    Fault::CoordinatorKill,
    Fault::CoordinatorHang,
    Fault::LinkPause,
    Fault::LinkPause,
    Fault::LinkCut,
    Fault::DaemonKill,
    Fault::DaemonKill,
    Fault::DaemonStop,
    Fault::DaemonStall,
    Fault::TaskKill,
    Fault::HostDelete,
];
/// Faults that are aimed at a phase of a move. A fault that is listed twice is twice as likely.
const FOR_DRIVEN: [Fault; 5] = [
    Fault::CoordinatorKill,
    Fault::CoordinatorKill,
    Fault::CoordinatorHang,
    Fault::CoordinatorHang,
    Fault::DaemonKill,
];
/// Bound on the daemons of one world, living or not.
const NODES_MAX: usize = 14;

impl World {
    /// Makes a fault strike, and plans the next one.
    pub(super) fn strike(&mut self, number: u64) -> Result<(), String> {
        if number != self.strikes || self.is_quiet() {
            return Ok(());
        }
        let now = self.queue.now();
        let enough = self.events >= EVENTS_LEAST * 4 / 5
            && self.coverage.total() >= FAULTS_LEAST
            && now >= FAULTS_TIME.0;
        if enough || now >= FAULTS_TIME.1 || self.running().is_empty() {
            self.begin_quiet();
            return Ok(());
        }
        self.plan_strike();
        for _ in 0..8 {
            let some = self.random.pick(Fault::ALL).copied();
            let aimed = self.aim.is_some() && self.random.percent(80);
            let apt = self.random.pick(&FOR_MOVES).copied().filter(|_| aimed);
            let driven = std::mem::take(&mut self.driven) && self.random.percent(70);
            let driven = self.random.pick(&FOR_DRIVEN).copied().filter(|_| driven);
            let Some(fault) = driven.or(apt).or(some) else {
                break;
            };
            let phases = self.phases();
            if self.inflict(fault)? {
                self.trace(|| format!("fault: {}", fault.name()));
                self.coverage.note(fault, &phases);
                self.aim = None;
                break;
            }
        }
        Ok(())
    }

    /// Plans the next fault: it strikes at a random time, or earlier, when an activity begins that
    /// is so short that a fault would hardly ever meet it by chance.
    fn plan_strike(&mut self) {
        self.strikes += 1;
        let pause = self.random.between(50 * MS, 1_200 * MS);
        self.queue.after(pause, Event::Strike(self.strikes));
        let ambushes = [
            Ambush::Asked(Op::Spawn),
            Ambush::Asked(Op::Exit),
            Ambush::Asked(Op::GroupChange),
            Ambush::Joining,
            Ambush::Leaving,
            Ambush::Leaderless,
            Ambush::Moving,
            Ambush::Moving,
            Ambush::Moving,
            Ambush::Driven(MovePhase::Initialisation),
            Ambush::Driven(MovePhase::Copying),
            Ambush::Driven(MovePhase::Interruption),
            Ambush::Driven(MovePhase::Saving),
            Ambush::Driven(MovePhase::Resumption),
        ];
        self.ambush = self
            .random
            .pick(&ambushes)
            .copied()
            .filter(|_| pause > 300 * MS);
    }

    /// Handles the begin of an activity that the next fault may wait for.
    pub(super) fn begins(&mut self, what: Ambush) {
        if self.ambush == Some(what) {
            self.ambush = None;
            self.driven = matches!(what, Ambush::Driven(_));
            self.strikes += 1;
            // An election takes long; every other activity takes only a few messages.
            let most = match what {
                Ambush::Leaderless => SECOND,
                Ambush::Moving if self.random.percent(50) => 100 * MS,
                _ => 4 * MS,
            };
            let delay = self.random.below(most);
            self.queue.after(delay, Event::Strike(self.strikes));
        }
    }

    /// Makes a fault strike, if that is possible now. Returns whether it did.
    fn inflict(&mut self, fault: Fault) -> Result<bool, String> {
        match fault {
            Fault::LinkPause => Ok(self.pause_link()),
            Fault::LinkCut => Ok(self.cut_link(false)),
            Fault::HalfCut => Ok(self.cut_link(true)),
            Fault::Partition => Ok(self.partition()),
            Fault::DaemonKill => Ok(self.lose_host(false, |world, slot| world.kill_daemon(slot))),
            Fault::LeaderKill => Ok(self.lose_host(true, |world, slot| world.kill_daemon(slot))),
            Fault::DaemonStop => Ok(self.lose_host(false, |world, slot| world.stop(slot))),
            Fault::DaemonStall => Ok(self.stall()),
            Fault::TaskKill => Ok(self.kill_task()),
            Fault::HostJoin => Ok(self.join_host()),
            Fault::HostDelete => Ok(self.delete_host()),
            Fault::HostDrain => Ok(self.drain_host()),
            Fault::Delay => Ok(self.slow_link()),
            Fault::QueueFull => Ok(self.fill_queue()),
            Fault::CoordinatorKill => Ok(self.kill_coordinator()),
            Fault::CoordinatorHang => Ok(self.hang_coordinator()),
            Fault::ClockSkew => Ok(self.skew()),
        }
    }

    /// Ends a fault.
    pub(super) fn heal(&mut self, heal: Heal) -> Result<(), String> {
        match heal {
            Heal::Unblock(pairs) => pairs.into_iter().for_each(|pair| self.release(pair)),
            Heal::Continue(slot) => {
                if self.nodes[slot].state != State::Stopped {
                    return Ok(());
                }
                self.nodes[slot].state = State::Running;
                while let Some(input) = self.nodes[slot].deferred.pop_front() {
                    self.feed(slot, input)?;
                }
                self.nodes[slot].tick_at = None;
                self.plan_tick(slot);
            }
            Heal::Room(from, to) => {
                let (link, end) = self.network.link(from, to);
                link.ends[end].full = false;
                let dropped = std::mem::take(&mut link.ends[end].dropped);
                self.feed(from, Input::Dropped(dropped.into_iter().collect()))?;
            }
            Heal::TaskRoom(index) => {
                let (slot, dropped) = self.task_room(index);
                self.feed(slot, Input::Dropped(dropped))?;
            }
            Heal::Wakes(index) => self.wake_coordinator(index)?,
            Heal::Fast(from, to) => self.network.link(from, to).0.delay = 0,
        }
        Ok(())
    }

    /// The leading daemon, if the machine has recovered from its last fault: all hosts in the log
    /// run, the number of voters is the wanted one, and no change of the voters is in progress.
    pub(super) fn over_it(&self) -> Option<Slot> {
        let leader = self.leader()?;
        let agreement = self.nodes[leader].daemon.as_ref()?.agreement();
        let agreed = agreement.state();
        let present: Vec<HostId> = agreed
            .hosts()
            .map(|(host, _)| host)
            .filter(|host| agreed.is_present(*host))
            .collect();
        let all_run = present.iter().all(|host| {
            self.slot_of_host(*host)
                .is_some_and(|slot| self.nodes[slot].is_running())
        });
        let wanted = match present.len() {
            0..=2 => 1,
            3..=4 => 3,
            _ => 5,
        };
        let leaving = self.nodes.iter().any(Node::is_leaving);
        let joining = self.nodes.iter().any(|node| node.state == State::Joining);
        let voters = agreement.voters();
        let fit = voters.len() == wanted && voters.iter().all(|host| present.contains(host));
        // A voter acts on the voters that its log names. Until its log has the change, it may need
        // a majority of the former voters, of which only one may be left.
        let knows = |host: &HostId| {
            let slot = self.slot_of_host(*host);
            let daemon = slot.and_then(|slot| self.nodes[slot].daemon.as_ref());
            daemon.is_some_and(|daemon| {
                let agreement = daemon.agreement();
                agreement.voters() == voters && !agreement.voters_change()
            })
        };
        // A draining voter hands its vote to a host that does not drain.
        let is_free = |host: &&HostId| !voters.contains(host) && !agreed.is_draining(**host);
        let hands_over = voters.iter().any(|host| agreed.is_draining(*host))
            && present.iter().any(|host| is_free(&host));
        let settled = fit && !hands_over && voters.iter().all(knows);
        let well = all_run && !leaving && !joining && settled;
        let broken = self.blocked_until > self.queue.now();
        (well && !broken).then_some(leader)
    }

    /// The running daemon that considers itself the leader.
    pub(super) fn leader(&self) -> Option<Slot> {
        self.running().into_iter().find(|slot| {
            let daemon = self.nodes[*slot].daemon.as_ref();
            daemon.is_some_and(|daemon| daemon.agreement().leader() == self.nodes[*slot].host)
        })
    }

    fn voters(&self, leader: Slot) -> Vec<HostId> {
        let daemon = self.nodes[leader].daemon.as_ref();
        daemon.map_or_else(Vec::new, |daemon| daemon.agreement().voters())
    }

    /// Makes hosts fail: one, or two at once if the machine promises to survive that.
    fn lose_host(&mut self, leader_too: bool, how: impl Fn(&mut World, Slot)) -> bool {
        let mut slots = self.running();
        let well = self.over_it();
        if self.harsh {
            let victim = match self.aimed_slot() {
                _ if leader_too => self.leader(),
                Some(aimed) => Some(aimed),
                None => self.random.pick(&slots).copied(),
            };
            victim.inspect(|slot| how(self, *slot));
            return victim.is_some();
        }
        let Some(leader) = well else {
            return false;
        };
        let voters = self.voters(leader);
        if leader_too && voters.len() < 3 {
            return false;
        }
        slots.retain(|slot| {
            *slot != leader && (voters.len() >= 3 || !voters.contains(&self.nodes[*slot].host))
        });
        let aimed = self.aimed_slot().filter(|slot| slots.contains(slot));
        let first = match aimed {
            _ if leader_too => Some(leader),
            Some(aimed) => Some(aimed),
            None => self.random.pick(&slots).copied(),
        };
        let Some(first) = first.filter(|_| self.running().len() > 2) else {
            return false;
        };
        if leader_too {
            self.begins(Ambush::Leaderless);
        }
        slots.retain(|slot| *slot != first);
        how(self, first);
        if voters.len() == 5
            && self.random.percent(40)
            && let Some(&second) = self.random.pick(&slots)
        {
            how(self, second);
        }
        true
    }

    /// SIGSTOP of a daemon. A daemon without a lease has no timer that kills it, because it is not
    /// in the machine yet or is its only host. Such a daemon is continued after a while.
    fn stop(&mut self, slot: Slot) {
        if self.nodes[slot].is_running() {
            self.nodes[slot].state = State::Stopped;
            if self.nodes[slot].lease_at.is_none() {
                self.queue
                    .after(10 * SECOND, Event::Heal(Heal::Continue(slot)));
            }
        }
    }

    fn stall(&mut self) -> bool {
        let time = self
            .random
            .between(5 * MS, if self.harsh { 2_400 } else { 800 } * MS);
        let fits = self.harsh || self.over_it().is_some() || self.fits_recovery(time);
        if !fits {
            return false;
        }
        let running = self.running();
        let picked = self.random.pick(&running).copied();
        let Some(slot) = self.aimed_slot().or(picked) else {
            return false;
        };
        self.stop(slot);
        self.note_break(time);
        self.queue.after(time, Event::Heal(Heal::Continue(slot)));
        true
    }

    /// The source or the target of the move that a fault is aimed at.
    fn aimed_slot(&mut self) -> Option<Slot> {
        let (from, to, _) = self.aim?;
        let slot = if self.random.percent(50) { from } else { to };
        Some(slot).filter(|slot| self.nodes[*slot].is_running())
    }

    /// Two running daemons with a link.
    fn some_link(&mut self) -> Option<(Slot, Slot)> {
        let nodes = &self.nodes;
        let pairs: Vec<(Slot, Slot)> = self
            .network
            .iter_mut()
            .filter(|((a, b), link)| link.alive && nodes[*a].is_running() && nodes[*b].is_running())
            .map(|(pair, _)| pair)
            .collect();
        let aimed = self.aim.map(|(from, to, _)| (from.min(to), from.max(to)));
        let picked = self.random.pick(&pairs).copied();
        aimed.filter(|pair| pairs.contains(pair)).or(picked)
    }

    /// Whether a break may begin while the machine recovers: a short one, and one in the time of a lease.
    /// A lease lasts as long as an election and its retry (`vm_wire::limits`), so a second break might
    /// cost the machine its majority.
    fn fits_recovery(&mut self, time: Moment) -> bool {
        let now = self.queue.now();
        let fits = time <= SHORT && now >= self.next_break;
        if fits {
            self.next_break = now + limits::LEASE.as_micros() as Moment;
        }
        fits
    }

    fn note_break(&mut self, time: Moment) {
        self.blocked_until = self.blocked_until.max(self.queue.now() + time);
    }

    /// The length of a break of the network; `None` if no break may begin now.
    fn break_time(&mut self, longest: Moment) -> Option<Moment> {
        let time = self.random.between(5 * MS, longest);
        if self.harsh || self.over_it().is_some() || self.fits_recovery(time) {
            self.note_break(time + SECOND);
            return Some(time);
        }
        None
    }

    fn pause_link(&mut self) -> bool {
        let Some(pair) = self.some_link() else {
            return false;
        };
        // A break that does not cut the leader off may last until the source and the target of a
        // move are in doubt.
        let leader = self.leader();
        let longest = match self.aim {
            Some(_) if leader != Some(pair.0) && leader != Some(pair.1) => 4_000 * MS,
            _ => 1_200 * MS,
        };
        let Some(time) = self.break_time(longest) else {
            return false;
        };
        self.network.link(pair.0, pair.1).0.block();
        self.queue
            .after(time, Event::Heal(Heal::Unblock(vec![pair])));
        // In half of the cases TCP gives up before the break ends.
        if self.random.percent(50) {
            self.destroy(pair, [time / 2, time * 2 / 3]);
        }
        true
    }

    fn cut_link(&mut self, half: bool) -> bool {
        let Some(pair) = self.some_link() else {
            return false;
        };
        let notice = [self.random.below(5 * MS), self.random.below(5 * MS)];
        let late = if self.harsh || self.over_it().is_some() {
            800 * MS
        } else if self.fits_recovery(SHORT) {
            SHORT
        } else {
            return false;
        };
        let notice = match (half, self.random.percent(50)) {
            (false, _) => notice,
            (true, true) => [notice[0], late],
            (true, false) => [late, notice[1]],
        };
        self.destroy(pair, notice);
        true
    }

    fn partition(&mut self) -> bool {
        let leader = self.over_it();
        let running = self.running();
        let mut away: BTreeSet<Slot> = BTreeSet::new();
        match leader {
            _ if self.harsh => {
                away.extend(running.iter().filter(|_| self.random.percent(50)));
            }
            None => return false,
            Some(leader) => {
                let voters = self.voters(leader);
                let may_lose = (voters.len() - 1) / 2;
                for &slot in &running {
                    let votes = |slot: &Slot| voters.contains(&self.nodes[*slot].host);
                    let lost = away.iter().filter(|slot| votes(slot)).count();
                    let fits = !votes(&slot) || lost < may_lose;
                    // More than one host must be left, so that faults can continue.
                    if fits && away.len() + 2 < running.len() && self.random.percent(40) {
                        away.insert(slot);
                    }
                }
            }
        }
        if away.is_empty() || away.len() == running.len() {
            return false;
        }
        let time = self.random.between(100 * MS, 5 * SECOND);
        self.note_break(time + SECOND);
        let mut pairs = Vec::new();
        for &a in &away {
            for b in (0..self.nodes.len()).filter(|b| !away.contains(b)) {
                let pair = (a.min(b), a.max(b));
                self.network.link(a, b).0.block();
                pairs.push(pair);
                if time > 2 * SECOND {
                    self.destroy(pair, [2 * SECOND, 2 * SECOND]);
                }
            }
        }
        self.queue.after(time, Event::Heal(Heal::Unblock(pairs)));
        true
    }

    fn kill_task(&mut self) -> bool {
        let living: Vec<usize> = (0..self.processes.len())
            .filter(|index| self.processes[*index].alive)
            .collect();
        let picked = self.random.pick(&living).copied();
        let (world, aim) = (&*self, self.aim);
        let aimed = |(from, to, tid): (Slot, Slot, Tid)| {
            let at = |slot| world.process_of(slot, tid);
            at(to).or_else(|| at(from))
        };
        let victim = aim.and_then(aimed).or(picked);
        victim.inspect(|index| self.queue.after(0, Event::Kill(*index, 9)));
        victim.is_some()
    }

    fn join_host(&mut self) -> bool {
        if self.nodes.len() >= NODES_MAX || self.running().is_empty() {
            return false;
        }
        // Sometimes under the name of a host that is, or was, in the machine.
        let again = self.random.percent(30);
        let name = match self.random.pick(&self.nodes) {
            Some(node) if again => node.name.clone(),
            _ => format!("n{}", self.nodes.len()),
        };
        let slot = self.add_node(name);
        self.queue.after(0, Event::AskJoin(slot));
        true
    }

    fn delete_host(&mut self) -> bool {
        let running = self.running();
        if running.len() < 3 || (!self.harsh && self.over_it().is_none()) {
            return false;
        }
        let picked = self.random.pick(&running).copied();
        let Some(slot) = self.aimed_slot().or(picked) else {
            return false;
        };
        self.begins(Ambush::Leaving);
        match self.random.pick(&running).copied() {
            Some(asked) if self.random.percent(50) => {
                let name = self.nodes[slot].name.clone();
                self.ask_console(asked, &Request::Delete(name));
            }
            _ => {
                self.nodes[slot].told_to_leave = true;
                self.queue.after(0, Event::Input(slot, Input::Stop));
            }
        }
        // Until the log has the deletion, the leaving host is not visible to the check.
        self.note_break(SECOND);
        true
    }

    fn slow_link(&mut self) -> bool {
        let Some(pair) = self.some_link() else {
            return false;
        };
        let time = self.random.between(100 * MS, 3 * SECOND);
        let most = if self.harsh { 200 * MS } else { 50 * MS };
        let delay = self.random.between(MS, most);
        self.network.link(pair.0, pair.1).0.delay = delay;
        self.queue
            .after(time, Event::Heal(Heal::Fast(pair.0, pair.1)));
        true
    }

    fn fill_queue(&mut self) -> bool {
        let time = self.random.between(5 * MS, 700 * MS);
        if self.random.percent(50) {
            let running: Vec<usize> = (0..self.processes.len())
                .filter(|index| self.processes[*index].program.is_some())
                .filter(|index| self.processes[*index].alive)
                .collect();
            let Some(&index) = self.random.pick(&running) else {
                return false;
            };
            self.processes[index].full = true;
            self.queue.after(time, Event::Heal(Heal::TaskRoom(index)));
            return true;
        }
        let Some(pair) = self.some_link() else {
            return false;
        };
        let (from, to) = if self.random.percent(50) {
            pair
        } else {
            (pair.1, pair.0)
        };
        let (link, end) = self.network.link(from, to);
        link.ends[end].full = true;
        self.queue.after(time, Event::Heal(Heal::Room(from, to)));
        true
    }

    fn skew(&mut self) -> bool {
        let alive: Vec<Slot> = (0..self.nodes.len())
            .filter(|slot| self.nodes[*slot].is_alive())
            .collect();
        let Some(&slot) = self.random.pick(&alive) else {
            return false;
        };
        let rate = 1_000_000 - SKEW_PPM_MAX + self.random.below(2 * SKEW_PPM_MAX);
        self.nodes[slot].clock.set_rate(self.queue.now(), rate);
        true
    }

    /// The activities in progress, for the coverage.
    fn phases(&self) -> Vec<Phase> {
        let programs = || {
            let living = self.processes.iter().filter(|process| process.alive);
            living.filter_map(|process| process.program.as_ref())
        };
        let asks = |op: Op| programs().any(|program| program.request() == Some(op));
        let agreed = self.leader().and_then(|leader| self.nodes[leader].agreed());
        let undetected = |agreed: &vm_machine::Agreed| {
            let mut present = agreed
                .hosts()
                .map(|(host, _)| host)
                .filter(|host| agreed.is_present(*host));
            present.any(|host| {
                self.slot_of_host(host)
                    .is_none_or(|slot| !self.nodes[slot].is_running())
            })
        };
        let voters_change = self.leader().is_some_and(|leader| {
            let present = self.nodes[leader].agreed().map_or(0, |agreed| {
                agreed
                    .hosts()
                    .filter(|(host, _)| agreed.is_present(*host))
                    .count()
            });
            let wanted = if present <= 2 {
                1
            } else if present <= 4 {
                3
            } else {
                5
            };
            self.voters(leader).len() != wanted
        });
        let under_way = |phase: &Phase| match phase {
            Phase::Joining => self.nodes.iter().any(|node| node.state == State::Joining),
            Phase::Spawning => asks(Op::Spawn),
            Phase::Blocked => programs().any(|program| program.is_blocked()),
            Phase::InFlight => programs().any(|program| program.endpoint().retained_bytes() > 0),
            Phase::Exiting => asks(Op::Exit),
            Phase::Grouping => asks(Op::GroupChange),
            Phase::Electing => self.leader().is_none(),
            Phase::Leaving => self.nodes.iter().any(Node::is_leaving),
            Phase::Detecting => agreed.is_some_and(undetected),
            Phase::Voters => voters_change,
            Phase::Moving => self
                .processes
                .iter()
                .any(|process| process.alive && process.gait != Gait::Runs),
            Phase::Initialisation => self.is_driven(MovePhase::Initialisation),
            Phase::Copying => self.is_driven(MovePhase::Copying),
            Phase::Interruption => self.is_driven(MovePhase::Interruption),
            Phase::Saving => self.is_driven(MovePhase::Saving),
            Phase::Resumption => self.is_driven(MovePhase::Resumption),
            Phase::Draining => agreed.is_some_and(|agreed| {
                let mut hosts = agreed.hosts().map(|(host, _)| host);
                hosts.any(|host| agreed.is_draining(host) && agreed.task_count(host) > 0)
            }),
        };
        Phase::ALL.iter().copied().filter(under_way).collect()
    }

    /// Handles a task that reads again: returns the channels whose frames were dropped meanwhile.
    fn task_room(&mut self, index: usize) -> (Slot, Vec<(Tid, Tid)>) {
        let process = &mut self.processes[index];
        process.full = false;
        let dropped = std::mem::take(&mut process.dropped);
        (process.slot, dropped.into_iter().collect())
    }
}
