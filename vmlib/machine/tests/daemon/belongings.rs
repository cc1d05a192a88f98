//! The state that moves with a task: messages on their way to it, requests, watches, and last
//! messages of ended tasks.

use crate::moves::{check, counters, held, host_of, setting};
use crate::world::{Carry, Told, World, on};
use std::time::Duration;
use vm_endpoint::Notice;
use vm_machine::ProcessInput;
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    console::{Answer, Request},
    peer::Order,
    task::{FailKind, Spawned, Watched},
};

#[test]
fn messages_to_a_frozen_task_arrive_once_and_in_order() {
    let (mut world, master, worker, request) = held();
    for text in ["a", "b", "c"] {
        world.send(master, worker, text);
        world.run_for(Duration::from_millis(50));
    }
    world.arrive(worker);
    assert!(world.moved(request).is_ok());
    world.send(master, worker, "d");
    world.run_for(Duration::from_secs(3));
    let texts: Vec<String> = world.received(worker).into_iter().map(|m| m.1).collect();
    assert_eq!(texts, ["a", "b", "c", "d"]);
    assert!(counters(&world, 2).frames_kept >= 3);
}

#[test]
fn the_end_of_a_moved_task_reaches_its_watchers() {
    let (mut world, master, worker) = setting();
    world
        .watch(master, Watched::Task(worker))
        .expect("it lives");
    let request = world.request_move(4, worker, 3);
    assert!(world.moved(request).is_ok());
    world.send(worker, master, "last words");
    world.exit(worker, 7).expect("it may leave");
    world.run_for(Duration::from_secs(2));
    let told = Told::Ended(worker, ExitStatus::Left(7), Some(1));
    assert_eq!(world.processes[&master].told, [told]);
    assert_eq!(world.received(master).len(), 1);
}

#[test]
fn a_moved_task_keeps_its_watches() {
    let (mut world, master, worker) = setting();
    let others = world.spawn(master, "other", 3, on(4)).tids;
    for other in &others {
        world
            .watch(worker, Watched::Task(*other))
            .expect("it lives");
    }
    world.watch(worker, Watched::HostDeleted).expect("always");
    world.carry = Carry::Held;
    let request = world.request_move(4, worker, 3);
    world.run_until("the image", |world| world.processes[&worker].frozen);
    // One ends during the freeze, one when the log decides, one afterwards.
    world.exit(others[0], 0).expect("it may leave");
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.processes[&worker].told, []);
    world.arrive(worker);
    world.die(others[1], ExitStatus::Signal(11));
    assert!(world.moved(request).is_ok());
    world.run_for(Duration::from_secs(1));
    world.exit(others[2], 3).expect("it may leave");
    world.run_for(Duration::from_secs(1));
    let mut told = world.processes[&worker].told.clone();
    told.sort_by_key(|told| match told {
        Told::Ended(tid, ..) => *tid,
        Told::Host(..) => Tid::NONE,
    });
    assert_eq!(
        told,
        [
            Told::Ended(others[0], ExitStatus::Left(0), Some(0)),
            Told::Ended(others[1], ExitStatus::Signal(11), None),
            Told::Ended(others[2], ExitStatus::Left(3), Some(0)),
        ]
    );
    world.crash(2);
    world.run_for(Duration::from_secs(5));
    let last = Told::Host("n2".to_owned(), false);
    assert_eq!(world.processes[&worker].told.last(), Some(&last));
    assert_eq!(world.processes[&worker].told.len(), 4);
}

#[test]
fn a_notification_that_was_not_read_before_the_freeze_is_sent_again() {
    let (mut world, master, worker) = setting();
    let other = world.spawn(master, "other", 1, on(4)).tids[0];
    world.watch(worker, Watched::Task(other)).expect("it lives");
    // The notification is in the socket while the task computes.
    world.processes.get_mut(&worker).expect("a process").frozen = true;
    world.exit(other, 0).expect("it may leave");
    world.run_for(Duration::from_millis(500));
    assert_eq!(world.processes[&worker].told, []);
    world.processes.get_mut(&worker).expect("a process").frozen = false;
    let request = world.request_move(4, worker, 3);
    assert!(world.moved(request).is_ok());
    world.run_for(Duration::from_secs(1));
    let told = Told::Ended(other, ExitStatus::Left(0), Some(0));
    assert_eq!(world.processes[&worker].told, [told]);
}

