//! Drains: all tasks of a host move away, several at a time, each to a host with room. The report
//! names the tasks that cannot leave.

use crate::{
    moves::counters,
    world::{Carry, World, on, spawn},
};
use std::{collections::BTreeSet, time::Duration};
use vm_machine::{ConnId, HostPhase, Input};
use vm_wire::{
    HostId, Tid,
    console::{Answer, HostState, Request},
    limits,
    peer::{DrainReport, DrainWay, MoveWay},
    task::{FailKind, GroupChange, GroupView, Place, Spawned},
};

/// A master on n4, and that many workers on n2; n3 is free. The leader's host n1 has no task.
fn setting(workers: u32) -> (World, Tid, Vec<Tid>) {
    let mut world = World::new(4);
    let master = world.master(4, "master");
    let workers = world.spawn(master, "worker", workers, on(2)).tids;
    (world, master, workers)
}

pub fn request(world: &mut World, asked: u16, host: u16) -> (ConnId, u64) {
    let conn = world.conn();
    let request = Request::Drain(format!("n{host}"), DrainWay::default());
    (conn, world.console_request(asked, conn, &request))
}

fn answer(world: &mut World, (conn, number): (ConnId, u64)) -> Answer {
    world.run_until("the end of the drain", |world| {
        world.console_answer(conn, number).is_some()
    });
    world.console_answer(conn, number).expect("waited for")
}

pub fn drained(world: &mut World, request: (ConnId, u64)) -> DrainReport {
    match answer(world, request) {
        Answer::Drained(report) => report,
        other => panic!("{other:?}"),
    }
}

fn undrain(world: &mut World, asked: u16, host: u16) -> Answer {
    let conn = world.conn();
    world.console(asked, conn, &Request::Undrain(format!("n{host}")))
}

fn refusal(answer: Answer) -> (FailKind, String) {
    match answer {
        Answer::Failed(failed) => (failed.kind, failed.text),
        other => panic!("{other:?}"),
    }
}

fn phase(world: &World, host: u16) -> HostPhase {
    let state = world.daemon(1).agreement().state();
    state.host(HostId(host)).expect("it is remembered").phase
}

fn tasks_on(world: &World, host: u16) -> Vec<Tid> {
    let state = world.daemon(1).agreement().state();
    state.tasks_on(HostId(host)).collect()
}

#[test]
fn all_tasks_leave_a_draining_host_and_none_is_placed_there() {
    let (mut world, master, workers) = setting(6);
    let asked = request(&mut world, 4, 2);
    let report = drained(&mut world, asked);
    assert_eq!((report.moved_count, report.refused_count), (6, 0));
    let named: Vec<Tid> = report.moved.iter().map(|(tid, _)| *tid).collect();
    assert_eq!(named, workers);
    // Spread by load: no task goes to the host of the master.
    let hosts: BTreeSet<HostId> = report.moved.iter().map(|(_, moved)| moved.to).collect();
    assert_eq!(hosts, [1, 3, 4].map(HostId).into());
    assert!(tasks_on(&world, 2).is_empty());
    assert_eq!(phase(&world, 2), HostPhase::Draining);
    let conn = world.conn();
    let Answer::Conf(conf) = world.console(1, conn, &Request::Conf) else {
        panic!("conf has no such answer");
    };
    assert_eq!(conf.hosts[1].state, HostState::Draining);

    // No spawn and no move goes to the host.
    let spawned = world.spawn(master, "worker", 3, Place::Any);
    assert!(spawned.tids.iter().all(|tid| tid.host() != HostId(2)));
    let back = world.request_move(1, workers[0], 2);
    let failed = world.moved(back).expect_err("it drains");
    assert!(failed.text.contains("draining"), "{failed}");

    // A second request has the same result. The host leaves without tasks to end.
    let again = request(&mut world, 1, 2);
    assert_eq!(drained(&mut world, again), report);
    world.input(HostId(2), Input::Stop);
    world.run_for(Duration::from_secs(5));
    assert_eq!(phase(&world, 2), HostPhase::Gone);
    for tid in workers {
        assert!(world.processes[&tid].signals.is_empty());
    }
}

