//! Tasks that are saved at safe points: in these tests, the `late` tasks.

use crate::checkpoints::{check, setting};
use std::time::Duration;
use vm_machine::MoveInput;
use vm_wire::{
    HostId,
    console::{Answer, Request},
    limits,
    task::FailKind,
};

#[test]
fn a_portable_task_comes_to_its_safe_point_before_the_others_freeze() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    world.input(HostId(2), MoveInput::Portable(workers[0]));
    world.store.late.insert(workers[0]);
    let request = world.request_checkpoint(master, false);
    world.run_for(limits::SAFE_POINT - Duration::from_secs(2));
    assert!(all.iter().all(|tid| !world.processes[tid].frozen));
    // The task may wait for a message that another task has yet to send.
    world.send(master, workers[0], "needed");
    world.run_for(Duration::from_secs(1));
    let told = [(master, "needed".to_owned())];
    assert_eq!(world.received(workers[0]), told);
    let began = world.now;
    world.stop_late();
    let report = world
        .checkpointed(request)
        .expect("it came to a safe point");
    assert!(world.now.since(began) < Duration::from_secs(1));
    assert_eq!(report.tasks, 3);
    let saved = world.store.committed.pop().expect("a checkpoint");
    let portable = saved.parts.iter().map(|part| part.belongings.portable);
    assert_eq!(portable.collect::<Vec<_>>(), [true, false, false]);
    check(&mut world, &all);
}

#[test]
fn a_portable_task_ordered_to_stop_only_by_the_cut_receives_messages_until_it_is_frozen() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    world.store.late.insert(workers[0]);
    // A message that was sent before the freeze of its sender is still on its way at the order to
    // stop.
    let request = world.request_checkpoint(master, false);
    world.run_until("it is told to stop", |world| {
        world.store.told.contains_key(&workers[0])
    });
    world.input(HostId(2), MoveInput::Portable(workers[0]));
    world.stop_late();
    let report = world
        .checkpointed(request)
        .expect("it came to a safe point");
    assert_eq!(report.tasks, 3);
    check(&mut world, &all);
}

#[test]
fn a_portable_task_that_comes_to_no_safe_point_is_named_and_no_task_was_frozen() {
    let (mut world, master, workers) = setting();
    world.input(HostId(2), MoveInput::Portable(workers[0]));
    world.input(HostId(3), MoveInput::Portable(workers[1]));
    world.store.late.insert(workers[0]);
    let request = world.request_checkpoint(master, false);
    world.run_for(limits::SAFE_POINT - Duration::from_secs(1));
    assert!(!world.processes[&master].frozen);
    world.run_for(Duration::from_secs(3));
    let failed = world
        .checkpointed(request)
        .expect_err("it is at no safe point");
    assert_eq!(failed.kind, FailKind::Refused);
    let names = failed.text.contains("on 'n2'") && failed.text.contains("no safe point");
    assert!(names, "{failed}");
    // The orders to stop are withdrawn, also from the task that had stopped.
    assert!(world.store.told_to_hold.is_empty());
    check(&mut world, &[master, workers[0], workers[1]]);
    world.store.late.clear();
    let request = world.request_checkpoint(master, false);
    world
        .checkpointed(request)
        .expect("it comes to a safe point");
}

#[test]
fn a_cut_does_not_wait_for_a_portable_task_that_ends_or_moves_before_its_safe_point() {
    for moves in [true, false] {
        let (mut world, master, workers) = setting();
        world.input(HostId(2), MoveInput::Portable(workers[0]));
        world.store.late.insert(workers[0]);
        let request = world.request_checkpoint(master, false);
        world.run_until("it is told to stop", |world| {
            !world.store.told_to_hold.is_empty()
        });
        match moves {
            true => {
                world.store.late.clear();
                let moved = world.request_move(1, workers[0], 1);
                drop(world.moved(moved));
            }
            false => world.exit(workers[0], 0).expect("it may leave"),
        }
        let report = world
            .checkpointed(request)
            .expect("the others can be saved");
        assert_eq!(report.tasks, 2 + u32::from(moves));
    }
}

/// The task reaches its safe point when its state is no longer needed. Without an order it would
/// stop there for ever.
#[test]
fn a_portable_task_whose_target_is_lost_before_its_safe_point_is_resumed() {
    let (mut world, master, workers) = setting();
    world.input(HostId(2), MoveInput::Portable(workers[0]));
    world.store.late.insert(workers[0]);
    let request = world.request_move(1, workers[0], 3);
    world.run_until("it is told to stop", |world| {
        !world.store.told_to_move.is_empty()
    });
    world.crash(3);
    let failed = world.moved(request).expect_err("the target is lost");
    assert_eq!(failed.kind, FailKind::HostLost);
    world.stop_late();
    check(&mut world, &[master, workers[0]]);
}

/// The preparation of a refused checkpoint ends with the refusal. Otherwise nothing would end the
/// cut that the last prepared host has made.
#[test]
fn a_checkpoint_that_was_refused_while_a_task_came_to_its_safe_point_freezes_no_task() {
    let (mut world, master, workers) = setting();
    world.input(HostId(2), MoveInput::Portable(workers[0]));
    world.store.late.insert(workers[0]);
    let request = world.request_checkpoint(master, false);
    world.run_until("it is told to stop", |world| {
        !world.store.told_to_hold.is_empty()
    });
    let answer = world.answer(1, &Request::Suspend(workers[1], 0));
    assert!(matches!(answer, Answer::Moved(_)), "{answer:?}");
    let failed = world
        .checkpointed(request)
        .expect_err("a task is suspended");
    assert!(failed.text.contains("is suspended"), "{failed}");
    let answer = world.answer(1, &Request::Resume(workers[1], None));
    assert!(matches!(answer, Answer::Moved(_)), "{answer:?}");
    world.stop_late();
    world.run_for(Duration::from_secs(5));
    for tid in [master, workers[0], workers[1]] {
        assert!(!world.processes[&tid].frozen, "{tid}");
    }
    check(&mut world, &[master, workers[0], workers[1]]);
    let request = world.request_checkpoint(master, false);
    world.checkpointed(request).expect("all tasks run");
}
