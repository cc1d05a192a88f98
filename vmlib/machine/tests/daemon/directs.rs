//! Direct connections between tasks of different hosts: when two daemons open one, and when they close
//! it.

use crate::world::{World, on};
use std::time::Duration;
use vm_machine::{Input, MoveInput, ProcessInput};
use vm_wire::{
    Frame, HostId, Message, Tid,
    agreed::ExitStatus,
    limits,
    task::{DirectDial, DirectOpen, RingAsk, RingClosed, RouteEnd},
};

/// A master on the first host, a worker on the second and one on the third.
fn setting() -> (World, Tid, Tid, Tid) {
    let mut world = World::new(3);
    let master = world.master(1, "master");
    let [far, third] = [2, 3].map(|host| world.spawn(master, "worker", 1, on(host)).tids[0]);
    (world, master, far, third)
}

/// Something happens on a host, and the daemons act on it.
fn happens(world: &mut World, host: HostId, event: impl Into<Input>) {
    world.input(host, event);
    world.run_for(Duration::from_millis(10));
}

/// Sends a frame that has no reply, and lets the daemons act on it.
fn say(world: &mut World, from: Tid, frame: Frame) {
    let host = world.processes[&from].host;
    let frame = frame.between(from, Tid::NONE);
    happens(world, host, Input::Task(from, frame));
}

/// A task says that it cannot use a connection, or does not want it any more.
fn gives_up(world: &mut World, from: Tid, peer: Tid, id: u64, why: RouteEnd) {
    say(world, from, RingClosed { peer, id, why }.frame());
}

fn ask(world: &mut World, from: Tid, peer: Tid) {
    say(world, from, RingAsk { peer }.frame());
}

fn told<M: Message>(world: &World, tid: Tid) -> Vec<M> {
    let frames = world.answers(tid, 0).iter();
    let told = frames.filter(|frame| frame.header.op == M::OP);
    told.map(|frame| M::read(frame).expect("a message"))
        .collect()
}

fn closed(world: &World, tid: Tid) -> Vec<(Tid, u64)> {
    let closed = told::<RingClosed>(world, tid).into_iter();
    closed.map(|closed| (closed.peer, closed.id)).collect()
}

/// The one connection that a task was told to make.
fn dialled(world: &World, tid: Tid) -> DirectDial {
    let mut dials = told::<DirectDial>(world, tid);
    assert_eq!(dials.len(), 1);
    dials.remove(0)
}

/// The connection with that number comes to the host that expects it.
fn comes(world: &mut World, id: u64) {
    let expected = &world.directs.expected;
    let (host, _) = expected.iter().find(|(_, it)| it.id == id).expect("it");
    happens(world, *host, Input::DirectCame(id));
}

/// The first task asks for a connection to the other one, and has it. Returns its number.
fn connect(world: &mut World, from: Tid, peer: Tid) -> u64 {
    ask(world, from, peer);
    let dials = told::<DirectDial>(world, from);
    let id = dials.last().expect("it is expected").id;
    comes(world, id);
    let opened = told::<DirectOpen>(world, peer);
    assert_eq!(opened.last().map(|open| open.id), Some(id));
    id
}

#[test]
fn the_task_that_asks_dials_and_both_tasks_get_the_secret_that_is_proved() {
    let (mut world, master, far, _) = setting();
    ask(&mut world, master, far);
    let dial = dialled(&world, master);
    assert_eq!((dial.peer, dial.sealed), (far, true));
    let facts = |host| {
        &world
            .daemon(1)
            .agreement()
            .state()
            .host(host)
            .expect("it")
            .facts
    };
    assert_eq!(dial.addr, facts(HostId(2)).addr);
    let (host, connection) = world.directs.expected[0].clone();
    assert_eq!((host, connection.id), (HostId(2), dial.id));
    assert_eq!(connection.ends, [master, far]);
    assert_eq!(connection.secret, dial.secret);
    assert!(told::<DirectOpen>(&world, far).is_empty());
    comes(&mut world, dial.id);
    let opened = told::<DirectOpen>(&world, far);
    assert_eq!(opened.len(), 1);
    assert_eq!((opened[0].peer, opened[0].id), (master, dial.id));
    assert_eq!((&opened[0].secret, opened[0].sealed), (&dial.secret, true));
    // Neither task gets a second one.
    ask(&mut world, far, master);
    ask(&mut world, master, far);
    assert_eq!(world.directs.expected.len(), 1);
    assert_eq!([1, 2].map(|host| world.daemon(host).direct_count()), [1, 1]);
}

