//! Requests of tasks for moves of others and of themselves: the one reply reaches the requester on
//! any host.

use crate::{
    checkpoints::setting_in,
    world::{Carry, Then, World, on},
};
use std::time::Duration;
use vm_wire::{
    HostId, Message, Op, Tid,
    peer::MoveWay,
    task::{
        CheckTask, Checked, DrainHost, Drained, FailKind, Failed, GroupAsk, GroupChange, GroupView,
        MoveTask, Moved,
    },
};

/// A master on n4 and that many workers on n2; n1 leads, n3 is free.
fn setting(workers: u32) -> (World, Tid, Vec<Tid>) {
    let mut world = World::new(4);
    let master = world.master(4, "master");
    let workers = world.spawn(master, "worker", workers, on(2)).tids;
    (world, master, workers)
}

fn to(tid: Tid, host: u16) -> MoveTask {
    MoveTask {
        tid,
        to: Some(format!("n{host}")),
        way: MoveWay::default(),
    }
}

/// The reply to a request after all work has ended: the same one frame, however often it came.
fn answer<A: Message + PartialEq + std::fmt::Debug>(
    world: &mut World,
    tid: Tid,
    number: u64,
) -> Result<A, Failed> {
    world.run_until("an answer", |world| !world.answers(tid, number).is_empty());
    world.run_for(Duration::from_secs(4));
    let answers = world.answers(tid, number);
    assert!(answers.iter().all(|frame| frame.body == answers[0].body));
    let frame = &answers[0];
    match frame.header.op {
        Op::Failed => Err(Failed::read(frame).expect("a failure")),
        _ => Ok(A::read(frame).expect("a good answer")),
    }
}

fn ends(report: &Moved) -> (HostId, HostId) {
    (report.report.from, report.report.to)
}

#[test]
fn a_task_moves_another() {
    let (mut world, master, workers) = setting(1);
    let moved: Moved = world.ask(master, &to(workers[0], 3)).expect("it moves");
    assert_eq!(ends(&moved), (HostId(2), HostId(3)));
    let tid = workers[0];
    let checked: Checked = world.ask(master, &CheckTask { tid }).expect("checked");
    assert!(checked.reasons.is_empty(), "{checked:?}");
    let failed = world.ask::<Moved>(master, &to(tid, 3)).expect_err("there");
    assert!(failed.text.contains("already"), "{failed}");
}

#[test]
fn the_reply_to_a_task_that_moves_itself_reaches_it_at_the_target() {
    let (mut world, _, workers) = setting(1);
    let number = world.request(workers[0], &to(workers[0], 3));
    let moved: Moved = answer(&mut world, workers[0], number).expect("it moves");
    assert_eq!(ends(&moved), (HostId(2), HostId(3)));
    assert_eq!(world.processes[&workers[0]].host, HostId(3));
    // A repeated request is answered again, and moves nothing.
    world.request_again(workers[0], &to(workers[0], 3), number);
    let again: Moved = answer(&mut world, workers[0], number).expect("the same");
    assert_eq!(again, moved);
    assert_eq!(world.daemon(3).counters().moves.went, 0);
}

#[test]
fn a_request_that_is_repeated_before_its_reply_is_not_carried_out_again() {
    let (mut world, _, workers) = setting(2);
    let (requester, other) = (workers[0], workers[1]);
    // The other task is frozen. Meanwhile the requester moves, and repeats its request.
    world.carry = Carry::Held;
    let any = MoveTask {
        tid: other,
        to: None,
        way: MoveWay::default(),
    };
    let number = world.request(requester, &any);
    world.run_until("it stands", |world| world.processes[&other].frozen);
    world.carry = Carry::Whole;
    let request = world.request_move(4, requester, 3);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    world.request_again(requester, &any, number);
    world.run_for(Duration::from_secs(2));
    assert!(world.answers(requester, number).is_empty());
    world.arrive(other);
    let moved: Moved = answer(&mut world, requester, number).expect("it moves");
    assert_eq!(moved.report.from, HostId(2));
    let went = |host| world.daemon(host).counters().moves.went;
    assert_eq!([1, 2, 3, 4].map(went).iter().sum::<u64>(), 2);
}

