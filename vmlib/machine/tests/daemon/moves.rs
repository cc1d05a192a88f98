//! Moves of tasks between hosts, and moves that fail or are cancelled, in each phase. The messages,
//! requests and watches of a task move with it.

use crate::world::{Carry, Then, Told, World, on};
use std::time::Duration;
use vm_machine::{Input, MoveCounters, MoveInput, ProcessInput};
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    console::{Answer, MoveRow, Request},
    interrupt::Folders,
    limits,
    peer::{MovePhase, Order, Sent},
    task::{Exit, FailKind, Failed, Watched},
};

/// A master on n4, a worker on n2; n3 is free. The leader's host n1 has no task.
pub fn setting() -> (World, Tid, Tid) {
    let mut world = World::new(4);
    let master = world.master(4, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    (world, master, worker)
}

/// The worker is frozen, and its image is written and on its way to n3.
pub fn held() -> (World, Tid, Tid, (vm_machine::ConnId, u64)) {
    let (mut world, master, worker) = setting();
    world.carry = Carry::Held;
    let request = world.request_move(4, worker, 3);
    world.run_until("the image", |world| world.processes[&worker].frozen);
    (world, master, worker, request)
}

pub fn host_of(world: &World, tid: Tid) -> Option<HostId> {
    let state = world.daemon(1).agreement().state();
    state.living_task(tid).map(|task| task.host)
}

pub fn counters(world: &World, host: u16) -> MoveCounters {
    world.daemon(host).counters().moves
}

/// Checks that nothing is left over, that the worker runs on that host, and that messages between
/// the two tasks arrive.
pub fn check(world: &mut World, master: Tid, worker: Tid, host: u16) {
    world.run_for(Duration::from_secs(4));
    assert_eq!(host_of(world, worker), Some(HostId(host)));
    let process = &world.processes[&worker];
    assert_eq!((process.host, process.frozen), (HostId(host), false));
    assert!(world.standing.is_empty());
    for number in (1..=4).filter(|number| world.is_up(HostId(*number))) {
        let underway = world.daemon(number).moves_underway();
        assert!(underway.is_empty(), "n{number}: {underway:?}");
    }
    world.received(master);
    world.received(worker);
    world.send(master, worker, "ping");
    world.send(worker, master, "pong");
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.received(worker), [(master, "ping".to_owned())]);
    assert_eq!(world.received(master), [(worker, "pong".to_owned())]);
}

#[test]
fn a_moved_task_continues() {
    let (mut world, master, worker) = setting();
    let request = world.request_move(4, worker, 3);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    check(&mut world, master, worker, 3);
    assert_eq!((counters(&world, 2).went, counters(&world, 3).came), (1, 1));
    let noted = |what: &str| world.noted.iter().any(|note| note.contains(what));
    assert!(noted("has moved to 'n3'") && noted("has come from 'n2'"));
    let back = world.request_move(1, worker, 2);
    assert_eq!(world.moved(back), Ok((HostId(3), HostId(2))));
    check(&mut world, master, worker, 2);
}

#[test]
fn without_pre_copy_a_task_is_frozen_from_the_first_byte_on() {
    let (mut world, master, worker) = setting();
    world.way.precopy = false;
    // The end of a pre-copy would never be reported.
    world.carry = Carry::Slow;
    let (conn, number) = world.request_move(4, worker, 3);
    world.run_until("the image", |world| world.processes[&worker].frozen);
    world.arrive(worker);
    world.run_until("the end of the move", |world| {
        world.console_answer(conn, number).is_some()
    });
    let Some(Answer::Moved(report)) = world.console_answer(conn, number) else {
        panic!("it moves");
    };
    assert_eq!((report.copied, report.rounds, report.copy_us), (0, 0, 0));
    check(&mut world, master, worker, 3);
}

#[test]
fn the_target_gets_the_working_folders_of_both_hosts() {
    let (mut world, _, worker) = setting();
    let request = world.request_move(4, worker, 3);
    world.moved(request).expect("it moves");
    let folders = Folders {
        here: "/work/n2".to_owned(),
        there: "/work/n3".to_owned(),
    };
    assert_eq!(world.folders, Some(folders));
    // That host has no working folder.
    let request = world.request_move(4, worker, 1);
    world.moved(request).expect("it moves");
    assert_eq!(world.folders, None);
}

