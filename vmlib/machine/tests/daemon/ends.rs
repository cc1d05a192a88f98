//! Ends of tasks: their last messages arrive, and watchers are notified after these messages.

use crate::world::{SIGKILL, Told, World, on, tid};
use std::time::Duration;
use vm_endpoint::Notice;
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    task::{Done, FailKind, Signal, Watch, Watched},
};

/// A master on n1 or the last host, a worker on n2. With more than two hosts, neither is on the
/// leader's host, so that a cut between the two costs no lease.
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
fn the_notification_of_an_exit_in_order_has_the_number_of_the_last_message() {
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
fn the_notification_on_the_same_host_has_the_number_too() {
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
fn the_notification_of_a_silent_task_that_left_in_order_waits_for_nothing() {
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
fn the_notification_of_a_task_that_dies_has_no_number() {
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
fn a_watch_of_an_ended_task_notifies_at_once() {
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
fn an_ended_watch_does_not_notify() {
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
fn messages_to_an_ended_task_are_dropped() {
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
fn the_death_of_a_host_notifies_the_watchers_of_its_tasks() {
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
fn a_last_number_that_will_not_come_is_not_awaited() {
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

#[test]
fn a_task_that_awaits_messages_learns_of_the_end_after_the_last_one_without_a_notification() {
    for before in [true, false] {
        let (mut world, master, worker) = master_and_worker(3);
        if before {
            world.await_messages(master, worker);
        }
        world.deaf.insert(master);
        world.send(worker, master, "last words");
        world.exit(worker, 3).expect("it may leave");
        if !before {
            world.await_messages(master, worker);
        }
        world.run_until("the end", |world| !world.processes[&master].told.is_empty());
        assert_eq!(world.over(master, worker), None);
        world.deaf.clear();
        world.run_for(Duration::from_secs(3));
        assert_eq!(world.over(master, worker), Some(ExitStatus::Left(3)));
        assert_eq!(world.received(master), [(worker, "last words".to_owned())]);
        assert_eq!(world.notice(master), None);
    }
}

#[test]
fn a_task_that_watches_and_awaits_is_notified_once() {
    let (mut world, master, worker) = master_and_worker(3);
    world.await_messages(master, worker);
    world
        .watch(master, Watched::Task(worker))
        .expect("it lives");
    world.die(worker, ExitStatus::Signal(11));
    world.run_for(Duration::from_secs(1));
    let status = ExitStatus::Signal(11);
    let told = Told::Ended(worker, status, None);
    assert_eq!(world.processes[&master].told, [told]);
    assert_eq!(world.over(master, worker), Some(status));
    let tid = worker;
    assert_eq!(world.notice(master), Some(Notice::Ended { tid, status }));
}

#[test]
fn a_receive_from_a_task_that_never_existed_ends() {
    let (mut world, master, _) = master_and_worker(2);
    for never in [tid(1, 99), tid(2, 99), tid(9, 1), Tid(0), tid(2, 0)] {
        world.await_messages(master, never);
        world.run_for(2 * vm_wire::limits::HELD_TIME);
        assert_eq!(world.over(master, never), Some(ExitStatus::Unknown));
    }
    assert_eq!(world.notice(master), None);
}

#[test]
fn a_task_that_the_log_does_not_know_yet_is_awaited() {
    let (mut world, master, _) = master_and_worker(4);
    // The log of the master's host is behind: it learns of the spawn later than the master.
    world.behind = Some(HostId(4));
    let other = world.master(1, "other");
    world.await_messages(master, other);
    world.run_for(Duration::from_millis(500));
    world.behind = None;
    world.run_for(2 * vm_wire::limits::HELD_TIME);
    assert_eq!(world.over(master, other), None);
    world.exit(other, 0).expect("it may leave");
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.over(master, other), Some(ExitStatus::Left(0)));
}

#[test]
fn an_awaiting_task_and_an_awaited_task_may_move() {
    let (mut world, master, worker) = master_and_worker(3);
    world.await_messages(master, worker);
    for (tid, to) in [(master, 1), (worker, 3)] {
        let request = world.request_move(2, tid, to);
        world.moved(request).expect("it moves");
    }
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.over(master, worker), None);
    world.send(worker, master, "from n3");
    world.exit(worker, 0).expect("it may leave");
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.over(master, worker), Some(ExitStatus::Left(0)));
    assert_eq!(world.received(master), [(worker, "from n3".to_owned())]);
}

#[test]
fn a_message_to_a_tid_without_a_task_does_not_harm_the_sender() {
    let (mut world, master, worker) = master_and_worker(2);
    for nobody in [
        tid(1, 0),
        tid(2, 0),
        tid(9, 0),
        Tid(0),
        tid(9, 1),
        tid(2, 99),
    ] {
        world.send(master, nobody, "to nobody");
    }
    world.run_for(Duration::from_secs(4));
    assert_eq!(world.closed, []);
    assert_eq!(world.daemon(1).counters().refused_local, 0);
    world.send(master, worker, "to somebody");
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.received(worker), [(master, "to somebody".to_owned())]);
    world.exit(master, 0).expect("nothing keeps it");
}
