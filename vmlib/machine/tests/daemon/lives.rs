//! Late messages and requests of an earlier generation of an application have no effect in its
//! present generation.

use crate::{
    checkpoints::{being_written, setting},
    world::World,
};
use std::time::Duration;
use vm_wire::{HostId, Tid, agreed::ExitStatus, console::Request, peer::Order};

/// Cuts the link between the first worker's host and the coordinator's host.
fn cut_off(world: &mut World) {
    world.cut(2, 4, true);
    world.run_for(Duration::from_millis(10));
}

/// The master dies, and the application ends. A restart puts each task on its former host.
fn again(world: &mut World, master: Tid, workers: &[Tid]) {
    world.die(master, ExitStatus::Signal(9));
    world.run_for(Duration::from_secs(2));
    assert!(workers.iter().all(|worker| !world.is_alive(*worker)));
    let request = world.request_restart(1, master);
    world.restarted(request).expect("it is back");
    world.run_for(Duration::from_millis(500));
    let host = |tid: &Tid| world.processes[tid].host.0;
    assert_eq!((host(&workers[0]), host(&workers[1])), (2, 3));
}

#[test]
fn a_task_frozen_by_a_cut_of_an_earlier_generation_does_not_count_in_a_cut_of_this_one() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    world.save(master);
    world.lost = Some(|order| matches!(order, Order::PartStands(_)));
    world.request_checkpoint(master, false);
    let stand = |world: &World, tasks: &[Tid]| tasks.iter().all(|t| world.processes[t].frozen);
    world.run_until("all stand", |world| stand(world, &all));
    again(&mut world, master, &workers);
    world.lost = None;
    world.store.late.insert(workers[0]);
    world.request_checkpoint(master, false);
    world.run_until("the others stand", |world| {
        stand(world, &[master, workers[1]])
    });
    world.run_for(Duration::from_secs(3));
    assert!(stand(&world, &[master, workers[1]]));
}

#[test]
fn an_image_of_an_earlier_generation_is_no_part_of_a_checkpoint_of_this_one() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    world.save(master);
    being_written(&mut world, &all);
    cut_off(&mut world);
    world.store_images();
    world.run_for(Duration::from_millis(10));
    again(&mut world, master, &workers);
    world.heal(2, 4);
    let (conn, number) = world.request_checkpoint(master, false);
    let frozen = |world: &World| all.map(|task| world.processes[&task].frozen);
    world.run_until("all have stood", |world| {
        all.iter()
            .all(|task| world.store.waiting.contains_key(task))
    });
    world.run_until("all go on", |world| frozen(world) == [false; 3]);
    let late = world.store.waiting.remove(&workers[0]);
    let late = late.expect("its image is being written");
    world.store_images();
    world.run_for(Duration::from_secs(2));
    assert!(world.console_answer(conn, number).is_none());
    world.store.waiting.insert(workers[0], late);
    world.store_images();
    let report = world.checkpointed((conn, number)).expect("it can be saved");
    assert_eq!(report.tasks, 3);
}

#[test]
fn a_stop_requested_before_a_recovery_does_not_stop_the_application_after_it() {
    let (mut world, master, _) = setting();
    world.save(master);
    cut_off(&mut world);
    let conn = world.conn();
    let number = world.console_request(2, conn, &Request::Checkpoint(master, true));
    world.run_for(Duration::from_millis(100));
    world.crash(3);
    world.until_back(master, 2);
    world.run_for(Duration::from_secs(2));
    assert!(world.console_answer(conn, number).is_some());
    world.heal(2, 4);
    world.run_for(Duration::from_secs(5));
    assert!(world.is_alive(master));
}

#[test]
fn a_move_requested_before_a_recovery_is_not_made_after_it() {
    let (mut world, master, workers) = setting();
    world.save(master);
    cut_off(&mut world);
    let (conn, number) = world.request_move(2, workers[0], 1);
    world.run_for(Duration::from_millis(100));
    world.crash(3);
    world.until_back(master, 2);
    world.run_for(Duration::from_secs(2));
    assert!(world.console_answer(conn, number).is_some());
    world.heal(2, 4);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.processes[&workers[0]].host, HostId(2));
}
