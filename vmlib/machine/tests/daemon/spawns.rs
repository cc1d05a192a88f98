//! Tasks are spawned and exchange messages.

use crate::world::{World, on, spawn, tid};
use std::time::Duration;
use vm_machine::Input;
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    console::Request,
    task::{FailKind, Hosts, HostsAsk, Place, Siblings, Spawned, Tids},
};

#[test]
fn tasks_spread_over_the_hosts_and_talk() {
    let mut world = World::new(3);
    let master = world.master(1, "master");
    assert_eq!(master, tid(1, 1));
    let spawned = world.spawn(master, "worker", 5, Place::Any);
    assert_eq!(spawned.failures, []);
    let hosts: Vec<u16> = spawned.tids.iter().map(|tid| tid.host().0).collect();
    assert_eq!(hosts, [1, 2, 2, 3, 3]);
    for worker in &spawned.tids {
        world.send(master, *worker, "hello");
    }
    world.run_for(Duration::from_millis(100));
    for worker in &spawned.tids {
        assert_eq!(world.received(*worker), [(master, "hello".to_owned())]);
        world.send(*worker, master, "done");
    }
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.received(master).len(), 5);
    let siblings: Tids = world.ask(spawned.tids[4], &Siblings {}).expect("siblings");
    assert_eq!(siblings.tids, spawned.tids);
    let hosts: Hosts = world.ask(spawned.tids[4], &HostsAsk {}).expect("hosts");
    let tasks: Vec<u32> = hosts.hosts.iter().map(|(_, _, tasks)| *tasks).collect();
    assert_eq!(tasks, [2, 2, 2]);
}

#[test]
fn a_missing_program_fails_on_its_host_and_starts_no_task() {
    let mut world = World::new(2);
    let master = world.master(1, "master");
    let spawned = world.spawn(master, "missing", 4, Place::Any);
    assert_eq!(spawned.tids, []);
    let hosts: Vec<&str> = spawned
        .failures
        .iter()
        .map(|(host, _)| host.as_str())
        .collect();
    assert_eq!(hosts, ["n1", "n2"]);
    assert!(
        spawned
            .failures
            .iter()
            .all(|(_, why)| why.kind == FailKind::NoSuchProgram)
    );
    assert_eq!(
        world.daemon(1).agreement().state().living_tasks().count(),
        1
    );
}

#[test]
fn a_program_that_cannot_be_executed_ends_as_not_started() {
    let mut world = World::new(1);
    let master = world.master(1, "master");
    let spawned = world.spawn(master, "broken", 1, Place::Any);
    let state = |world: &World, tid: Tid| world.daemon(1).agreement().state().task(tid).cloned();
    world.run_until("its end", |world| {
        state(world, spawned.tids[0]).is_some_and(|task| !task.is_alive())
    });
    let task = state(&world, spawned.tids[0]).expect("it is remembered");
    assert_eq!(task.status, Some(ExitStatus::NotStarted));
    assert_eq!(world.daemon(1).local_tasks().collect::<Vec<_>>(), [master]);
}

#[test]
fn a_spawn_request_that_is_repeated_is_carried_out_once() {
    let mut world = World::new(2);
    let master = world.master(1, "master");
    let question = spawn("worker", 2, Place::Any);
    let number = world.request(master, &question);
    world.request_again(master, &question, number);
    world.run_for(Duration::from_secs(1));
    world.request_again(master, &question, number);
    world.run_for(Duration::from_secs(1));
    let [first, second] = world.answers(master, number) else {
        panic!("one answer and its repetition")
    };
    assert_eq!(first, second);
    assert_eq!(
        world.daemon(2).agreement().state().living_tasks().count(),
        3
    );
}

#[test]
fn a_spawn_that_cannot_be_placed_is_refused() {
    let mut world = World::new(2);
    let master = world.master(1, "master");
    let mut fails = |program: &str, count, place| {
        let failed = world.ask::<Spawned>(master, &spawn(program, count, place));
        failed.expect_err("it cannot be placed").kind
    };
    assert_eq!(fails("worker", 1, on(9)), FailKind::NoSuchHost);
    assert_eq!(fails("worker", 0, Place::Any), FailKind::BadRequest);
    assert_eq!(fails("", 1, Place::Any), FailKind::BadRequest);
    assert_eq!(fails("worker", 40, Place::Any), FailKind::Limit);
    assert_eq!(fails("worker", 21, on(2)), FailKind::Limit);
    assert_eq!(
        fails("worker", 1, Place::Hosts(Vec::new())),
        FailKind::BadRequest
    );
}

#[test]
fn messages_to_a_task_that_has_not_enrolled_wait_for_it() {
    let mut world = World::new(2);
    let master = world.master(1, "master");
    let answer = world.ask::<Spawned>(master, &spawn("silent", 1, on(2)));
    let child = answer.expect("a task").tids[0];
    world.send(master, child, "early");
    world.run_for(Duration::from_millis(100));
    world.enrol(child);
    world.run_until("its Welcome", |world| world.is_enrolled(child));
    world.run_for(Duration::from_millis(50));
    assert_eq!(world.received(child), [(master, "early".to_owned())]);
}

#[test]
fn a_broken_link_costs_no_message() {
    let mut world = World::new(2);
    let master = world.master(1, "master");
    let child = world.spawn(master, "worker", 1, on(2)).tids[0];
    world.cut(1, 2, true);
    world.run_for(Duration::from_millis(100));
    world.send(master, child, "one");
    world.send(master, child, "two");
    world.run_for(Duration::from_millis(300));
    assert_eq!(world.received(child), []);
    world.heal(1, 2);
    world.run_for(Duration::from_secs(1));
    let texts: Vec<String> = world
        .received(child)
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(texts, ["one", "two"]);
}