#[test]
fn two_tasks_that_ask_at_one_time_get_one_connection() {
    let (mut world, master, far, _) = setting();
    for (from, peer) in [(master, far), (far, master)] {
        let host = world.processes[&from].host;
        let frame = RingAsk { peer }.frame().between(from, Tid::NONE);
        world.input(host, Input::Task(from, frame));
    }
    world.run_for(Duration::from_millis(50));
    let dials = [master, far].map(|tid| told::<DirectDial>(&world, tid).len());
    assert_eq!(dials.iter().sum::<usize>(), 1);
    assert_eq!(world.directs.expected.len(), 1);
}

#[test]
fn none_is_opened_to_a_portable_task_or_to_one_of_another_application() {
    let (mut world, master, far, third) = setting();
    let other = world.master(2, "other");
    happens(&mut world, HostId(3), MoveInput::Portable(third));
    for peer in [other, third, Tid::NONE, Tid(u64::MAX)] {
        ask(&mut world, master, peer);
    }
    ask(&mut world, third, far);
    assert!(world.directs.expected.is_empty());
    for tid in [master, far, third, other] {
        assert!(told::<DirectDial>(&world, tid).is_empty());
    }
}

#[test]
fn a_task_has_no_more_routes_than_the_limit() {
    let mut world = World::new(6);
    let master = world.master(1, "master");
    let on_each = limits::RINGS_PER_TASK as u32 / 4;
    for host in 2..=5 {
        for peer in world.spawn(master, "worker", on_each, on(host)).tids {
            ask(&mut world, master, peer);
        }
    }
    let more = [1, 6].map(|host| world.spawn(master, "worker", 1, on(host)).tids[0]);
    for peer in more {
        ask(&mut world, master, peer);
    }
    let dials = told::<DirectDial>(&world, master);
    assert_eq!(dials.len(), limits::RINGS_PER_TASK);
    assert!(dials.iter().all(|dial| dial.peer != more[1]));
    assert_eq!(world.daemon(1).ring_count(), 0);
}

#[test]
fn a_move_closes_the_connection_and_interrupts_both_tasks() {
    for moves_master in [false, true] {
        let (mut world, master, far, _) = setting();
        let id = connect(&mut world, master, far);
        let (moved, at) = match moves_master {
            true => (master, 1),
            false => (far, 2),
        };
        let request = world.request_move(at, moved, 3);
        world.moved(request).expect("it can move");
        let stays = if moves_master { far } else { master };
        assert_eq!(closed(&world, stays), [(moved, id)]);
        let mut nudged = world.directs.nudged.clone();
        nudged.sort_unstable();
        let mut both = [(master, id), (far, id)];
        both.sort_unstable();
        assert_eq!(nudged, both);
        // The pair gets another one at the new place, once there is a link for its messages.
        world.send(stays, moved, "x");
        world.run_for(Duration::from_millis(50));
        let next = connect(&mut world, stays, moved);
        assert_ne!(next, id);
    }
}

#[test]
fn a_late_connection_is_not_handed_to_a_task_that_is_frozen_or_has_moved() {
    let (mut world, master, far, _) = setting();
    ask(&mut world, master, far);
    let id = dialled(&world, master).id;
    let request = world.request_move(2, far, 3);
    world.moved(request).expect("it can move");
    assert!(world.directs.expected.is_empty());
    happens(&mut world, HostId(2), Input::DirectCame(id));
    assert!(told::<DirectOpen>(&world, far).is_empty());
    assert_eq!(closed(&world, master), [(far, id)]);
}

#[test]
fn the_end_of_a_task_closes_its_connections_before_its_peer_hears_of_the_end() {
    let (mut world, master, far, _) = setting();
    let id = connect(&mut world, master, far);
    happens(
        &mut world,
        HostId(2),
        ProcessInput::Ended(far, ExitStatus::Signal(9)),
    );
    assert_eq!(closed(&world, master), [(far, id)]);
    assert_eq!([1, 2].map(|host| world.daemon(host).direct_count()), [0, 0]);
}

