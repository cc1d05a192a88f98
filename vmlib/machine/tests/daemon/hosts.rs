//! Hosts join and leave, and the machine ends.

use crate::world::{SIGKILL, SIGTERM, Told, World, on, spawn};
use std::time::Duration;
use vm_machine::Input;
use vm_wire::{
    HostId,
    agreed::ExitStatus,
    console::{Answer, HostState, Request},
    limits,
    peer::DrainWay,
    task::{FailKind, Place, Watched},
};

fn states(world: &mut World, host: u16) -> Vec<HostState> {
    let conn = world.conn();
    match world.console(host, conn, &Request::Conf) {
        Answer::Conf(conf) => conf.hosts.iter().map(|row| row.state).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_host_that_joins_is_announced_and_takes_tasks() {
    let mut world = World::new(1);
    let master = world.master(1, "master");
    world.watch(master, Watched::HostAdded).expect("always");
    let conn = world.conn();
    let await_host = Request::AwaitHost("n2".to_owned());
    let number = world.console_request(1, conn, &await_host);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.console_answer(conn, number), None);
    assert_eq!(world.join(HostId(1), "n2"), Ok(HostId(2)));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.console_answer(conn, number), Some(Answer::Done));
    assert_eq!(
        world.processes[&master].told,
        [Told::Host("n2".to_owned(), true)]
    );
    assert!(world.noted.contains(&"host 'n2' has joined".to_owned()));
    world.spawn(master, "worker", 1, on(2));
}

#[test]
fn a_deleted_host_ends_its_tasks_and_hands_over_their_last_messages() {
    let mut world = World::new(3);
    let master = world.master(1, "master");
    let worker = world.spawn(master, "worker", 1, on(3)).tids[0];
    world
        .watch(master, Watched::Task(worker))
        .expect("it lives");
    // The master reads nothing until the host has left.
    world.deaf.insert(master);
    world.send(worker, master, "last words");
    world.exit(worker, 0).expect("it may leave");
    let conn = world.conn();
    let answer = world.console(2, conn, &Request::Delete("n3".to_owned()));
    assert_eq!(answer, Answer::Done);
    assert!(
        matches!(world.end_of(3), Some(Ok(_))),
        "{:?}",
        world.end_of(3)
    );
    assert_eq!(world.received(master), []);
    world.deaf.clear();
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.received(master), [(worker, "last words".to_owned())]);
    let told = Told::Ended(worker, ExitStatus::Left(0), Some(1));
    assert_eq!(world.processes[&master].told, [told]);
    assert_eq!(states(&mut world, 1)[2], HostState::Gone);
    assert!(world.noted.contains(&"host 'n3' has left".to_owned()));
}

#[test]
fn a_deleted_host_hands_over_more_than_a_channel_takes_at_once() {
    let mut world = World::new(3);
    let master = world.master(1, "master");
    let workers = world.spawn(master, "worker", 20, on(3)).tids;
    world.deaf.insert(master);
    let words = "w".repeat(1_000_000);
    for worker in &workers {
        world.send(*worker, master, &words);
        world.exit(*worker, 0).expect("it may leave");
    }
    let conn = world.conn();
    let answer = world.console(2, conn, &Request::Delete("n3".to_owned()));
    assert_eq!(answer, Answer::Done);
    world.deaf.clear();
    world.run_for(Duration::from_secs(60));
    let mut received = world.received(master);
    received.sort_unstable();
    assert_eq!(received.len(), workers.len());
    assert!(received.iter().all(|(_, text)| *text == words));
    assert!(received.iter().map(|(from, _)| from).eq(&workers));
}

#[test]
fn tasks_on_a_leaving_host_get_sigterm_and_then_sigkill() {
    let mut world = World::new(3);
    world.stubborn = true;
    let master = world.master(1, "master");
    let worker = world.spawn(master, "worker", 1, on(3)).tids[0];
    world.input(HostId(3), Input::Stop);
    world.run_until("the end of the daemon", |world| world.end_of(3).is_some());
    assert_eq!(world.processes[&worker].signals, [SIGTERM, SIGKILL]);
    assert!(matches!(world.end_of(3), Some(Ok(_))));
    assert!(world.is_alive(master));
    world.run_for(Duration::from_secs(1));
    assert_eq!(states(&mut world, 2)[2], HostState::Gone);
}

#[test]
fn the_leader_can_be_deleted_by_its_own_console() {
    let mut world = World::new(3);
    let master = world.master(2, "master");
    let conn = world.conn();
    let answer = world.console(1, conn, &Request::Delete("n1".to_owned()));
    assert_eq!(answer, Answer::Done);
    assert!(matches!(world.end_of(1), Some(Ok(_))));
    world.run_for(Duration::from_secs(5));
    assert_eq!(
        states(&mut world, 2),
        [HostState::Gone, HostState::Live, HostState::Live]
    );
    world.spawn(master, "worker", 2, Place::Any);
}