#[test]
fn a_request_under_way_is_carried_out_once() {
    let (mut world, master, worker, request) = held();
    // The hosts of the request cannot report, so the move waits for the reply.
    world.cut(2, 4, true);
    world.run_for(Duration::from_millis(10));
    let question = crate::world::spawn("child", 1, on(4));
    let number = world.request(worker, &question);
    world.arrive(worker);
    world.run_for(Duration::from_millis(1500));
    assert!(world.processes[&worker].frozen);
    world.heal(2, 4);
    assert!(world.moved(request).is_ok());
    world.request_again(worker, &question, number);
    world.run_for(Duration::from_secs(1));
    let answer = world.answers(worker, number);
    let spawned = vm_wire::Message::read(&answer[0]);
    let Spawned { tids, failures } = spawned.expect("an answer");
    assert_eq!((tids.len(), failures.len()), (1, 0));
    let state = world.daemon(1).agreement().state();
    assert_eq!(state.born(worker, number).count(), 1);
    check(&mut world, master, worker, 3);
}

#[test]
fn a_move_back_waits_until_the_log_of_the_former_host_knows_the_first_move() {
    let (mut world, master, worker, _) = held();
    // n2 receives nothing of the log.
    world.cut(2, 1, true);
    world.run_for(Duration::from_millis(10));
    world.carry = Carry::Whole;
    world.arrive(worker);
    world.run_until("the task to go on", |world| {
        world.processes[&worker].host == HostId(3)
    });
    let back = world.request_move(3, worker, 2);
    world.run_for(Duration::from_millis(300));
    assert!(!world.processes[&worker].frozen, "it runs while it waits");
    world.heal(2, 1);
    assert_eq!(world.moved(back), Ok((HostId(3), HostId(2))));
    check(&mut world, master, worker, 2);
}

#[test]
fn a_restored_process_that_ends_before_the_release_does_not_end_the_task() {
    let (mut world, master, worker, request) = held();
    world.cut(3, 2, true);
    world.run_for(Duration::from_millis(10));
    world.arrive(worker);
    world.run_for(Duration::from_millis(10));
    world.standing.clear();
    let killed = ExitStatus::Signal(9);
    world.input(HostId(3), ProcessInput::Ended(worker, killed));
    world.run_for(Duration::from_millis(10));
    world.heal(3, 2);
    let failed = world.moved(request).expect_err("its copy is gone");
    assert_eq!(failed.kind, FailKind::System);
    check(&mut world, master, worker, 2);
}

#[test]
fn a_task_that_ends_during_a_move_in_doubt_has_ended() {
    let (mut world, master, worker, request) = held();
    let watched = world.watch(master, Watched::Task(worker));
    watched.expect("it lives");
    world.lost = Some(|order| matches!(order, Order::MoveRelease(_)));
    world.arrive(worker);
    world.run_for(Duration::from_millis(100));
    // The source is cut off with its move in doubt, and then sees the process end.
    for other in [1, 3, 4] {
        world.cut(2, other, true);
    }
    world.run_for(Duration::from_millis(1200));
    world.die(worker, ExitStatus::Signal(9));
    world.run_for(Duration::from_millis(10));
    for other in [1, 3, 4] {
        world.heal(2, other);
    }
    assert!(world.moved(request).is_err());
    world.run_for(Duration::from_secs(2));
    let told = Told::Ended(worker, ExitStatus::Signal(9), None);
    assert_eq!(world.processes[&master].told, [told]);
    assert_eq!(host_of(&world, worker), None);
}