#[test]
fn a_drain_moves_only_so_many_tasks_at_a_time() {
    let (mut world, _, workers) = setting(6);
    world.carry = Carry::Held;
    let asked = request(&mut world, 4, 2);
    for _ in &workers {
        let stand = |world: &World| {
            let frozen = workers.iter().filter(|tid| world.processes[*tid].frozen);
            frozen.copied().collect::<Vec<_>>()
        };
        let most = limits::DRAIN_MOVES.min(tasks_on(&world, 2).len());
        world.run_until("as many as may", |world| stand(world).len() == most);
        let first = stand(&world)[0];
        world.arrive(first);
        world.run_until("one to go", |world| !world.processes[&first].frozen);
    }
    assert_eq!(drained(&mut world, asked).moved_count, 6);
}

#[test]
fn a_task_that_cannot_be_saved_stays_and_the_others_leave() {
    let (mut world, _, workers) = setting(3);
    world.unsavable.insert(workers[1], u32::MAX);
    let asked = request(&mut world, 4, 2);
    let report = drained(&mut world, asked);
    assert_eq!((report.moved_count, report.refused_count), (2, 1));
    assert_eq!(report.refused[0].0, workers[1]);
    let why = &report.refused[0].1.text;
    assert!(why.contains("no process here can be saved"), "{why}");
    assert_eq!(tasks_on(&world, 2), [workers[1]]);
    // The number of attempts has a limit.
    let tries = u32::MAX - world.unsavable[&workers[1]];
    assert_eq!(tries as usize, limits::DRAIN_TRIES);

    // Once the task can be saved it leaves, and the report has all three tasks.
    world.unsavable.clear();
    let again = request(&mut world, 1, 2);
    let report = drained(&mut world, again);
    assert_eq!((report.moved_count, report.refused_count), (3, 0));
}

#[test]
fn a_task_whose_move_failed_is_tried_at_another_host() {
    let (mut world, _, workers) = setting(1);
    world.unsavable.insert(workers[0], 1);
    world.carry = Carry::Held;
    let asked = request(&mut world, 4, 2);
    world.run_until("an image", |world| world.processes[&workers[0]].frozen);
    // The task runs on, and the next attempt begins in the same step.
    world.carry = Carry::Whole;
    world.lose_image(workers[0]);
    let report = drained(&mut world, asked);
    assert_eq!((report.moved_count, report.refused_count), (1, 0));
    let counted = counters(&world, 2);
    assert_eq!((counted.saves_refused, counted.images_lost), (1, 1));
    // n1 and n3 have no task. The third attempt goes to the host of the master.
    assert_eq!(report.moved[0].1.to, HostId(4));
}

#[test]
fn a_drain_without_a_target_leaves_the_tasks_running() {
    let mut alone = World::new(1);
    let task = alone.master(1, "master");
    let asked = request(&mut alone, 1, 1);
    let (kind, text) = refusal(answer(&mut alone, asked));
    assert_eq!(kind, FailKind::Refused);
    assert!(text.contains("run on where they are"), "{text}");
    assert_eq!(phase(&alone, 1), HostPhase::Living);
    assert!(!alone.processes[&task].frozen);

    // Of two hosts that are to drain at the same time, one does not.
    let mut world = World::new(2);
    let master = world.master(2, "master");
    let asked = [request(&mut world, 1, 1), request(&mut world, 1, 2)];
    let answers = asked.map(|asked| answer(&mut world, asked));
    let done = |answer: &&Answer| matches!(answer, Answer::Drained(_));
    assert_eq!(answers.iter().filter(done).count(), 1, "{answers:?}");
    let state = world.daemon(1).agreement().state();
    let host = state.living_task(master).expect("it runs on").host;
    assert!(state.is_living(host));
}

#[test]
fn after_the_end_of_a_drain_the_host_takes_tasks_again() {
    let (mut world, master, workers) = setting(6);
    world.carry = Carry::Held;
    let asked = request(&mut world, 4, 2);
    let stands = |world: &World, tid: &Tid| world.processes[tid].frozen;
    world.run_until("some stand", |world| {
        workers.iter().filter(|tid| stands(world, tid)).count() == limits::DRAIN_MOVES
    });
    assert_eq!(undrain(&mut world, 1, 2), Answer::Done);
    let (_, text) = refusal(answer(&mut world, asked));
    assert!(text.contains("undone"), "{text}");
    assert_eq!(phase(&world, 2), HostPhase::Living);
    // Frozen tasks go to their targets, the other tasks stay.
    for tid in workers
        .iter()
        .filter(|tid| stands(&world, tid))
        .copied()
        .collect::<Vec<_>>()
    {
        world.arrive(tid);
    }
    world.run_for(Duration::from_secs(4));
    assert_eq!(tasks_on(&world, 2), &workers[limits::DRAIN_MOVES..]);
    world.carry = Carry::Whole;
    assert_eq!(world.spawn(master, "worker", 1, on(2)).tids.len(), 1);
    let (_, text) = refusal(undrain(&mut world, 1, 2));
    assert!(text.contains("not draining"), "{text}");
}