#[test]
fn messages_lost_with_a_link_are_sent_again_at_once_also_to_a_task_that_had_moved() {
    let mut world = World::new(4);
    let master = world.master(4, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    let request = world.request_move(4, worker, 3);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    // This task was spawned after the move, so it received no new location.
    let late = world.spawn(master, "worker", 1, on(4)).tids[0];
    world.send(late, worker, "first");
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.received(worker).len(), 1);
    for number in 0..40 {
        world.send(late, worker, &number.to_string());
    }
    world.cut(4, 3, true);
    world.run_for(Duration::from_millis(300));
    world.heal(4, 3);
    world.run_for(Duration::from_secs(2));
    let texts = world.received(worker).into_iter().map(|(_, text)| text);
    let expected = (0..40).map(|number: u32| number.to_string());
    assert!(texts.eq(expected));
}

#[test]
fn the_tasks_of_a_host_that_dies_before_its_report_count_as_failed() {
    let mut world = World::new(4);
    let master = world.master(1, "master");
    world.cut(1, 4, true);
    let question = spawn(
        "worker",
        2,
        Place::Hosts(vec!["n1".to_owned(), "n4".to_owned()]),
    );
    let number = world.request(master, &question);
    world.run_for(Duration::from_millis(100));
    assert!(world.answers(master, number).is_empty());
    world.crash(4);
    world.run_until("the answer", |world| {
        !world.answers(master, number).is_empty()
    });
    let answer = &world.answers(master, number)[0];
    let spawned: Spawned = vm_wire::Message::read(answer).expect("an answer");
    assert_eq!(spawned.tids.len(), 1);
    assert_eq!(spawned.failures[0].0, "n4");
    assert_eq!(spawned.failures[0].1.kind, FailKind::HostLost);
}

/// Spawns tasks on n1 and on n4, to which n1 has no link, and lets the worker on n1 request its
/// siblings. Returns the number of this request.
fn siblings_of_the_first(world: &mut World) -> u64 {
    let master = world.master(1, "master");
    world.cut(1, 4, true);
    let place = Place::Hosts(vec!["n1".to_owned(), "n4".to_owned()]);
    world.request(master, &spawn("worker", 2, place));
    world.run_until("a worker on n1", |world| world.is_enrolled(tid(1, 2)));
    let number = world.request(tid(1, 2), &Siblings {});
    world.run_for(Duration::from_millis(200));
    assert!(world.answers(tid(1, 2), number).is_empty());
    number
}

fn siblings_told(world: &mut World, number: u64) -> Vec<Tid> {
    let first = tid(1, 2);
    world.run_until("the siblings", |world| {
        !world.answers(first, number).is_empty()
    });
    let answer = &world.answers(first, number)[0];
    let tids: Tids = vm_wire::Message::read(answer).expect("an answer");
    tids.tids
}

#[test]
fn siblings_are_reported_once_all_are_known() {
    let mut world = World::new(4);
    let number = siblings_of_the_first(&mut world);
    world.heal(1, 4);
    assert_eq!(siblings_told(&mut world, number), [tid(1, 2), tid(4, 1)]);
}

#[test]
fn siblings_that_could_not_be_started_are_not_awaited() {
    let mut world = World::new(4);
    let number = siblings_of_the_first(&mut world);
    world.crash(4);
    assert_eq!(siblings_told(&mut world, number), [tid(1, 2)]);
}

#[test]
fn a_process_from_a_shell_becomes_a_master() {
    let mut world = World::new(2);
    world.enrol_from_shell(2);
    let master = tid(2, 1);
    world.run_until("its Welcome", |world| world.is_enrolled(master));
    let task = world.daemon(1).agreement().state().task(master).cloned();
    let task = task.expect("everybody knows it");
    assert!(task.enrolled && task.app == master && task.parent().is_none());
    assert_eq!(&*task.program, "prog");
    world.spawn(master, "worker", 2, Place::Any);
}

#[test]
fn a_process_from_a_shell_that_ends_before_its_welcome_leaves_no_task() {
    let mut world = World::new(2);
    let conn = world.enrol_from_shell(2);
    world.input(HostId(2), Input::ConnGone(conn));
    world.run_for(Duration::from_secs(1));
    let state = world.daemon(1).agreement().state();
    assert_eq!(state.living_tasks().count(), 0);
    assert_eq!(world.daemon(2).local_tasks().count(), 0);
}

#[test]
fn a_token_admits_one_process() {
    let mut world = World::new(1);
    let master = world.master(1, "master");
    let again = world.enrol(master);
    world.run_for(Duration::from_millis(10));
    assert!(world.rejected.contains_key(&again));
    assert!(world.is_enrolled(master));
}

#[test]
fn the_application_of_a_master_that_fails_is_killed_and_no_other() {
    let mut world = World::new(2);
    let (one, two) = (world.master(1, "one"), world.master(1, "two"));
    let ours = world.spawn(one, "worker", 4, Place::Any).tids;
    let theirs = world.spawn(two, "worker", 2, Place::Any).tids;
    world.exit(one, 3).expect("it may leave");
    world.run_for(Duration::from_secs(1));
    assert!(ours.iter().all(|tid| !world.is_alive(*tid)));
    assert!(theirs.iter().all(|tid| world.is_alive(*tid)));
    world.exit(two, 0).expect("it may leave");
    world.run_for(Duration::from_secs(1));
    assert!(theirs.iter().all(|tid| world.is_alive(*tid)));
    let conn = world.conn();
    world.console(2, conn, &Request::Ps(Some(two)));
}
