//! Tasks end: what they sent before arrives, who watches is told after it.

use crate::world::{SIGKILL, Told, World, on, tid};
use std::time::Duration;
use vm_wire::{
    agreed::ExitStatus,
    task::{Done, FailKind, Signal, Watch, Watched},
};

/// A master on n1 or the last host, a worker on n2. With more than two hosts neither is on the
/// leader's, so that a cut between the two costs no lease.
fn master_and_worker(hosts: u16) -> (World, vm_wire::Tid, vm_wire::Tid) {
    let mut world = World::new(hosts);
    let home = if hosts == 2 { 1 } else { hosts };
    let master = world.master(home, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    (world, master, worker)
}

#[test]
fn a_message_sent_just_before_the_exit_arrives_even_over_a_broken_link() {
    let (mut world, master, worker) = master_and_worker(3);
    world.cut(3, 2, true);
    world.run_for(Duration::from_millis(10));
    world.send(worker, master, "last words");
    world.exit(worker, 0).expect("it may leave");
    world.run_for(Duration::from_millis(500));
    assert_eq!(world.received(master), []);
    world.heal(3, 2);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.received(master), [(worker, "last words".to_owned())]);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.received(master), []);
}

#[test]
fn notify_of_an_exit_in_order_carries_the_number_of_the_last_message() {
    let (mut world, master, worker) = master_and_worker(2);
    world
        .watch(master, Watched::Task(worker))
        .expect("it lives");
    for text in ["a", "b", "c"] {
        world.send(worker, master, text);
    }
    world.exit(worker, 7).expect("it may leave");
    world.run_until("the notify", |world| {
        !world.processes[&master].told.is_empty()
    });
    world.run_for(Duration::from_secs(2));
    let told = Told::Ended(worker, ExitStatus::Left(7), Some(3));
    assert_eq!(world.processes[&master].told, [told]);
    assert_eq!(world.received(master).len(), 3);
}

#[test]
fn notify_on_the_same_host_carries_the_number_too() {
    let mut world = World::new(1);
    let master = world.master(1, "master");
    let worker = world.spawn(master, "worker", 1, on(1)).tids[0];
    world
        .watch(master, Watched::Task(worker))
        .expect("it lives");
    world.send(worker, master, "a");
    world.exit(worker, 0).expect("it may leave");
    world.run_for(Duration::from_millis(100));
    let told = Told::Ended(worker, ExitStatus::Left(0), Some(1));
    assert_eq!(world.processes[&master].told, [told]);
}

#[test]
fn notify_of_a_silent_task_that_left_in_order_waits_for_nothing() {
    let (mut world, master, worker) = master_and_worker(2);
    world
        .watch(master, Watched::Task(worker))
        .expect("it lives");
    world.exit(worker, 0).expect("it may leave");
    world.run_until("the notify", |world| {
        !world.processes[&master].told.is_empty()
    });
    let told = Told::Ended(worker, ExitStatus::Left(0), Some(0));
    assert_eq!(world.processes[&master].told, [told]);
}

#[test]
fn notify_of_a_task_that_dies_has_no_number() {
    let (mut world, master, worker) = master_and_worker(2);
    world
        .watch(master, Watched::Task(worker))
        .expect("it lives");
    world.die(worker, ExitStatus::Signal(11));
    world.run_until("the notify", |world| {
        !world.processes[&master].told.is_empty()
    });
    let told = Told::Ended(worker, ExitStatus::Signal(11), None);
    assert_eq!(world.processes[&master].told, [told]);
}

