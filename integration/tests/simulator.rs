//! The simulator as a test: a few hundred worlds, and worlds with a broken rule, which it must
//! notice. The full count is `cargo simulate --seeds 10000`.

use std::sync::atomic::{AtomicU64, Ordering};
use vm_integration::sim::{self, Options, Sabotage};

/// Runs the seeds `0..seeds` on all cores. Returns the broken rules, by seed.
fn broken(seeds: u64) -> Vec<(u64, String)> {
    let next = AtomicU64::new(0);
    let worker = || {
        let mut broken = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return broken;
            }
            if let Some(failure) = sim::run(seed, Options::default()).failure {
                broken.push((seed, failure.what));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let results = workers.into_iter().map(|worker| worker.join());
        let mut all: Vec<_> = results
            .flat_map(|broken| broken.expect("no worker panics"))
            .collect();
        all.sort();
        all
    })
}

/// The failure of the first seed in which the checkers notice the broken rule.
fn noticed(sabotage: Sabotage) -> String {
    let options = Options {
        sabotage: Some(sabotage),
        ..Options::default()
    };
    (0..20)
        .find_map(|seed| sim::run(seed, options).failure)
        .expect("some seed notices")
        .what
}

#[test]
fn no_rule_is_broken_in_300_worlds() {
    let broken = broken(300);
    assert!(
        broken.is_empty(),
        "repeat one with `cargo simulate --trace SEED`: {broken:#?}"
    );
}

/// A drain asked to hand on a suspended task. The task was resumed before the request came.
#[test]
fn a_request_to_hand_on_a_task_does_not_suspend_a_task_that_runs_again() {
    let failure = sim::run(22_012_926, Options::default()).failure;
    assert_eq!(failure.map(|failure| failure.what), None);
}

#[test]
fn a_seed_means_the_same_run_every_time() {
    let once = sim::run(7, Options::default());
    let again = sim::run(7, Options::default());
    assert_eq!(
        (once.events, once.time, once.messages, once.tasks),
        (again.events, again.time, again.messages, again.tasks)
    );
}

#[test]
fn a_message_that_comes_twice_is_noticed() {
    let what = noticed(Sabotage::DeliverTwice);
    assert!(what.contains("received"), "{what}");
}

#[test]
fn a_message_that_is_lost_is_noticed() {
    noticed(Sabotage::Lose);
}

#[test]
fn a_task_that_runs_in_two_places_is_noticed() {
    let what = noticed(Sabotage::GoOnAlone);
    assert!(what.contains("goes on twice"), "{what}");
}

#[test]
fn a_task_that_outlives_its_hosts_lease_is_noticed() {
    let what = noticed(Sabotage::NoLeaseTimer);
    assert!(
        what.contains("declared dead") || what.contains("is stopped"),
        "{what}"
    );
}
