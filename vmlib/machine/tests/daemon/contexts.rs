//! Contexts that tasks get from the machine.

use crate::world::{World, on};
use std::collections::BTreeSet;
use vm_wire::{
    HostId, Message as _, Tid,
    task::{ContextAsk, ContextGiven},
};

fn context(world: &mut World, tid: Tid) -> u32 {
    let given: ContextGiven = world.ask(tid, &ContextAsk {}).expect("a context is left");
    given.context
}

#[test]
fn no_two_requests_get_the_same_context_on_any_host() {
    let mut world = World::new(2);
    let a = world.master(1, "a");
    let b = world.spawn(a, "b", 1, on(2)).tids[0];
    let given: BTreeSet<u32> = [a, b, a, b]
        .map(|tid| context(&mut world, tid))
        .into_iter()
        .collect();
    assert_eq!(given.len(), 4);
    assert!(!given.contains(&0), "0 is the context of the program");
}

#[test]
fn a_daemon_far_behind_requests_a_context_again_if_it_missed_the_result() {
    let mut world = World::with_log(4, 16);
    let a = world.master(1, "a");
    let b = world.spawn(a, "b", 1, on(4)).tids[0];
    // The log gives the context, while the daemon receives nothing.
    world.behind = Some(HostId(4));
    let number = world.request(b, &ContextAsk {});
    let mut given: BTreeSet<u32> = (0..40).map(|_| context(&mut world, a)).collect();
    assert!(world.answers(b, number).is_empty());
    world.behind = None;
    world.run_until("the answer", |world| !world.answers(b, number).is_empty());
    let answer = ContextGiven::read(&world.answers(b, number)[0]).expect("a context");
    assert!(given.insert(answer.context), "the context is a new one");
}
