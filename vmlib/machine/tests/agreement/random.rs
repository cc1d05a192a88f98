//! Random runs: faults of all kinds, then quiet, each run from one seed.
//!
//! The network checks its invariants while faults occur (see [`Network`]). Then all faults end, and
//! all pending work must end: the remaining hosts have equal states and one of them as the leader,
//! and each change that a remaining host proposed was applied once.

use crate::network::Network;
use std::{ops::Range, time::Duration};
use vm_machine::{Agreement, AgreementConfig};
use vm_wire::{HostId, Tid, agreed::Change};

/// SplitMix64: good enough to choose faults.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len() as u64) as usize]
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

struct Course {
    seed: u64,
    dice: Dice,
    network: Network,
    wanted: Vec<Tid>,
}

impl Course {
    fn begin(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let log_entries_max = 8 + dice.below(100);
        let network = Network::founded(AgreementConfig { log_entries_max });
        let wanted = Vec::new();
        Course {
            seed,
            dice,
            network,
            wanted,
        }
    }

    fn up(&self) -> Vec<HostId> {
        self.network.up().map(|(host, _)| host).collect()
    }

    fn some_host(&mut self) -> Option<HostId> {
        let up = self.up();
        (!up.is_empty()).then(|| self.dice.one_of(&up))
    }

    fn grow(&mut self) {
        for number in 2..=2 + self.dice.below(7) {
            self.network.join(&format!("n{number}"), HostId::FOUNDER);
            let time = self.dice.millis(0, 400);
            self.network.run(time);
        }
        self.network.run(Duration::from_secs(2));
    }

    /// Makes one random fault, and advances the time.
    fn fault(&mut self) -> Option<()> {
        let host = self.some_host()?;
        match self.dice.below(12) {
            0..=3 => {
                let count = 1 + self.dice.below(20);
                for _ in 0..count {
                    self.wanted.push(self.network.spawn(host));
                    let time = self.dice.millis(0, 10);
                    self.network.run(time);
                }
            }
            4 => self.network.kill(host),
            5 => self
                .network
                .join(&format!("x{}", self.dice.below(1000)), host),
            6 => {
                let other = self.some_host()?;
                self.network.drop_link(host, other);
            }
            7 => {
                let some = self.up().into_iter().filter(|_| self.dice.below(2) == 0);
                let some: Vec<_> = some.collect();
                let mut others = self.up();
                others.retain(|host| !some.contains(host));
                self.network.cut(&some, &others);
            }
            8 => self.network.heal(),
            9 => self.network.propose(host, Change::HostLeaving(host)),
            10 => self.network.latency = self.dice.millis(1, 30),
            _ => {
                self.network.stall(host);
                let time = self.dice.millis(50, 4000);
                self.network.run(time);
                self.network.resume(host);
            }
        }
        let time = self.dice.millis(0, 3000);
        self.network.run(time);
        Some(())
    }

    fn quiet(&mut self) {
        self.network.heal();
        self.network.lossy = None;
        self.network.latency = Duration::from_millis(1);
        let settled = |network: &Network| {
            let mut indices = network.up().map(|(_, agreement)| agreement.state().index());
            let first = indices.next();
            let equal = indices.all(|index| Some(index) == first);
            let led = network
                .up()
                .all(|(_, agreement)| network.is_up(agreement.leader()));
            let present = network.up().all(|(_, agreement)| {
                agreement
                    .state()
                    .hosts()
                    .all(|(host, _)| network.is_up(host))
            });
            let done = network.up().all(|(_, agreement)| !agreement.is_pending());
            equal && led && present && done
        };
        let settled = self.network.run_until(Duration::from_secs(30), settled);
        self.expect(settled, "what is pending ends");
        self.network.run(Duration::from_secs(5));
    }

    /// Checks the conditions at the end of a run.
    fn check(&self) {
        let mut voters = None;
        for (host, agreement) in self.network.up() {
            let state = agreement.state();
            for tid in self.wanted.iter().filter(|tid| tid.host() == host) {
                let applied = self.network.outcomes.contains(tid);
                self.expect(applied, "a change of a living host is applied");
            }
            let hosts: Vec<_> = state.hosts().map(|(host, _)| host).collect();
            let up: Vec<_> = self.network.up().map(|(host, _)| host).collect();
            self.expect(hosts == up, "who is up is a host, and nobody else");
            let first = voters.get_or_insert_with(|| agreement.voters());
            self.expect(*first == agreement.voters(), "all see the same voters");
        }
        let living = |(host, agreement): &(HostId, &Agreement)| agreement.state().is_living(*host);
        let n = self.network.up().filter(living).count();
        let k = [0, 1, 1, 3, 3, 5].get(n).copied().unwrap_or(5);
        let voters = voters.map_or(0, |voters| voters.len());
        self.expect(
            n == 0 || voters == k,
            "the voters are as many as are wanted",
        );
    }

    fn expect(&self, holds: bool, what: &str) {
        assert!(holds, "not so: {what}");
    }
}

/// Prints the seed of a failed run, and its last events.
impl Drop for Course {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (events, status) = (&self.network.events, self.network.status());
            let last = events.len().saturating_sub(60);
            eprintln!(
                "seed {}:\n{}\n{status}",
                self.seed,
                events[last..].join("\n")
            );
        }
    }
}

/// The seeds: the one in `VM_SEED`, or as many as `VM_SEEDS` says.
fn seeds() -> Range<u64> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("VM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VM_SEEDS").unwrap_or(40),
    }
}

#[test]
fn the_remaining_hosts_agree_after_any_faults() {
    let mut survived = 0;
    for seed in seeds() {
        let mut course = Course::begin(seed);
        course.grow();
        if course.dice.below(3) == 0 {
            let mut dice = Dice(seed ^ 0xD1CE);
            course.network.lossy = Some(Box::new(move || dice.below(50) == 0));
        }
        for _ in 0..10 + course.dice.below(20) {
            if course.fault().is_none() {
                break;
            }
        }
        course.quiet();
        course.check();
        survived += u64::from(course.some_host().is_some());
    }
    assert!(
        survived * 3 >= seeds().count() as u64,
        "most courses end before they are of interest"
    );
}
