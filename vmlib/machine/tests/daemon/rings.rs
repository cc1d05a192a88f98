//! Rings between tasks of one host: when a daemon opens one, and when it closes it.

use crate::world::{World, on};
use std::time::Duration;
use vm_machine::{Input, MoveInput, ProcessInput};
use vm_wire::{
    Frame, HostId, Message, Op, Tid,
    agreed::ExitStatus,
    task::{RingAsk, RingClosed, RingOpen, RouteEnd},
};

/// Sends a frame that has no reply, and lets the daemons act on it.
fn say(world: &mut World, from: Tid, frame: Frame) {
    let host = world.processes[&from].host;
    let frame = frame.between(from, Tid::NONE);
    happens(world, host, Input::Task(from, frame));
}

/// Something happens on a host, and the daemons act on it.
fn happens(world: &mut World, host: HostId, event: impl Into<Input>) {
    world.input(host, event);
    world.run_for(Duration::from_millis(10));
}

fn ask(world: &mut World, from: Tid, peer: Tid) {
    say(world, from, RingAsk { peer }.frame());
}

fn frames(world: &World, tid: Tid, op: Op) -> impl Iterator<Item = &Frame> {
    let frames = world.answers(tid, 0).iter();
    frames.filter(move |frame| frame.header.op == op)
}

/// The rings that a task was told of as open.
fn opened(world: &World, tid: Tid) -> Vec<RingOpen> {
    frames(world, tid, Op::RingOpen)
        .map(|frame| RingOpen::read(frame).expect("a RingOpen"))
        .collect()
}

/// The rings that a task was told of as closed: peer and number.
fn closed(world: &World, tid: Tid) -> Vec<(Tid, u64)> {
    let read = |frame| RingClosed::read(frame).expect("a RingClosed");
    frames(world, tid, Op::RingClosed)
        .map(read)
        .map(|closed| (closed.peer, closed.id))
        .collect()
}

/// A master and a worker on the first host, a worker on the second.
fn setting() -> (World, Tid, Tid, Tid) {
    let mut world = World::new(2);
    let master = world.master(1, "master");
    let [near, far] = [1, 2].map(|host| world.spawn(master, "worker", 1, on(host)).tids[0]);
    (world, master, near, far)
}

/// The report of a task that it does not use a ring any more.
fn given_up(peer: Tid, id: u64) -> Frame {
    let why = RouteEnd::GivenUp;
    RingClosed { peer, id, why }.frame()
}

#[test]
fn two_tasks_of_one_host_get_the_two_ends_of_one_ring() {
    let (mut world, master, near, _) = setting();
    ask(&mut world, master, near);
    // The other task asks, too, before it hears of the ring.
    ask(&mut world, near, master);
    let ends = [(master, near), (near, master)].map(|(tid, peer)| {
        let [open] = &opened(&world, tid)[..] else {
            panic!("one ring");
        };
        assert_eq!(open.peer, peer);
        (open.id, open.end)
    });
    assert_eq!(ends, [(ends[0].0, 0), (ends[0].0, 1)]);
}

#[test]
fn no_ring_is_opened_to_another_host_to_oneself_or_to_a_portable_task() {
    let (mut world, master, near, far) = setting();
    for peer in [far, master, Tid::NONE, Tid(u64::MAX)] {
        ask(&mut world, master, peer);
    }
    happens(&mut world, HostId(1), MoveInput::Portable(near));
    ask(&mut world, master, near);
    let other = world.master(1, "other");
    ask(&mut world, master, other);
    assert!(opened(&world, master).is_empty());
}

#[test]
fn a_task_that_moves_has_no_ring_any_more_and_its_peer_is_told() {
    let (mut world, master, near, _) = setting();
    ask(&mut world, master, near);
    let id = opened(&world, master)[0].id;
    let request = world.request_move(1, near, 2);
    world.moved(request).expect("it can move");
    assert_eq!(closed(&world, master), [(near, id)]);
    ask(&mut world, master, near);
    assert_eq!(opened(&world, master).len(), 1);
    let request = world.request_move(1, near, 1);
    world.moved(request).expect("it can move");
    ask(&mut world, near, master);
    let ids: Vec<u64> = opened(&world, master).iter().map(|open| open.id).collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn the_end_of_a_task_closes_its_rings() {
    let (mut world, master, near, _) = setting();
    ask(&mut world, near, master);
    let id = opened(&world, near)[0].id;
    let ended = ProcessInput::Ended(near, ExitStatus::Signal(9));
    happens(&mut world, HostId(1), ended);
    assert_eq!(closed(&world, master), [(near, id)]);
}

#[test]
fn a_ring_that_cannot_be_made_or_used_is_closed_and_may_be_requested_again() {
    let (mut world, master, near, _) = setting();
    ask(&mut world, master, near);
    let id = opened(&world, master)[0].id;
    let ends = [master, near];
    happens(&mut world, HostId(1), Input::RingFailed { id, ends });
    assert_eq!(closed(&world, near), [(master, id)]);
    ask(&mut world, master, near);
    let id = opened(&world, master)[1].id;
    say(&mut world, near, given_up(master, id));
    assert_eq!(closed(&world, master), [(near, id)]);
    // A late report about a ring of before closes nothing.
    ask(&mut world, near, master);
    say(&mut world, near, given_up(master, id));
    assert_eq!(closed(&world, master).len(), 1);
}

#[test]
fn a_task_that_becomes_portable_has_no_ring_any_more() {
    let (mut world, master, near, _) = setting();
    ask(&mut world, master, near);
    let id = opened(&world, master)[0].id;
    happens(&mut world, HostId(1), MoveInput::Portable(near));
    assert_eq!(closed(&world, master), [(near, id)]);
    assert_eq!(closed(&world, near), [(master, id)]);
}
