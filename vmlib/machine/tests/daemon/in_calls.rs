//! Tasks with callbacks around saves, which freeze only in calls of the library: in these tests,
//! the `late` tasks.

use crate::checkpoints::{check, setting};
use std::time::Duration;
use vm_machine::MoveInput;
use vm_wire::{HostId, limits, task::FailKind};

const LATE: &str = "came to no call of the library";
/// Longer than the time for a task to come to a call.
const LONG: Duration = limits::SAFE_POINT.saturating_add(Duration::from_secs(5));

#[test]
fn a_task_with_callbacks_comes_to_a_call_before_the_others_freeze_and_is_saved_as_an_image() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    world.input(HostId(2), MoveInput::InCalls(workers[0]));
    world.store.late.insert(workers[0]);
    let request = world.request_checkpoint(master, false);
    world.run_for(limits::SAFE_POINT - Duration::from_secs(2));
    assert!(all.iter().all(|tid| !world.processes[tid].frozen));
    world.stop_late();
    let report = world.checkpointed(request).expect("it came to a call");
    assert_eq!(report.tasks, 3);
    let saved = world.store.committed.pop().expect("a checkpoint");
    let mut portable = saved.parts.iter().map(|part| part.belongings.portable);
    assert!(portable.all(|portable| !portable));
    check(&mut world, &all);
}

#[test]
fn a_task_with_callbacks_that_makes_no_call_is_named_and_no_task_was_frozen() {
    let (mut world, master, workers) = setting();
    world.input(HostId(2), MoveInput::InCalls(workers[0]));
    world.store.late.insert(workers[0]);
    let request = world.request_checkpoint(master, false);
    world.run_for(limits::SAFE_POINT - Duration::from_secs(1));
    assert!(!world.processes[&master].frozen);
    world.run_for(Duration::from_secs(3));
    let failed = world.checkpointed(request).expect_err("it makes no call");
    assert_eq!(failed.kind, FailKind::Refused);
    assert!(failed.text.contains(LATE), "{failed}");
    let request = world.request_move(1, workers[0], 3);
    world.run_for(LONG);
    let failed = world.moved(request).expect_err("it makes no call");
    assert_eq!(failed.kind, FailKind::Refused);
    assert!(failed.text.contains(LATE), "{failed}");
    world.store.late.clear();
    check(&mut world, &[master, workers[0], workers[1]]);
    let request = world.request_move(1, workers[0], 3);
    world.moved(request).expect("it makes a call");
}

/// Callbacks and a large image may take long.
#[test]
fn a_task_with_callbacks_in_a_call_has_the_whole_time_limit_of_a_move() {
    let (mut world, master, workers) = setting();
    world.input(HostId(2), MoveInput::InCalls(workers[0]));
    world.store.late.insert(workers[0]);
    let request = world.request_move(1, workers[0], 3);
    world.run_until("it is told to stop", |world| {
        !world.store.told_to_move.is_empty()
    });
    world.input(HostId(2), MoveInput::Held(workers[0]));
    world.run_for(LONG);
    world.stop_late();
    world.moved(request).expect("it has begun in time");
    check(&mut world, &[master, workers[0]]);
}

#[test]
fn a_task_with_callbacks_in_a_call_has_the_whole_time_limit_of_a_cut() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    world.store.late.insert(workers[0]);
    // Only the cut itself orders the task to stop: its program has just registered the callbacks.
    let request = world.request_checkpoint(master, false);
    world.run_until("it is told to stop", |world| {
        world.store.told.contains_key(&workers[0])
    });
    world.input(HostId(2), MoveInput::InCalls(workers[0]));
    world.input(HostId(2), MoveInput::Held(workers[0]));
    world.run_for(LONG);
    world.stop_late();
    let report = world.checkpointed(request).expect("it has begun in time");
    assert_eq!(report.tasks, 3);
    check(&mut world, &all);
}