#[test]
fn lead_and_vote_of_a_draining_host_go_to_others_if_there_are_enough() {
    let mut world = World::new(4);
    let voters = |world: &World| world.daemon(4).agreement().voters();
    assert_eq!(voters(&world), [1, 2, 3].map(HostId));
    let asked = request(&mut world, 2, 1);
    drained(&mut world, asked);
    world.run_for(Duration::from_secs(3));
    assert_eq!(voters(&world), [2, 3, 4].map(HostId));
    assert_ne!(world.daemon(4).agreement().leader(), HostId(1));
    // With three hosts each one is needed as a voter, but another host leads.
    let mut world = World::new(3);
    let asked = request(&mut world, 2, 1);
    drained(&mut world, asked);
    world.run_for(Duration::from_secs(3));
    let agreement = world.daemon(2).agreement();
    assert_eq!(agreement.voters(), [1, 2, 3].map(HostId));
    assert_ne!(agreement.leader(), HostId(1));
}

#[test]
fn a_drain_waits_for_a_task_that_starts_and_names_one_that_never_does() {
    let (mut world, master, workers) = setting(1);
    let born = world.ask::<Spawned>(master, &spawn("silent", 1, on(2)));
    let silent = born.expect("it is started").tids[0];
    let asked = request(&mut world, 4, 2);
    let report = drained(&mut world, asked);
    assert_eq!(report.moved[0].0, workers[0]);
    assert_eq!(report.refused[0].0, silent);
    let why = &report.refused[0].1.text;
    assert!(why.contains("vmlib::init"), "{why}");
    assert!(report.total_us >= limits::DRAIN_PATIENCE.as_micros() as u64);
}

#[test]
fn a_task_that_cannot_leave_for_a_reason_that_passes_is_tried_again_and_the_others_do_not_wait() {
    let (mut world, _, workers) = setting(2);
    world.busy.insert(workers[0], 5);
    let asked = request(&mut world, 4, 2);
    let report = drained(&mut world, asked);
    assert_eq!((report.moved_count, report.refused_count), (2, 0));
    assert_eq!(world.busy[&workers[0]], 0);
    let (mut world, _, workers) = setting(2);
    world.busy.insert(workers[0], u32::MAX);
    let asked = request(&mut world, 4, 2);
    let report = drained(&mut world, asked);
    assert_eq!((report.moved_count, report.refused_count), (1, 1));
    let why = &report.refused[0].1.text;
    assert!(why.contains("child process"), "{why}");
    let tries = u32::MAX - world.busy[&workers[0]];
    assert!((5..50).contains(&tries), "{tries}");
}

#[test]
fn a_daemon_that_is_to_end_tries_to_drain_until_its_time_is_over() {
    for passes in [true, false] {
        let mut world = World::new(1);
        world.drain_at_stop = Some(Duration::from_secs(40));
        world.join(HostId::FOUNDER, "n2").expect("let in");
        world.run_for(Duration::from_secs(2));
        let master = world.master(1, "master");
        let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
        world.busy.insert(worker, u32::MAX);
        world.input(HostId(2), Input::Stop);
        world.run_for(Duration::from_secs(30));
        assert!(world.is_up(HostId(2)));
        if passes {
            world.busy.clear();
        }
        world.run_for(Duration::from_secs(15));
        assert!(!world.is_up(HostId(2)));
        let state = world.daemon(1).agreement().state();
        assert_eq!(state.living_task(worker).is_some(), passes);
    }
}

#[test]
fn the_loss_of_a_draining_host_ends_the_request_with_a_reply() {
    let (mut world, _, _) = setting(2);
    world.carry = Carry::Held;
    let asked = request(&mut world, 4, 2);
    world.run_for(Duration::from_millis(100));
    world.crash(2);
    let (kind, _) = refusal(answer(&mut world, asked));
    assert_eq!(kind, FailKind::HostLost);
}