#[test]
fn of_two_hosts_either_can_leave() {
    for leaves in [1, 2] {
        let stays = 3 - leaves;
        let mut world = World::new(2);
        let master = world.master(stays, "master");
        world.input(HostId(leaves), Input::Stop);
        world.run_until("the end of the daemon", |world| {
            world.end_of(leaves).is_some()
        });
        assert!(matches!(world.end_of(leaves), Some(Ok(_))));
        world.run_for(Duration::from_secs(5));
        assert_eq!(world.end_of(stays), None);
        world.spawn(master, "worker", 2, Place::Any);
    }
}

#[test]
fn the_last_host_ends_the_machine() {
    let mut world = World::new(1);
    let master = world.master(1, "master");
    world.input(HostId(1), Input::Stop);
    world.run_until("the end of the daemon", |world| world.end_of(1).is_some());
    assert!(matches!(world.end_of(1), Some(Ok(_))));
    assert_eq!(world.processes[&master].signals, [SIGTERM]);
}

#[test]
fn halt_ends_every_daemon_in_order() {
    let mut world = World::new(5);
    let master = world.master(2, "master");
    world.spawn(master, "worker", 5, Place::Any);
    let conn = world.conn();
    let begin = world.now;
    assert_eq!(world.console(4, conn, &Request::Halt), Answer::Done);
    world.run_until("the end of all", |world| {
        (1..=5).all(|host| world.end_of(host).is_some())
    });
    for host in 1..=5 {
        assert!(
            matches!(world.end_of(host), Some(Ok(_))),
            "n{host}: {:?}",
            world.end_of(host)
        );
    }
    assert!(world.now.since(begin) < Duration::from_secs(2));
}

#[test]
fn a_host_of_the_same_name_is_refused() {
    let mut world = World::new(2);
    let refused = world.join(HostId(2), "n1").expect_err("the name is taken");
    assert!(refused.contains("n1"), "{refused}");
}

