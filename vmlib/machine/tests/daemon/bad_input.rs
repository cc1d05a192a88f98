//! A malformed frame costs its sender the connection, and has no other effect.

use crate::world::{World, on, tid};
use bytes::Bytes;
use std::time::Duration;
use vm_machine::{ConnId, ConsoleInput, Input, ProcessInput};
use vm_wire::{
    Frame, Header, HostId, Op, Tid,
    console::{Answer, Request},
    task::Place,
};

/// A frame of every opcode with a body that is no message.
fn garbage(op: Op) -> Frame {
    let body = match op.body_max() {
        0 => Bytes::new(),
        _ => Bytes::from_static(&[0xc1, 0xff, 0x00]),
    };
    let mut header = Header::new(op);
    header.total = 3;
    header.seq = u64::MAX;
    header.ack = u64::MAX;
    header.credit = u64::MAX;
    header.request = 1 << 40;
    Frame::new(header, body)
}

#[test]
fn a_task_that_breaks_the_protocol_loses_its_connection_only() {
    for op in Op::ALL {
        let mut world = World::new(1);
        let (bad, good) = (world.master(1, "bad"), world.master(1, "good"));
        for (from, to) in [
            (bad, good),
            (bad, bad),
            (good, bad),
            (bad, Tid::NONE),
            (bad, tid(1, 0)),
        ] {
            let frame = garbage(*op).between(from, to);
            world.input(HostId(1), Input::Task(bad, frame));
        }
        world.run_for(Duration::from_millis(100));
        assert!(world.closed.iter().all(|tid| *tid == bad));
        assert!(world.closed.contains(&bad), "{op:?}");
        world.spawn(good, "worker", 1, Place::Any);
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_loses_its_link_and_is_counted() {
    for op in Op::ALL {
        let mut world = World::new(2);
        let master = world.master(1, "master");
        let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
        for to in [Tid::NONE, tid(1, 0), tid(2, 0), tid(1, 77), tid(77, 1)] {
            for from in [worker, tid(2, 0), tid(1, 0), Tid::NONE] {
                let frame = garbage(*op).between(from, to);
                world.input(HostId(1), Input::Peer(HostId(2), frame));
            }
        }
        world.run_for(Duration::from_secs(4));
        let refused = world.daemon(1).counters().refused_peer;
        let may_pass = matches!(op, Op::Data | Op::Ack | Op::Resend | Op::Located);
        assert!(refused > 0 || may_pass, "{op:?}");
        assert_eq!(world.end_of(1), None);
        world.send(master, worker, "still here");
        world.run_for(Duration::from_secs(2));
        assert_eq!(world.received(worker), [(master, "still here".to_owned())]);
    }
}

#[test]
fn a_console_that_breaks_the_protocol_loses_its_connection() {
    for op in Op::ALL {
        let mut world = World::new(1);
        let bad = ConnId(1_000_000);
        world.input(HostId(1), ConsoleInput::Frame(bad, garbage(*op)));
        world.run_for(Duration::from_millis(10));
        assert!(world.rejected.contains_key(&bad), "{op:?}");
        let good = world.conn();
        let answer = world.console(1, good, &Request::Conf);
        assert!(matches!(answer, Answer::Conf(_)));
    }
}

#[test]
fn a_joiner_that_breaks_the_protocol_is_refused() {
    for op in Op::ALL {
        let mut world = World::new(1);
        world.input(HostId(1), Input::Joiner(ConnId(9), garbage(*op)));
        world.run_for(Duration::from_millis(10));
        assert_eq!(world.daemon(1).counters().refused_peer, 1, "{op:?}");
    }
}

#[test]
fn inputs_about_unknown_connections_and_tasks_do_nothing() {
    let mut world = World::new(1);
    let nobody = tid(1, 99);
    let nowhere = HostId(99);
    let status = vm_wire::agreed::ExitStatus::Code(0);
    let failed = vm_wire::task::Failed::new(vm_wire::task::FailKind::System, "no");
    for input in [
        Input::Task(nobody, garbage(Op::Spawn)),
        Input::Task(nobody, garbage(Op::Data).between(nobody, nobody)),
        Input::TaskGone(nobody),
        Input::Process(ProcessInput::Ended(nobody, status)),
        Input::Process(ProcessInput::LaunchFailed(nobody, failed.clone())),
        Input::Process(ProcessInput::Launched(nobody, 1)),
        Input::ConnGone(ConnId(99)),
        Input::Console(ConsoleInput::Full(ConnId(99))),
        Input::Console(ConsoleInput::Room(ConnId(99))),
        Input::Process(ProcessInput::Usage(99, Vec::new())),
        Input::Process(ProcessInput::ProgramFound(99, Err(failed))),
        Input::Dropped(vec![
            (nobody, nobody),
            (tid(1, 0), tid(9, 0)),
            (tid(9, 9), tid(1, 0)),
        ]),
        Input::LinkDown(nowhere),
        Input::LinkUp(HostId(1)),
    ] {
        world.input(HostId(1), input);
    }
    world.run_for(Duration::from_secs(1));
    world.master(1, "master");
}

#[test]
fn too_many_consoles_are_refused() {
    let mut world = World::new(1);
    let limit = vm_wire::limits::CONSOLES_MAX;
    for _ in 0..limit {
        let conn = world.conn();
        world.console(1, conn, &Request::Conf);
    }
    let conn = world.conn();
    world.console_request(1, conn, &Request::Conf);
    world.run_for(Duration::from_millis(10));
    assert!(world.rejected.contains_key(&conn));
}