#[test]
fn two_tasks_move_each_other_at_the_same_time() {
    let (mut world, _, workers) = setting(2);
    let (a, b) = (workers[0], workers[1]);
    let numbers = [world.request(a, &to(b, 3)), world.request(b, &to(a, 4))];
    let first: Moved = answer(&mut world, a, numbers[0]).expect("it moves");
    let second: Moved = answer(&mut world, b, numbers[1]).expect("it moves");
    assert_eq!(ends(&first), (HostId(2), HostId(3)));
    assert_eq!(ends(&second), (HostId(2), HostId(4)));
}

#[test]
fn a_task_that_drains_its_own_host_gets_a_report_that_names_itself_too() {
    let (mut world, _, workers) = setting(6);
    let host = "n2".to_owned();
    let number = world.request(workers[0], &DrainHost { host });
    let Drained { report } = answer(&mut world, workers[0], number).expect("all leave");
    assert_eq!((report.moved_count, report.refused_count), (6, 0));
    let named: Vec<Tid> = report.moved.iter().map(|(tid, _)| *tid).collect();
    assert_eq!(named, workers);
    let host = "n4".to_owned();
    let failed = world.ask::<Drained>(
        workers[0],
        &DrainHost {
            host: "n9".to_owned(),
        },
    );
    assert_eq!(failed.expect_err("no host").kind, FailKind::NoSuchHost);
    assert!(
        world
            .ask::<Drained>(workers[0], &DrainHost { host })
            .is_ok()
    );
}

#[test]
fn a_request_is_carried_out_anew_if_the_daemon_with_its_reply_dies() {
    let (mut world, _, workers) = setting(1);
    let worker = workers[0];
    world.released = Some(Then::SourceCrashes);
    let number = world.request(worker, &to(worker, 3));
    world.run_until("it runs on n3", |world| {
        let process = &world.processes[&worker];
        process.host == HostId(3) && !process.frozen
    });
    world.released = None;
    world.run_for(Duration::from_secs(5));
    assert!(world.answers(worker, number).is_empty());
    world.request_again(worker, &to(worker, 3), number);
    // The task is at the target already. The reply says so, and is the only one.
    let failed = answer::<Moved>(&mut world, worker, number).expect_err("it is there");
    assert!(failed.text.contains("already"), "{failed}");
}

#[test]
fn a_late_reply_to_an_earlier_generation_does_not_reach_the_next_generation() {
    let (mut world, master, workers) = setting_in(World::new(4));
    let requester = workers[0];
    let other = world.master(1, "other");
    world.save(master);
    world.carry = Carry::Held;
    let number = world.request(requester, &to(other, 4));
    world.run_until("it stands", |world| world.processes[&other].frozen);
    // The requester's application rolls back to before the request, and uses its number again.
    world.carry = Carry::Whole;
    world.crash(3);
    world.until_back(master, 2);
    world.run_for(Duration::from_secs(1));
    assert!(world.processes[&other].frozen, "its image is on its way");
    assert_eq!(
        world.processes[&requester].host,
        HostId(2),
        "where it asked"
    );
    let group = "g".to_owned();
    let ask = GroupAsk {
        group: group.clone(),
        version: 1,
    };
    world.request_again(requester, &ask, number);
    world.arrive(other);
    world.run_until("it has moved", |world| {
        let process = &world.processes[&other];
        process.host == HostId(4) && !process.frozen
    });
    world.run_for(Duration::from_secs(2));
    assert!(world.answers(requester, number).is_empty());
    let join = GroupChange { group, join: true };
    world.ask::<GroupView>(master, &join).expect("it joins");
    let view: GroupView = answer(&mut world, requester, number).expect("what it asked for");
    assert_eq!(view.members, [(0, master)]);
}