#[test]
fn unknown_hosts_are_not_deleted() {
    let mut world = World::new(1);
    let conn = world.conn();
    match world.console(1, conn, &Request::Delete("n7".to_owned())) {
        Answer::Failed(failed) => assert_eq!(failed.kind, FailKind::NoSuchHost),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_host_may_be_named_by_its_number() {
    let mut world = World::new(3);
    let master = world.master(1, "master");
    let h3 = || "h3".to_owned();
    let worker = world
        .spawn(master, "worker", 1, Place::Host("h2".to_owned()))
        .tids[0];
    assert_eq!(worker.host(), HostId(2));
    let conn = world.conn();
    let there = Request::Move(worker, Some(h3()), world.way);
    match world.console(1, conn, &there) {
        Answer::Moved(report) => assert_eq!(report.to, HostId(3)),
        other => panic!("{other:?}"),
    }
    match world.console(1, conn, &Request::Drain(h3(), DrainWay::default())) {
        Answer::Drained(report) => assert_eq!((report.host, report.moved_count), (HostId(3), 1)),
        other => panic!("{other:?}"),
    }
    let undone = world.console(1, conn, &Request::Undrain(h3()));
    assert_eq!(undone, Answer::Done);
    assert_eq!(states(&mut world, 1)[2], HostState::Live);
    let deleted = world.console(1, conn, &Request::Delete(h3()));
    assert_eq!(deleted, Answer::Done);
    assert_eq!(states(&mut world, 1)[2], HostState::Gone);
}

#[test]
fn a_minority_ends_its_tasks_and_itself() {
    let mut world = World::new(3);
    let lonely = world.master(3, "master");
    world.cut(1, 3, true);
    world.cut(2, 3, true);
    world.run_until("the end of the daemon", |world| world.end_of(3).is_some());
    assert!(matches!(world.end_of(3), Some(Err(_))));
    assert!(!world.is_alive(lonely));
    world.run_for(Duration::from_secs(2));
    assert_eq!(states(&mut world, 1)[2], HostState::Dead);
}

#[test]
fn a_host_has_arrived_once_it_has_links_to_the_others() {
    let mut world = World::new(2);
    world.link_time = Some(limits::LINK_TIME);
    assert_eq!(world.join(HostId(1), "n3"), Ok(HostId(3)));
    let arrived = "h3 has arrived".to_owned();
    world.run_until("the arrival", |world| world.noted.contains(&arrived));
    for other in [1, 2] {
        let routes = world.daemon(3).linked();
        assert!(routes.contains(&HostId(other)), "{routes:?}");
    }
}

#[test]
fn a_host_without_a_link_to_another_one_learns_which() {
    let mut world = World::new(2);
    world.link_time = Some(limits::LINK_TIME);
    world.cut(2, 3, true);
    assert_eq!(world.join(HostId(1), "n3"), Ok(HostId(3)));
    world.run_for(limits::LINK_TIME - Duration::from_millis(100));
    let told = |world: &World| {
        let about = |note: &&String| note.starts_with("h3 ");
        world
            .noted
            .iter()
            .filter(about)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert!(told(&world).is_empty(), "{:?}", told(&world));
    world.run_for(Duration::from_millis(200));
    assert_eq!(told(&world), ["h3 is not linked to [h2]"]);
}

#[test]
fn a_lost_host_does_not_keep_another_one_from_joining() {
    let mut world = World::new(3);
    world.link_time = Some(limits::LINK_TIME);
    world.crash(3);
    assert_eq!(world.join(HostId(1), "n4"), Ok(HostId(4)));
    let arrived = "h4 has arrived".to_owned();
    world.run_until("the arrival", |world| world.noted.contains(&arrived));
}

#[test]
fn a_host_is_reached_at_the_address_that_was_agreed_last() {
    let mut world = World::new(3);
    world.input(HostId(2), Input::Address("10.9.9.9:7".to_owned()));
    let at = "h2 is at 10.9.9.9:7".to_owned();
    world.run_until("the address", |world| world.noted.contains(&at));
    world.run_for(Duration::from_secs(1));
    for host in 1..=3 {
        let state = world.daemon(host).agreement().state();
        let addr = &state.host(HostId(2)).expect("a host").facts.addr;
        assert_eq!(addr, "10.9.9.9:7");
    }
}

#[test]
fn two_hosts_that_cannot_reach_each_other_are_named_everywhere_until_they_can() {
    let mut world = World::new(4);
    let (conn, master) = crate::consoles::run(&mut world);
    let sender = world.spawn(master, "worker", 1, on(2)).tids[0];
    let worker = world.spawn(master, "worker", 1, on(3)).tids[0];
    let down = |world: &mut World, host| {
        let conn = world.conn();
        match world.console(host, conn, &Request::Conf) {
            Answer::Conf(conf) => conf.links_down,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(down(&mut world, 1), []);
    world.cut(2, 3, true);
    world.send(sender, worker, "it waits");
    world.run_for(limits::LINK_DOWN / 2);
    assert_eq!(down(&mut world, 1), []);
    world.run_for(limits::LINK_DOWN);
    for host in 1..=4 {
        assert_eq!(down(&mut world, host), [(HostId(2), HostId(3))]);
    }
    let said = |world: &World, what: &str| {
        let frames = world.consoles[&conn].iter();
        let texts = frames.map(|frame| String::from_utf8_lossy(&frame.body).into_owned());
        texts.filter(|text| text.contains(what)).count()
    };
    let text = "hosts 'n2' and 'n3' cannot reach each other";
    assert_eq!(said(&world, text), 1);
    // No order to start a task goes to a host without a link.
    let mut start = |place| {
        let request = Request::Spawn(spawn("late", 1, place));
        let conn = world.conn();
        world.console(2, conn, &request)
    };
    match start(on(3)) {
        Answer::Failed(failed) => assert!(failed.text.contains("'n2' cannot reach"), "{failed}"),
        other => panic!("{other:?}"),
    }
    for _ in 0..4 {
        match start(Place::Any) {
            Answer::Started(_) => {}
            other => panic!("{other:?}"),
        }
    }
    // No move goes there, and no request for a move.
    let request = world.request_move(1, sender, 3);
    let failed = world.moved(request).expect_err("no link");
    assert!(
        failed.text.contains("'n2' cannot reach host 'n3'"),
        "{failed}"
    );
    let other = world.master(2, "other");
    let request = world.request_move(3, other, 4);
    let failed = world.moved(request).expect_err("no link");
    assert!(
        failed.text.contains("'n3' cannot reach host 'n2'"),
        "{failed}"
    );
    // A host that joins later knows it, too.
    world.join(HostId::FOUNDER, "n5").expect("let in");
    world.run_for(Duration::from_secs(1));
    assert_eq!(down(&mut world, 5), [(HostId(2), HostId(3))]);
    world.heal(2, 3);
    world.run_for(Duration::from_secs(3));
    for host in 1..=5 {
        assert_eq!(down(&mut world, host), []);
    }
    assert_eq!(said(&world, "reach each other again"), 1);
    assert_eq!(said(&world, text), 1);
    assert_eq!(world.received(worker), [(sender, "it waits".to_owned())]);
}

#[test]
fn the_loss_of_a_host_is_not_reported_as_a_link_that_is_down() {
    let mut world = World::new(4);
    let master = world.master(4, "master");
    world.spawn(master, "worker", 1, on(2));
    world.crash(2);
    world.run_for(2 * limits::LINK_DOWN);
    let conn = world.conn();
    match world.console(4, conn, &Request::Conf) {
        Answer::Conf(conf) => assert_eq!(conf.links_down, []),
        other => panic!("{other:?}"),
    }
    let noted = world
        .noted
        .iter()
        .filter(|note| note.contains("cannot reach"));
    assert_eq!(noted.count(), 0);
}
