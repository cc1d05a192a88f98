//! Tasks that are saved at safe points: here those that are `late` to stop.

use crate::checkpoints::{check, setting};
use std::time::Duration;
use vm_machine::Input;
use vm_wire::{HostId, limits, task::FailKind};

#[test]
fn a_portable_task_receives_messages_until_it_comes_to_a_safe_point() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    world.input(HostId(2), Input::Portable(workers[0]));
    // What the others sent before they stood is still on its way when it is told to stop.
    world.cut(4, 2, true);
    world.run_for(Duration::from_millis(10));
    world.send(master, workers[0], "needed");
    world.store.late.insert(workers[0]);
    let wish = world.wish_checkpoint(master, false);
    world.run_until("the others stand", |world| {
        [master, workers[1]]
            .iter()
            .all(|tid| world.processes[tid].frozen)
    });
    world.heal(4, 2);
    world.run_for(Duration::from_secs(2));
    let told = [(master, "needed".to_owned())];
    assert_eq!(world.received(workers[0]), told);
    world.stop_late();
    let report = world.checkpointed(wish).expect("it came to a safe point");
    assert_eq!(report.tasks, 3);
    let saved = world.store.committed.pop().expect("a checkpoint");
    let portable = saved.parts.iter().map(|part| part.belongings.portable);
    assert_eq!(portable.collect::<Vec<_>>(), [true, false, false]);
    check(&mut world, &all);
}

#[test]
fn a_portable_task_that_comes_to_no_safe_point_is_named_and_all_go_on() {
    let (mut world, master, workers) = setting();
    world.input(HostId(2), Input::Portable(workers[0]));
    world.store.late.insert(workers[0]);
    let wish = world.wish_checkpoint(master, false);
    world.run_for(limits::SAFE_POINT + Duration::from_secs(2));
    let failed = world
        .checkpointed(wish)
        .expect_err("it is at no safe point");
    assert_eq!(failed.kind, FailKind::Refused);
    let names = failed.text.contains("on 'n2'") && failed.text.contains("no safe point");
    assert!(names, "{failed}");
    check(&mut world, &[master, workers[0], workers[1]]);
}

/// It comes to its safe point when nobody wants its state any more: without a word to it, it would
/// stand for ever.
#[test]
fn a_portable_task_whose_target_is_lost_before_it_comes_to_a_safe_point_is_told() {
    let (mut world, master, workers) = setting();
    world.input(HostId(2), Input::Portable(workers[0]));
    world.store.late.insert(workers[0]);
    let wish = world.wish_move(1, workers[0], 3);
    world.run_until("it is told to stop", |world| {
        !world.store.told_to_move.is_empty()
    });
    world.crash(3);
    let failed = world.moved(wish).expect_err("the target is lost");
    assert_eq!(failed.kind, FailKind::HostLost);
    world.stop_late();
    check(&mut world, &[master, workers[0]]);
}
