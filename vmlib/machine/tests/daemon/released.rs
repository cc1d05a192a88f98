//! Moves between the owner's release and the decision of the log: the task is frozen, the target
//! has its image, and the release has not arrived.

use crate::{
    checkpoints::{setting, setting_in},
    world::{Carry, World},
};
use std::time::Duration;
use vm_machine::{ConnId, Input, ProcessInput};
use vm_wire::{HostId, Tid, agreed::ExitStatus, limits, peer::Order};

/// A worker of host 2 is to move to that host. Its image is there. Its release is lost on the way.
fn released(world: &mut World, worker: Tid, to: u16) -> (ConnId, u64) {
    world.carry = Carry::Held;
    let request = world.request_move(1, worker, to);
    world.run_until("the image", |world| world.processes[&worker].frozen);
    world.lost = Some(|order| matches!(order, Order::MoveRelease(_)));
    world.arrive(worker);
    world.run_for(Duration::from_millis(50));
    request
}

/// The release is sent again, and arrives.
fn deliver(world: &mut World) {
    world.lost = None;
    world.cut(2, 3, false);
}

#[test]
fn a_task_in_a_cut_before_the_commit_of_its_move_is_saved_at_the_target_only() {
    let (mut world, master, workers) = setting();
    let request = released(&mut world, workers[0], 3);
    world.store.slow = true;
    let (conn, number) = world.request_checkpoint(master, false);
    world.run_for(Duration::from_millis(100));
    assert!(world.daemon(2).agreement().state().is_cut(master));
    deliver(&mut world);
    world.moved(request).expect("it can go there");
    world.run_for(Duration::from_secs(7));
    assert!(world.console_answer(conn, number).is_none());
    world.store_images();
    world.checkpointed((conn, number)).expect("it can be saved");
}

#[test]
fn a_task_in_a_cut_whose_move_fails_is_saved_at_the_source() {
    let (mut world, master, workers) = setting_in(World::new(5));
    let request = released(&mut world, workers[0], 5);
    let checkpoint = world.request_checkpoint(master, false);
    world.run_for(Duration::from_millis(50));
    assert!(world.processes[&workers[0]].frozen);
    world.input(HostId(5), Input::Stop);
    world.moved(request).expect_err("its target leaves");
    world.checkpointed(checkpoint).expect("it can be saved");
    assert_eq!(world.processes[&workers[0]].host, HostId(2));
}

#[test]
fn a_move_is_in_doubt_from_its_release_and_not_from_its_offer() {
    let (mut world, _, workers) = setting();
    world.carry = Carry::Held;
    let request = world.request_move(1, workers[0], 3);
    world.run_until("the image", |world| world.processes[&workers[0]].frozen);
    world.run_for(limits::MOVE_OFFER_TIME - Duration::from_millis(50));
    world.lost = Some(|order| matches!(order, Order::MoveRelease(_)));
    world.arrive(workers[0]);
    world.run_for(Duration::from_millis(100));
    deliver(&mut world);
    world.moved(request).expect("it can go there");
    world.run_for(Duration::from_millis(500));
    assert_eq!(world.processes[&workers[0]].host, HostId(3));
}

#[test]
fn the_signals_of_a_leaving_host_do_not_follow_a_task_that_has_moved_away() {
    let (mut world, _, workers) = setting();
    let worker = workers[0];
    released(&mut world, worker, 3);
    world.stubborn = true;
    world.input(HostId(2), Input::Stop);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.processes[&worker].signals, [15]);
    world.behind = Some(HostId(2));
    deliver(&mut world);
    world.run_for(Duration::from_millis(300));
    assert_eq!(world.processes[&worker].host, HostId(3));
    let ended = Input::Process(ProcessInput::Ended(worker, ExitStatus::Signal(15)));
    world.input(HostId(2), ended);
    world.run_for(Duration::from_millis(10));
    world.behind = None;
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.processes[&worker].signals, [15]);
}