#[test]
fn a_daemon_that_is_to_end_drains_first_within_its_time() {
    for (carry, savable) in [(Carry::Whole, true), (Carry::Held, false)] {
        let mut world = World::new(1);
        world.drain_at_stop = Some(Duration::from_secs(4));
        world.join(HostId::FOUNDER, "n2").expect("let in");
        world.join(HostId::FOUNDER, "n3").expect("let in");
        world.run_for(Duration::from_secs(2));
        let master = world.master(1, "master");
        let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
        world.carry = carry;
        world.input(HostId(2), Input::Stop);
        world.run_for(Duration::from_secs(3));
        let state = world.daemon(1).agreement().state();
        assert!(state.living_task(worker).is_some());
        let here = state.living_task(worker).expect("it lives").host;
        assert_eq!(here == HostId(2), !savable);
        assert_eq!(world.is_up(HostId(2)), !savable);
        world.run_for(Duration::from_secs(5));
        assert!(!world.is_up(HostId(2)));
        assert_eq!(phase(&world, 2), HostPhase::Gone);
        let state = world.daemon(1).agreement().state();
        assert_eq!(state.living_task(worker).is_some(), savable);
        let told = "the time for the drain is over (--grace): 1 task has not left and ends now";
        let tells = world.noted.iter().filter(|note| *note == told).count();
        assert_eq!(tells, usize::from(!savable), "{:?}", world.noted);
    }
}

#[test]
fn a_second_stop_ends_the_daemon_at_once() {
    let mut world = World::new(1);
    world.drain_at_stop = Some(Duration::from_secs(100));
    world.join(HostId::FOUNDER, "n2").expect("let in");
    world.run_for(Duration::from_secs(2));
    let master = world.master(1, "master");
    world.spawn(master, "worker", 1, on(2));
    world.carry = Carry::Held;
    world.input(HostId(2), Input::Stop);
    world.run_for(Duration::from_secs(1));
    assert!(world.is_up(HostId(2)));
    world.input(HostId(2), Input::Stop);
    world.run_for(Duration::from_millis(1));
    assert!(!world.is_up(HostId(2)));
}

#[test]
fn a_check_gives_the_reasons_that_a_move_would_give() {
    let (mut world, _, workers) = setting(1);
    let check = |world: &mut World| {
        let conn = world.conn();
        match world.console(4, conn, &Request::Check(workers[0])) {
            Answer::Check(reasons) => reasons,
            other => panic!("{other:?}"),
        }
    };
    let anywhere = |world: &mut World| {
        let conn = world.conn();
        refusal(world.console(
            4,
            conn,
            &Request::Move(workers[0], None, MoveWay::default()),
        ))
        .1
    };
    assert!(check(&mut world).is_empty());
    for host in [1, 3, 4] {
        let asked = request(&mut world, 1, host);
        drained(&mut world, asked);
    }
    // All tasks of the draining hosts went to n2, and no other host takes tasks.
    assert_eq!(check(&mut world), [anywhere(&mut world)]);
    assert!(check(&mut world)[0].contains("no other host that takes tasks"));
}

#[test]
fn a_drain_requested_at_a_host_far_behind_reports_that_it_was_ended_meanwhile() {
    let mut world = World::with_log(4, 16);
    let master = world.master(1, "master");
    world.behind = Some(HostId(4));
    let asked = request(&mut world, 4, 4);
    world.run_until("it drains", |world| phase(world, 4) == HostPhase::Draining);
    assert_eq!(undrain(&mut world, 1, 4), Answer::Done);
    for join in [true, false].repeat(10) {
        let group = "g".to_owned();
        let change = GroupChange { group, join };
        world.ask::<GroupView>(master, &change).expect("it may");
    }
    assert_eq!(world.console_answer(asked.0, asked.1), None);
    world.behind = None;
    let (kind, text) = refusal(answer(&mut world, asked));
    assert_eq!(kind, FailKind::Refused);
    assert!(text.contains("was undone"), "{text}");
}

#[test]
fn no_checkpoint_is_made_before_a_drain_that_is_proposed() {
    let (mut world, _, workers) = setting(1);
    // The log of the host to drain does not apply its proposal yet.
    world.behind = Some(HostId(2));
    let first = request(&mut world, 1, 2);
    world.run_for(Duration::from_millis(50));
    let save = DrainWay {
        checkpoint: true,
        ..DrainWay::default()
    };
    let conn = world.conn();
    let number = world.console_request(1, conn, &Request::Drain("n2".to_owned(), save));
    let Answer::Failed(failed) = answer(&mut world, (conn, number)) else {
        panic!("it is refused");
    };
    assert!(failed.text.contains("has begun"), "{failed}");
    world.behind = None;
    let report = drained(&mut world, first);
    assert_eq!((report.saved_count, report.moved_count), (0, 1));
    assert_eq!(report.moved[0].0, workers[0]);
}