#[test]
fn a_lost_link_or_host_closes_the_connections_to_that_host_alone() {
    let (mut world, master, far, third) = setting();
    let ids = [far, third].map(|peer| connect(&mut world, master, peer));
    world.cut(1, 2, true);
    world.run_for(Duration::from_millis(50));
    assert_eq!(closed(&world, master), [(far, ids[0])]);
    assert_eq!(closed(&world, far), [(master, ids[0])]);
    assert!(closed(&world, third).is_empty());
    assert!(world.directs.nudged.contains(&(master, ids[0])));
    assert!(world.directs.nudged.contains(&(far, ids[0])));
    world.crash(3);
    world.run_for(Duration::from_secs(6));
    assert_eq!(closed(&world, master)[1..], [(third, ids[1])]);
}

#[test]
fn a_connection_that_its_task_cannot_make_is_forgotten_and_that_is_noted_once() {
    let (mut world, master, far, third) = setting();
    for peer in [far, far] {
        ask(&mut world, master, peer);
        let dials = told::<DirectDial>(&world, master);
        let id = dials.last().expect("it").id;
        gives_up(&mut world, master, peer, id, RouteEnd::NotMade);
        assert!(world.directs.expected.is_empty());
        // For a while the host expects none from there.
        ask(&mut world, master, peer);
        assert_eq!(told::<DirectDial>(&world, master).len(), dials.len());
        world.run_for(limits::DIRECT_PAUSE);
    }
    let noted = world.noted.iter();
    let noted = noted.filter(|text| text.contains("cannot connect to host 'n2'"));
    assert_eq!(noted.count(), 1);
    assert!(closed(&world, far).is_empty());
    connect(&mut world, master, third);
}

#[test]
fn a_task_that_does_not_take_its_connection_says_nothing_about_the_network() {
    let (mut world, master, far, _) = setting();
    for _ in 0..2 {
        ask(&mut world, master, far);
        let id = told::<DirectDial>(&world, master).last().expect("it").id;
        gives_up(&mut world, master, far, id, RouteEnd::GivenUp);
        assert!(world.directs.expected.is_empty());
    }
    // The connection has come, but the peer computes, and no frame of it has come back.
    ask(&mut world, master, far);
    let id = told::<DirectDial>(&world, master).last().expect("it").id;
    comes(&mut world, id);
    gives_up(&mut world, master, far, id, RouteEnd::NotMade);
    connect(&mut world, master, far);
    assert!(
        !world
            .noted
            .iter()
            .any(|text| text.contains("cannot connect"))
    );
}

#[test]
fn a_host_that_cannot_be_reached_reaches_the_other_one_even_if_both_tasks_ask() {
    let (mut world, master, far, _) = setting();
    ask(&mut world, master, far);
    let id = dialled(&world, master).id;
    gives_up(&mut world, master, far, id, RouteEnd::NotMade);
    // The request of the lower tid is under way, and is refused.
    assert!(master < far);
    ask(&mut world, master, far);
    connect(&mut world, far, master);
    assert_eq!(told::<DirectDial>(&world, master).len(), 1);
}

#[test]
fn a_connection_that_does_not_come_in_time_is_forgotten() {
    let (mut world, master, far, _) = setting();
    ask(&mut world, master, far);
    let id = dialled(&world, master).id;
    world.run_for(limits::DIRECT_AWAITED);
    assert!(world.directs.expected.is_empty());
    assert_eq!(closed(&world, master), [(far, id)]);
    happens(&mut world, HostId(2), Input::DirectCame(id));
    assert!(told::<DirectOpen>(&world, far).is_empty());
}

#[test]
fn the_peer_is_told_and_interrupted_when_a_task_gives_its_connection_up() {
    let (mut world, master, far, _) = setting();
    let id = connect(&mut world, master, far);
    gives_up(&mut world, far, master, id, RouteEnd::GivenUp);
    assert_eq!(closed(&world, master), [(far, id)]);
    assert_eq!(world.directs.nudged, [(master, id)]);
    assert!(closed(&world, far).is_empty());
    // A late report about it closes no later one.
    let next = connect(&mut world, master, far);
    gives_up(&mut world, far, master, id, RouteEnd::GivenUp);
    assert_eq!(closed(&world, master).len(), 1);
    assert_ne!(next, id);
}