#[test]
fn a_full_target_refuses_and_the_task_is_not_frozen() {
    let (mut world, master, worker) = setting();
    world.spawn(master, "other", 20, on(3));
    let request = world.request_move(4, worker, 3);
    assert_eq!(
        world.moved(request).expect_err("full").kind,
        FailKind::Limit
    );
    assert_eq!(counters(&world, 2).offers_refused, 1);
    check(&mut world, master, worker, 2);
}

#[test]
fn a_task_that_cannot_be_saved_runs_on() {
    let (mut world, master, worker) = setting();
    world.carry = Carry::Refused;
    let request = world.request_move(4, worker, 3);
    let failed = world.moved(request).expect_err("it cannot be saved");
    assert_eq!(failed.kind, FailKind::Refused);
    assert!(failed.text.contains("no process here"), "{failed}");
    assert_eq!(counters(&world, 2).saves_refused, 1);
    check(&mut world, master, worker, 2);
}

#[test]
fn a_task_whose_image_is_lost_runs_on_and_receives_the_messages_sent_meanwhile() {
    let (mut world, master, worker, request) = held();
    world.send(master, worker, "meanwhile");
    world.run_for(Duration::from_millis(100));
    world.lose_image(worker);
    assert_eq!(
        world.moved(request).expect_err("lost").kind,
        FailKind::System
    );
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.received(worker), [(master, "meanwhile".to_owned())]);
    assert_eq!(counters(&world, 2).images_lost, 1);
    check(&mut world, master, worker, 2);
}