#[test]
fn who_watches_a_task_that_has_ended_is_told_at_once() {
    let (mut world, master, worker) = master_and_worker(2);
    world.exit(worker, 0).expect("it may leave");
    world
        .watch(master, Watched::Task(worker))
        .expect("it is remembered");
    world.run_until("the notify", |world| {
        !world.processes[&master].told.is_empty()
    });
    assert_eq!(world.processes[&master].told.len(), 1);
    let unknown = world.watch(master, Watched::Task(tid(2, 99)));
    assert_eq!(
        unknown.expect_err("it never was").kind,
        FailKind::NoSuchTask
    );
    let unknown = world.watch(master, Watched::Task(tid(1, 99)));
    assert_eq!(
        unknown.expect_err("it never was").kind,
        FailKind::NoSuchTask
    );
}

#[test]
fn who_watches_no_more_is_not_told() {
    let (mut world, master, worker) = master_and_worker(2);
    let what = Watched::Task(worker);
    world.watch(master, what).expect("it lives");
    let off = Watch { what, on: false };
    world.ask::<Done>(master, &off).expect("it may");
    world.die(worker, ExitStatus::Code(1));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.processes[&master].told, []);
}

#[test]
fn what_is_sent_to_a_task_that_has_ended_is_forgotten() {
    let (mut world, master, worker) = master_and_worker(2);
    world.die(worker, ExitStatus::Code(0));
    world.run_for(Duration::from_millis(300));
    world.send(master, worker, "to nobody");
    world.run_for(Duration::from_millis(300));
    let all = |world: &mut World| world.exit(master, 0);
    all(&mut world).expect("nothing keeps it");
}

#[test]
fn signals_reach_tasks_on_other_hosts() {
    let (mut world, master, worker) = master_and_worker(2);
    let signal = |tid, signal| Signal { tid, signal };
    world
        .ask::<Done>(master, &signal(worker, 10))
        .expect("it lives");
    world
        .ask::<Done>(master, &signal(worker, 0))
        .expect("it lives");
    world
        .ask::<Done>(master, &signal(worker, SIGKILL))
        .expect("it lives");
    world.run_until("its end", |world| !world.is_alive(worker));
    assert_eq!(world.processes[&worker].signals, [10, SIGKILL]);
    world.run_for(Duration::from_millis(300));
    let mut fails = |tid, number| {
        let failed = world.ask::<Done>(master, &signal(tid, number));
        failed.expect_err("it cannot be sent").kind
    };
    assert_eq!(fails(worker, 15), FailKind::NoSuchTask);
    assert_eq!(fails(tid(3, 1), 15), FailKind::NoSuchTask);
    assert_eq!(fails(master, 65), FailKind::BadRequest);
    assert_eq!(fails(master, -1), FailKind::BadRequest);
}

#[test]
fn the_death_of_a_host_ends_its_tasks_for_those_who_watch() {
    let (mut world, master, worker) = master_and_worker(4);
    world
        .watch(master, Watched::Task(worker))
        .expect("it lives");
    world.watch(master, Watched::HostDeleted).expect("always");
    let begin = world.now;
    world.crash(2);
    world.run_until("the notify", |world| {
        world.processes[&master].told.len() == 2
    });
    assert!(world.now.since(begin) < vm_wire::limits::DETECTION_PROMISE);
    assert_eq!(
        world.processes[&master].told,
        [
            Told::Ended(worker, ExitStatus::HostLost, None),
            Told::Host("n2".to_owned(), false)
        ]
    );
    world.send(master, worker, "to nobody");
    world.run_for(Duration::from_secs(1));
    world.exit(master, 0).expect("nothing keeps it");
}

#[test]
fn a_last_number_that_will_not_come_is_not_waited_for() {
    let (mut world, master, worker) = master_and_worker(4);
    world
        .watch(master, Watched::Task(worker))
        .expect("it lives");
    world.cut(4, 2, true);
    world.exit(worker, 0).expect("it may leave");
    world.run_for(Duration::from_millis(500));
    assert_eq!(world.processes[&master].told, []);
    world.crash(2);
    world.run_until("the notify", |world| {
        !world.processes[&master].told.is_empty()
    });
    let told = Told::Ended(worker, ExitStatus::Left(0), None);
    assert_eq!(world.processes[&master].told, [told]);
}
