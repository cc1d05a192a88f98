//! Requests that wait for the end of a checkpoint: each is carried out or answered once, and only
//! in the generation in which it was made.

use crate::{
    checkpoints::{being_written, check, ended_untold, setting, setting_in},
    drain,
    world::{Carry, World, on},
};
use std::time::Duration;
use vm_machine::{ConnId, ProcessInput};
use vm_wire::{
    HostId, Message as _, Tid,
    agreed::ExitStatus,
    checkpoint::{CheckpointReport, Policy},
    console::{Answer, Request},
    limits,
    task::{FailKind, Failed, SaveApp, Saved},
};

/// A console of that host sends a request.
fn send_request(world: &mut World, host: u16, request: &Request) -> (ConnId, u64) {
    let conn = world.conn();
    (conn, world.console_request(host, conn, request))
}

/// The result of a requested checkpoint; `None`: there is none yet.
fn known(world: &World, (conn, number): (ConnId, u64)) -> Option<Result<CheckpointReport, Failed>> {
    Some(match world.console_answer(conn, number)? {
        Answer::Checkpointed(report) => Ok(report),
        Answer::Failed(failed) => Err(failed),
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_request_for_a_checkpoint_during_another_one_gets_the_next_one() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    let request = being_written(&mut world, &all);
    let number = world.request(master, &SaveApp {});
    // Longer than the time to wait for a coordinator that takes the request up.
    world.run_for(2 * limits::COORDINATOR_WAIT);
    assert!(world.answers(master, number).is_empty());
    world.store.slow = false;
    world.store_images();
    world.checkpointed(request).expect("they can be saved");
    world.run_for(Duration::from_secs(1));
    let [answer] = world.answers(master, number) else {
        panic!("more or less than one answer")
    };
    let Saved { report } = Saved::read(answer).expect("they can be saved");
    assert_eq!(report.epoch, 2);
    check(&mut world, &all);
}

#[test]
fn a_move_waits_for_the_end_of_a_checkpoint_within_a_limit() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    let saved = being_written(&mut world, &all);
    let moved = world.request_move(1, workers[0], 3);
    world.run_for(limits::CHECKPOINT_AWAITED / 2);
    world.store_images();
    world.checkpointed(saved).expect("they can be saved");
    assert_eq!(world.moved(moved), Ok((HostId(2), HostId(3))));
    let saved = being_written(&mut world, &all);
    let moved = world.request_move(1, workers[0], 2);
    let failed = world.moved(moved).expect_err("it takes too long");
    assert!(failed.text.contains("is being made; try again"), "{failed}");
    world.store_images();
    world.checkpointed(saved).expect("they can be saved");
    check(&mut world, &all);
}

#[test]
fn requests_behind_a_stop_get_its_result_and_do_nothing_in_the_next_generation() {
    let (mut world, master, workers) = setting();
    world.store.slow = true;
    let stop = Request::Checkpoint(master, true);
    let first = send_request(&mut world, 1, &stop);
    world.run_until("all are saved", |world| world.store.waiting.len() == 3);
    let same = send_request(&mut world, 2, &stop);
    let other = send_request(&mut world, 3, &Request::Suspend(master, 0));
    let plain = send_request(&mut world, 3, &Request::Checkpoint(workers[1], false));
    world.run_for(limits::COORDINATOR_WAIT + Duration::from_secs(1));
    assert!(
        [first, same, other, plain]
            .iter()
            .all(|it| known(&world, *it).is_none())
    );
    world.store_images();
    world.store.slow = false;
    world.run_for(Duration::from_secs(1));
    for request in [first, same] {
        let report = known(&world, request)
            .expect("it is told")
            .expect("it was saved");
        assert_eq!(report.epoch, 1);
    }
    for request in [other, plain] {
        let failed = known(&world, request)
            .expect("it is told")
            .expect_err("it has ended");
        assert_eq!(failed.kind, FailKind::NoSuchTask);
        assert!(failed.text.contains("somebody else has had"), "{failed}");
    }
    let restart = world.request_restart(1, master);
    world.restarted(restart).expect("it can be brought back");
    world.run_for(2 * limits::COORDINATOR_WAIT);
    assert_eq!(world.store.committed.len(), 1);
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_request_behind_a_suspension_succeeds_only_if_it_is_the_same() {
    let (mut world, master, _) = setting();
    world.store.slow = true;
    let first = send_request(&mut world, 1, &Request::Suspend(master, 0));
    world.run_until("all are saved", |world| world.store.waiting.len() == 3);
    let same = send_request(&mut world, 2, &Request::Suspend(master, 0));
    let shorter = send_request(&mut world, 3, &Request::Suspend(master, 60_000));
    world.run_for(Duration::from_secs(1));
    world.store_images();
    world.run_for(Duration::from_secs(1));
    let results = [first, same, shorter].map(|request| known(&world, request).expect("it is told"));
    assert_eq!(results.map(|result| result.is_ok()), [true, true, false]);
}

#[test]
fn a_request_to_a_coordinator_that_does_not_serve_yet_is_not_carried_out_in_the_next_generation() {
    let (mut world, master, workers) = setting();
    let saved = send_request(&mut world, 1, &Request::Checkpoint(master, false));
    world.checkpointed(saved).expect("they can be saved");
    world.no_coordinators = true;
    let serving = world.daemon(4).serving_coordinator(master);
    let (number, _) = serving.expect("it serves");
    world.input(HostId(4), ProcessInput::CoordinatorGone(number));
    let stop = send_request(&mut world, 1, &Request::Checkpoint(master, true));
    world.run_for(Duration::from_millis(100));
    for tid in [master, workers[0], workers[1]] {
        world.die(tid, ExitStatus::Code(1));
    }
    world.run_for(Duration::from_secs(1));
    let failed = known(&world, stop)
        .expect("it is told")
        .expect_err("it has ended");
    assert_eq!(failed.kind, FailKind::NoSuchTask);
    world.no_coordinators = false;
    let restart = world.request_restart(1, master);
    world.restarted(restart).expect("it can be brought back");
    world.run_for(2 * limits::COORDINATOR_WAIT);
    assert_eq!(world.store.committed.len(), 1);
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_stop_whose_result_was_lost_is_not_repeated_in_the_next_generation() {
    let stop = |app| Request::Checkpoint(app, true);
    let (mut world, master, workers, request) = ended_untold(stop);
    // Until the host counts as lost.
    world.run_for(Duration::from_secs(6));
    let restart = world.request_restart(1, master);
    world.restarted(restart).expect("it can be brought back");
    assert!(known(&world, request).is_none());
    world.run_for(2 * limits::COORDINATOR_WAIT);
    assert!(known(&world, request).expect("it is told").is_err());
    assert_eq!(world.store.committed.len(), 1);
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn an_application_whose_master_has_ended_is_stopped_and_the_stop_is_reported() {
    let (mut world, master, workers) = setting();
    world.exit(master, 0).expect("it may exit");
    world.run_for(Duration::from_secs(1));
    let stop = send_request(&mut world, 1, &Request::Checkpoint(workers[0], true));
    let report = world.checkpointed(stop).expect("the others can be saved");
    assert_eq!(report.tasks, 2);
}

#[test]
fn checkpoints_by_policy_that_take_longer_than_its_interval_leave_pauses() {
    let (mut world, master, _) = setting();
    let policy = Policy {
        every_ms: 5_000,
        ..Policy::default()
    };
    send_request(&mut world, 2, &Request::Policy(master, policy));
    world.store.slow = true;
    let (mut written, mut pauses) = (0, 0);
    for second in 0..90 {
        if second == 7 {
            send_request(&mut world, 3, &Request::Checkpoint(master, false));
        }
        match world.store.waiting.len() {
            0 => pauses += 1,
            _ => written += 1,
        }
        if written == 6 {
            written = 0;
            world.store_images();
        }
        world.run_for(Duration::from_secs(1));
    }
    let made = world.store.committed.len();
    assert!((6..=10).contains(&made) && pauses > 30, "{made} {pauses}");
}

#[test]
fn a_drain_waits_for_the_end_of_checkpoints() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    let saved = being_written(&mut world, &all);
    let asked = drain::request(&mut world, 1, 2);
    world.run_for(Duration::from_secs(3));
    assert!(world.console_answer(asked.0, asked.1).is_none());
    // More checkpoints are requested while the task is about to leave, more often than a drain
    // tries. The task is saved first, and leaves then.
    world.carry = Carry::Held;
    world.store_images();
    world.checkpointed(saved).expect("they can be saved");
    for again in (0..=limits::DRAIN_TRIES).rev() {
        let leaves = |world: &World| world.processes[&workers[0]].frozen;
        world.run_until("it to leave", leaves);
        let saved = send_request(&mut world, 3, &Request::Checkpoint(master, false));
        world.run_until("all are saved", |world| world.store.waiting.len() == 3);
        if again == 0 {
            world.carry = Carry::Whole;
            world.store.slow = false;
        }
        world.store_images();
        world.checkpointed(saved).expect("they can be saved");
    }
    let report = drain::drained(&mut world, asked);
    assert_eq!((report.moved_count, report.refused_count), (1, 0));
    check(&mut world, &all);
}

#[test]
fn a_move_that_waits_for_a_checkpoint_is_made_though_its_coordinator_is_lost() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    let saved = being_written(&mut world, &all);
    let moved = world.request_move(1, workers[0], 3);
    world.run_for(Duration::from_secs(1));
    let serving = world.daemon(4).serving_coordinator(master);
    let (number, _) = serving.expect("it serves");
    world.store.slow = false;
    world.input(HostId(4), ProcessInput::CoordinatorGone(number));
    assert_eq!(world.moved(moved), Ok((HostId(2), HostId(3))));
    world.checkpointed(saved).expect("they can be saved");
    check(&mut world, &all);
}

/// Whether a stop that was requested during a checkpoint succeeds, if the images are whole at that
/// time after the request.
fn stopped_after(written: Duration) -> bool {
    let (mut world, master, workers) = setting();
    let all: [Tid; 3] = [master, workers[0], workers[1]];
    let saved = being_written(&mut world, &all);
    let stop = send_request(&mut world, 2, &Request::Checkpoint(master, true));
    world.run_for(written);
    world.store.slow = false;
    world.store_images();
    world.checkpointed(saved).expect("they can be saved");
    world.run_for(Duration::from_secs(3));
    known(&world, stop).is_some_and(|result| result.is_ok())
}

#[test]
fn a_waiting_request_is_not_dropped_between_two_checkpoints() {
    // Time after which a waiting request is checked again.
    let looked = 2 * limits::COORDINATOR_WAIT;
    for before in 0..40 {
        let before = Duration::from_micros(250 * before);
        assert!(stopped_after(looked - before), "{before:?}");
    }
}

#[test]
fn a_move_requested_before_a_recovery_fails_though_its_host_is_behind() {
    let (mut world, master, _) = setting_in(World::new(5));
    let saved = send_request(&mut world, 1, &Request::Checkpoint(master, false));
    world.checkpointed(saved).expect("they can be saved");
    let unsaved = world.spawn(master, "worker", 1, on(2)).tids[0];
    let serving = world.daemon(4).serving_coordinator(master);
    let (number, _) = serving.expect("it serves");
    world.no_coordinators = true;
    world.input(HostId(4), ProcessInput::CoordinatorGone(number));
    let moved = world.request_move(5, unsaved, 3);
    world.run_for(Duration::from_millis(100));
    world.behind = Some(HostId(5));
    world.no_coordinators = false;
    world.crash(4);
    world.run_until("it goes on", |world| {
        world.is_enrolled(master) && world.processes[&master].host != HostId(4)
    });
    world.behind = None;
    let failed = world.moved(moved).expect_err("its life is over");
    assert_eq!(failed.kind, FailKind::NoSuchTask, "{failed}");
}

#[test]
fn a_request_for_a_policy_gets_its_reply_when_it_is_agreed_or_has_become_impossible() {
    let policy = |every_ms| Policy {
        every_ms,
        ..Policy::default()
    };
    for ends in [false, true] {
        let mut world = World::new(4);
        let master = world.master(1, "master");
        // Two requests at once, at a host that is cut off meanwhile.
        for host in [1, 3, 4] {
            world.cut(2, host, true);
        }
        let asked = [10_000, 20_000].map(|every_ms| {
            let request = Request::Policy(master, policy(every_ms));
            send_request(&mut world, 2, &request)
        });
        if ends {
            world.die(master, ExitStatus::Left(0));
        }
        world.run_for(Duration::from_millis(200));
        for (conn, number) in asked {
            assert_eq!(world.console_answer(conn, number), None);
        }
        for host in [1, 3, 4] {
            world.heal(2, host);
        }
        for (conn, number) in asked {
            world.run_until("the answer", |world| {
                world.console_answer(conn, number).is_some()
            });
            match world.console_answer(conn, number) {
                Some(Answer::Failed(failed)) if ends => {
                    assert_eq!(failed.kind, FailKind::NoSuchTask)
                }
                answer => assert!(!ends && answer == Some(Answer::Done), "{answer:?}"),
            }
        }
        let agreed = world.daemon(4).agreement().state().epochs(master).policy;
        assert_eq!(agreed, policy(if ends { 0 } else { 20_000 }));
    }
}