/// The moves that were requested at n4.
fn rows(world: &mut World) -> Vec<MoveRow> {
    let conn = world.conn();
    let number = world.console_request(4, conn, &Request::Moves);
    world.run_until("the answer", |world| {
        world.console_answer(conn, number).is_some()
    });
    match world.console_answer(conn, number) {
        Some(Answer::Moves(rows)) => rows,
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn the_requester_of_a_move_learns_the_progress_of_the_image() {
    let (mut world, master, worker) = setting();
    world.carry = Carry::Slow;
    let request = world.request_move(4, worker, 3);
    world.run_for(Duration::from_millis(100));
    let mut row = MoveRow {
        tid: worker,
        from: "n2".to_owned(),
        to: "n3".to_owned(),
        phase: Some(MovePhase::Copying),
        sent: None,
    };
    assert_eq!(rows(&mut world), [row.clone()]);
    for bytes in [700, 900] {
        let sent = Sent {
            bytes,
            memory: 1000,
        };
        world.input(HostId(2), MoveInput::Sent(worker, sent));
        world.run_for(Duration::from_millis(100));
        row.sent = Some(sent);
        assert_eq!(rows(&mut world), [row.clone()]);
    }
    // The end of a sender before the image is written does not count as the end of the image.
    world.input(HostId(2), MoveInput::SentAll(worker));
    world.carry = Carry::Held;
    world.copied(worker);
    world.run_for(Duration::from_millis(40));
    world.input(HostId(2), MoveInput::SentAll(worker));
    world.run_for(Duration::from_millis(30));
    world.arrive(worker);
    let report = world.reported(request).expect("it moves");
    assert_eq!(report.transfer_us, 40_000, "{report:?}");
    assert!(report.restore_us >= 30_000, "{report:?}");
    let phases = [
        report.interrupt_us,
        report.save_us,
        report.transfer_us,
        report.restore_us,
        report.drain_us,
        report.commit_us,
    ];
    assert_eq!(report.freeze_us(), phases.iter().sum::<u64>());
    assert_eq!(report.sent_again, 0);
    assert!(rows(&mut world).is_empty());
    check(&mut world, master, worker, 3);
}

#[test]
fn the_output_of_a_restored_process_that_fails_is_the_reason_for_the_requester() {
    let (mut world, master, worker, request) = held();
    for bytes in ["a file is missing\n".into(), vec![b'.'; 2000]] {
        let output = Input::Process(ProcessInput::Output {
            tid: worker,
            stream: 2,
            bytes,
        });
        world.input(HostId(3), output);
    }
    world.input(
        HostId(3),
        ProcessInput::Ended(worker, ExitStatus::Code(125)),
    );
    let failed = world.moved(request).expect_err("it has ended");
    let wanted = "host 'n3' could not restore it: a file is missing; ...";
    assert!(failed.text.contains(wanted), "{failed}");
    assert!(failed.text.len() < limits::MOVE_WORDS_MAX + 150, "{failed}");
    check(&mut world, master, worker, 2);
}

#[test]
fn the_reply_to_a_withdrawn_offer_does_not_count_for_the_next_offer() {
    let (mut world, master, worker) = setting();
    world.lost = Some(|order| matches!(order, Order::MoveReady(_)));
    let request = world.request_move(4, worker, 3);
    assert!(world.moved(request).is_err());
    let again = world.request_move(4, worker, 3);
    world.run_for(Duration::from_millis(100));
    world.lost = None;
    // Both replies come now.
    world.cut(2, 3, true);
    world.heal(2, 3);
    assert_eq!(world.moved(again), Ok((HostId(2), HostId(3))));
    check(&mut world, master, worker, 3);
}

#[test]
fn a_task_whose_image_is_written_and_not_sent_runs_on() {
    let (mut world, master, worker, request) = held();
    let failed = Failed::new(FailKind::System, "the way is broken");
    world.input(HostId(2), MoveInput::Frozen(worker, Err(failed)));
    let failed = world.moved(request).expect_err("it was not sent");
    assert!(failed.text.contains("the way is broken"), "{failed}");
    assert!(failed.text.ends_with("it runs on 'n2'"), "{failed}");
    assert_eq!(counters(&world, 2).images_lost, 1);
    check(&mut world, master, worker, 2);
}

#[test]
fn a_failure_of_the_sender_after_the_image_is_whole_at_the_target_has_no_effect() {
    let (mut world, master, worker, request) = held();
    // The release waits for a reply that cannot come.
    world.cut(2, 4, true);
    world.run_for(Duration::from_millis(10));
    world.request(worker, &crate::world::spawn("child", 1, on(4)));
    world.arrive(worker);
    world.run_for(Duration::from_millis(500));
    let failed = Failed::new(FailKind::System, "it ended badly");
    world.input(HostId(2), MoveInput::Frozen(worker, Err(failed)));
    world.heal(2, 4);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    check(&mut world, master, worker, 3);
}

#[test]
fn the_reason_why_a_task_cannot_be_restored_is_reported() {
    let (mut world, master, worker, request) = held();
    let output = Input::Process(ProcessInput::Output {
        tid: worker,
        stream: 2,
        bytes: b"there is no room\n".to_vec(),
    });
    world.input(HostId(3), output);
    let status = ExitStatus::Code(124);
    world.input(HostId(3), ProcessInput::Ended(worker, status));
    let failed = world.moved(request).expect_err("it ended");
    let told = "host 'n3' could not restore it: there is no room; it runs on 'n2'";
    assert!(failed.text.ends_with(told), "{failed}");
    check(&mut world, master, worker, 2);
}

#[test]
fn a_target_out_of_reach_does_not_keep_a_task_frozen() {
    let (mut world, master, worker, request) = held();
    world.cut(2, 3, true);
    let start = world.now;
    let failed = world
        .moved(request)
        .expect_err("nobody says that it is loaded");
    let names = "host 'n2' cannot reach host 'n3'";
    assert!(failed.text.contains(names), "{failed}");
    let took = world.now.since(start);
    assert!(
        took < limits::MOVE_NO_LINK + Duration::from_secs(1),
        "{took:?}"
    );
    assert!(!world.processes[&worker].frozen);
    // Later reports of the target have no effect.
    world.arrive(worker);
    world.heal(2, 3);
    check(&mut world, master, worker, 2);
    world.carry = Carry::Whole;
    let again = world.request_move(4, worker, 3);
    assert_eq!(world.moved(again), Ok((HostId(2), HostId(3))));
    check(&mut world, master, worker, 3);
}

#[test]
fn a_link_that_breaks_and_is_made_again_does_not_fail_a_move() {
    let (mut world, master, worker, request) = held();
    for _ in 0..4 {
        world.cut(2, 3, true);
        world.run_for(limits::MOVE_NO_LINK / 2);
        world.heal(2, 3);
        world.run_for(Duration::from_secs(2));
    }
    world.arrive(worker);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    check(&mut world, master, worker, 3);
}

#[test]
fn a_move_ends_as_ever_though_its_console_is_gone() {
    let (mut world, master, worker, (conn, _)) = held();
    world.input(HostId(4), Input::ConnGone(conn));
    world.arrive(worker);
    check(&mut world, master, worker, 3);
}

#[test]
fn the_loss_of_the_target_before_its_reply_does_not_harm_the_task() {
    let (mut world, master, worker) = setting();
    world.crash(3);
    let request = world.request_move(4, worker, 3);
    let failed = world.moved(request).expect_err("the target is dead");
    assert_eq!(failed.kind, FailKind::HostLost);
    check(&mut world, master, worker, 2);
}

#[test]
fn the_loss_of_the_target_while_the_image_is_on_its_way_does_not_harm_the_task() {
    let (mut world, master, worker, request) = held();
    world.crash(3);
    let failed = world.moved(request).expect_err("the target is dead");
    assert_eq!(failed.kind, FailKind::HostLost);
    assert_eq!(counters(&world, 2).targets_lost, 1);
    check(&mut world, master, worker, 2);
}

#[test]
fn the_loss_of_the_target_after_the_release_does_not_harm_the_task() {
    let (mut world, master, worker, request) = held();
    world.lost = Some(|order| matches!(order, Order::MoveRelease(_)));
    world.arrive(worker);
    world.run_for(Duration::from_millis(100));
    assert!(world.processes[&worker].frozen);
    world.crash(3);
    assert!(world.moved(request).is_err());
    check(&mut world, master, worker, 2);
}

#[test]
fn a_task_is_lost_with_its_source_before_the_release() {
    let (mut world, master, worker, _) = held();
    world
        .watch(master, Watched::Task(worker))
        .expect("it lives");
    world.crash(2);
    world.run_until("the notify", |world| {
        !world.processes[&master].told.is_empty()
    });
    let told = Told::Ended(worker, ExitStatus::HostLost, None);
    assert_eq!(world.processes[&master].told, [told]);
    world.run_for(Duration::from_secs(1));
    assert!(world.daemon(3).moves_underway().is_empty());
    assert_eq!(counters(&world, 3).sources_lost, 1);
}

#[test]
fn the_loss_of_the_source_after_the_release_does_not_harm_the_task() {
    let (mut world, master, worker, _) = held();
    world.released = Some(Then::SourceCrashes);
    world.arrive(worker);
    world.run_until("the task to go on", |world| {
        world.processes[&worker].host == HostId(3)
    });
    assert!(!world.processes[&worker].frozen);
    // Until the source's host is declared dead.
    world.run_for(Duration::from_secs(5));
    check(&mut world, master, worker, 3);
}

#[test]
fn in_doubt_the_task_stays_and_the_targets_proposal_is_void() {
    let (mut world, master, worker, request) = held();
    // The target has the release, and no other host learns of that.
    world.cut(3, 1, true);
    world.cut(3, 4, true);
    world.released = Some(Then::LinkBreaks);
    world.run_for(Duration::from_millis(10));
    world.arrive(worker);
    world.run_until("the doubt", |world| !world.processes[&worker].frozen);
    assert_eq!(world.processes[&worker].host, HostId(2));
    assert_eq!(world.standing.len(), 1);
    world.released = None;
    for other in [1, 2, 4] {
        world.heal(3, other);
    }
    let failed = world.moved(request).expect_err("it stayed");
    assert!(failed.text.contains("runs on 'n2'"), "{failed}");
    check(&mut world, master, worker, 2);
    assert_eq!(
        (counters(&world, 2).stayed, counters(&world, 3).came),
        (1, 0)
    );
    // Its incarnation went up, so it can move again.
    world.carry = Carry::Whole;
    let again = world.request_move(4, worker, 3);
    assert_eq!(world.moved(again), Ok((HostId(2), HostId(3))));
    check(&mut world, master, worker, 3);
}

#[test]
fn a_second_request_during_a_move_is_refused() {
    let (mut world, master, worker, request) = held();
    let second = world.request_move(1, worker, 4);
    assert_eq!(
        world.moved(second).expect_err("on its way").kind,
        FailKind::Refused
    );
    world.arrive(worker);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    check(&mut world, master, worker, 3);
}

#[test]
fn a_task_can_move_on_from_a_host_whose_log_does_not_have_its_arrival_yet() {
    let (mut world, master, worker, request) = held();
    world.behind = Some(HostId(3));
    world.arrive(worker);
    // The target proposes the move, and does not hear that it was agreed.
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    world.carry = Carry::Whole;
    let back = world.request_move(4, worker, 2);
    world.run_for(Duration::from_millis(500));
    assert_eq!(host_of(&world, worker), Some(HostId(3)));
    world.behind = None;
    assert_eq!(world.moved(back), Ok((HostId(3), HostId(2))));
    check(&mut world, master, worker, 2);
}

#[test]
fn a_task_can_move_on_as_soon_as_its_move_is_reported() {
    let (mut world, master, worker, (conn, number)) = held();
    world.behind = Some(HostId(4));
    world.arrive(worker);
    world.run_for(Duration::from_secs(1));
    assert_eq!(host_of(&world, worker), Some(HostId(3)));
    // The log of the requester's host does not have the move yet.
    assert_eq!(world.console_answer(conn, number), None);
    (world.behind, world.carry) = (None, Carry::Whole);
    let request = (conn, number);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    let back = world.request_move(4, worker, 2);
    assert_eq!(world.moved(back), Ok((HostId(3), HostId(2))));
    check(&mut world, master, worker, 2);
}

#[test]
fn a_task_whose_process_ends_after_its_image_was_written_has_ended() {
    let (mut world, _, worker, request) = held();
    // The log does not have the end before the target has the image.
    world.behind = Some(HostId(2));
    world.lost = Some(|order| {
        assert!(!matches!(order, Order::MoveRelease(_)), "it is released");
        false
    });
    world.die(worker, ExitStatus::Signal(9));
    world.arrive(worker);
    world.run_for(Duration::from_millis(500));
    world.behind = None;
    let failed = world.moved(request).expect_err("it has ended");
    assert_eq!(failed.kind, FailKind::NoSuchTask);
    assert_eq!(host_of(&world, worker), None);
}

#[test]
fn a_moving_task_ends_if_its_master_failed_meanwhile() {
    let (mut world, master, worker, _) = held();
    // The source learns of the master's end only after the release.
    world.behind = Some(HostId(2));
    world.die(master, ExitStatus::Signal(9));
    world.run_for(Duration::from_millis(500));
    world.arrive(worker);
    world.run_for(Duration::from_millis(500));
    world.behind = None;
    world.run_for(Duration::from_secs(1));
    assert_eq!(host_of(&world, worker), None);
}

#[test]
fn a_move_waits_for_a_busy_task_within_a_limit() {
    let (mut world, master, worker) = setting();
    world.busy.insert(worker, 3);
    let request = world.request_move(4, worker, 3);
    assert_eq!(world.moved(request), Ok((HostId(2), HostId(3))));
    check(&mut world, master, worker, 3);
    world.busy.insert(worker, u32::MAX);
    let begin = world.now;
    let request = world.request_move(1, worker, 2);
    let failed = world.moved(request).expect_err("it does not pass");
    assert_eq!(failed.kind, FailKind::Busy);
    assert!(failed.text.contains("child process"), "{failed}");
    let took = world.now.since(begin);
    assert!(took > limits::MOVE_PATIENCE / 3 && took <= limits::MOVE_PATIENCE);
    check(&mut world, master, worker, 3);
}

#[test]
fn a_move_refused_while_its_application_ends_is_answered_with_that_end() {
    let mut world = World::new(4);
    let master = world.master(2, "master");
    world.carry = Carry::Slow;
    let request = world.request_move(4, master, 3);
    world.run_for(Duration::from_millis(100));
    // The requester's host knows of the end before the source does, and the source refuses the move
    // for a reason that passes.
    world.behind = Some(HostId(2));
    world.busy.insert(master, 1);
    let last = Vec::new();
    world.request(master, &Exit { status: 0, last });
    world.run_for(Duration::from_millis(500));
    assert_eq!(host_of(&world, master), None);
    world.copied(master);
    world.run_for(limits::busy_pause(1) / 2);
    world.behind = None;
    let begin = world.now;
    let failed = world.moved(request).expect_err("it has ended");
    assert_eq!(failed.kind, FailKind::NoSuchTask, "{failed}");
    assert!(world.now.since(begin) < limits::MOVE_PATIENCE);
}