#[test]
fn a_last_message_that_was_lost_during_the_freeze_is_not_awaited() {
    let (mut world, master, worker) = setting();
    let other = world.spawn(master, "other", 1, on(3)).tids[0];
    world.watch(worker, Watched::Task(other)).expect("it lives");
    world.carry = Carry::Held;
    let request = world.request_move(4, worker, 3);
    world.run_until("the image", |world| world.processes[&worker].frozen);
    world.send(other, worker, "last words");
    world.exit(other, 0).expect("it may leave");
    world.run_for(Duration::from_millis(100));
    world.crash(3);
    assert!(world.moved(request).is_err());
    world.run_for(Duration::from_secs(1));
    let told = Told::Ended(other, ExitStatus::Left(0), None);
    assert_eq!(world.processes[&worker].told, [told]);
}

/// A worker moves from n2 to n3. It watches a task on n4, which leaves while the worker does not
/// read: the last message and the notification are lost with the worker's socket. Then the retained
/// messages of n4's daemon cannot reach n3. Returns the worker and the ended task.
fn waits_for_a_last_message() -> (World, Tid, Tid) {
    let mut world = World::new(5);
    let master = world.master(5, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    let other = world.spawn(master, "other", 1, on(4)).tids[0];
    world.watch(worker, Watched::Task(other)).expect("it lives");
    world.processes.get_mut(&worker).expect("a process").frozen = true;
    world.send(other, worker, "last words");
    world.exit(other, 0).expect("it may leave");
    world.run_for(Duration::from_millis(500));
    world.processes.get_mut(&worker).expect("a process").frozen = false;
    world.cut(3, 4, true);
    let request = world.request_move(5, worker, 3);
    assert!(world.moved(request).is_ok());
    world.run_for(Duration::from_secs(1));
    let told = Told::Ended(other, ExitStatus::Left(0), Some(1));
    assert_eq!(world.processes[&worker].told, [told]);
    assert_eq!(world.received(worker), []);
    assert_eq!(world.notice(worker), None);
    (world, worker, other)
}

#[test]
fn a_last_message_that_is_lost_with_its_keeper_is_not_awaited() {
    let (mut world, worker, other) = waits_for_a_last_message();
    world.crash(4);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.received(worker), []);
    assert_eq!(world.notice(worker), Some(ended_in_order(other)));
    assert_eq!(world.notice(worker), None);
}

#[test]
fn a_last_message_is_awaited_while_its_keeper_lives() {
    let (mut world, worker, other) = waits_for_a_last_message();
    world.crash(2);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.notice(worker), None);
    world.heal(3, 4);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.received(worker), [(other, "last words".to_owned())]);
    assert_eq!(world.notice(worker), Some(ended_in_order(other)));
}

#[test]
fn messages_that_a_leaving_host_handed_over_for_a_task_move_with_it() {
    let mut world = World::new(5);
    let master = world.master(5, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    let other = world.spawn(master, "other", 1, on(4)).tids[0];
    // The worker does not read: the message is lost with its socket.
    world.processes.get_mut(&worker).expect("a process").frozen = true;
    world.send(other, worker, "last words");
    world.exit(other, 0).expect("it may leave");
    let conn = world.conn();
    let answer = world.console(1, conn, &Request::Delete("n4".to_owned()));
    assert_eq!(answer, Answer::Done);
    world.processes.get_mut(&worker).expect("a process").frozen = false;
    let request = world.request_move(5, worker, 3);
    assert!(world.moved(request).is_ok());
    world.crash(2);
    world.watch(worker, Watched::Task(other)).expect("it ended");
    world.run_for(Duration::from_secs(2));
    let told = Told::Ended(other, ExitStatus::Left(0), Some(1));
    assert_eq!(world.processes[&worker].told, [told]);
    assert_eq!(world.received(worker), [(other, "last words".to_owned())]);
    assert_eq!(world.notice(worker), Some(ended_in_order(other)));
}

fn ended_in_order(tid: Tid) -> Notice {
    let status = ExitStatus::Left(0);
    Notice::Ended { tid, status }
}
