//! Single tasks that are suspended into the store, resumed on their host or another one, and handed
//! over by a drain.

use crate::world::{World, on};
use std::time::Duration;
use vm_machine::{MoveInput, StoreInput, Written};
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    checkpoint::Part,
    console::{Answer, Request},
    peer::{DrainWay, MoveReport},
    task::{FailKind, Failed},
};

impl World {
    /// A task writes its image into the store, and stays frozen.
    pub fn freeze_to_shelf(&mut self, host: HostId, tid: Tid) {
        let (name, number) = self.suspending.remove(&tid).expect("it was begun");
        let left = self.unsavable.get_mut(&tid).filter(|left| **left > 0);
        if left.map(|left| *left -= 1).is_some() {
            let failed = Failed::new(FailKind::Refused, "it has a strange device open");
            return self.input(host, MoveInput::Frozen(tid, Err(failed)));
        }
        let process = self.processes.get_mut(&tid).expect("a process");
        assert_eq!((process.host, process.frozen), (host, false));
        process.frozen = true;
        let image = process.endpoint.clone().expect("it is enrolled");
        self.shelf.insert(name, (tid, image));
        let written = Written {
            bytes: 1000,
            ..Written::default()
        };
        self.input(host, MoveInput::Frozen(tid, Ok(written)));
        let part = Part {
            name: String::new(),
            bytes: 1000,
            hash: [1; 16],
            place: format!("n{}", host.0),
            stored: 1000,
            packed: None,
            base: None,
            copy: None,
        };
        let result = match std::mem::take(&mut self.store.full) {
            true => Err(Failed::new(FailKind::System, "no space left on device")),
            false => Ok(part),
        };
        self.input(host, StoreInput::Suspended(tid, number, result));
    }

    /// The image of a suspended task is sent, and arrives.
    pub fn send_suspended(&mut self, ticket: u64, name: &str) {
        let (tid, image) = self.shelf.get(name).expect("it is there").clone();
        self.images.insert(tid, (ticket, image));
        self.arrive(tid);
    }

    fn suspends(&mut self, asked: u16, tid: Tid) -> Result<MoveReport, Failed> {
        let answer = self.answer(asked, &Request::Suspend(tid, 0));
        moved(answer)
    }

    fn resumes(&mut self, asked: u16, tid: Tid, host: Option<u16>) -> Result<MoveReport, Failed> {
        let host = host.map(|host| format!("n{host}"));
        let answer = self.answer(asked, &Request::Resume(tid, host));
        moved(answer)
    }

    /// The reply of that host's daemon to a request of a console.
    pub fn answer(&mut self, asked: u16, request: &Request) -> Answer {
        let conn = self.conn();
        self.console(asked, conn, request)
    }

    fn is_suspended(&self, tid: Tid) -> Option<(HostId, bool)> {
        let task = self.daemon(1).agreement().state().living_task(tid);
        task.map(|task| (task.host, task.suspended))
    }
}

fn moved(answer: Answer) -> Result<MoveReport, Failed> {
    match answer {
        Answer::Moved(report) => Ok(report),
        Answer::Failed(failed) => Err(failed),
        other => panic!("{other:?}"),
    }
}

/// A master on n4, a worker on n2; n3 is free. The leader's host n1 has no task.
fn setting() -> (World, Tid, Tid) {
    let mut world = World::new(4);
    let master = world.master(4, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    (world, master, worker)
}

/// Checks that the worker runs on that host and has received `before`, and that messages between
/// the two tasks arrive.
fn check(world: &mut World, master: Tid, worker: Tid, host: u16, before: &[&str]) {
    world.run_for(Duration::from_secs(4));
    assert_eq!(world.is_suspended(worker), Some((HostId(host), false)));
    let process = &world.processes[&worker];
    assert_eq!((process.host, process.frozen), (HostId(host), false));
    assert!(world.shelf.is_empty() && world.standing.is_empty());
    for number in (1..=4).filter(|number| world.is_up(HostId(*number))) {
        let underway = world.daemon(number).moves_underway();
        assert!(underway.is_empty(), "n{number}: {underway:?}");
    }
    world.send(master, worker, "ping");
    world.send(worker, master, "pong");
    world.run_for(Duration::from_secs(3));
    let said = before.iter().chain(&["ping"]);
    let said: Vec<(Tid, String)> = said.map(|text| (master, (*text).to_owned())).collect();
    assert_eq!(world.received(worker), said);
    assert_eq!(world.received(master), [(worker, "pong".to_owned())]);
}

#[test]
fn messages_to_a_suspended_task_wait_until_it_is_resumed_on_any_host() {
    for host in [None, Some(2), Some(3), Some(1)] {
        let (mut world, master, worker) = setting();
        let report = world.suspends(4, worker).expect("it can be suspended");
        assert_eq!((report.from, report.to), (HostId(2), HostId(2)));
        assert_eq!(world.is_suspended(worker), Some((HostId(2), true)));
        assert_eq!(world.shelf.len(), 1);
        world.send(master, worker, "first");
        world.send(master, worker, "second");
        world.run_for(Duration::from_secs(60));
        assert_eq!(world.received(worker), []);
        let failed = world.suspends(1, worker).expect_err("it is");
        assert!(failed.text.contains("is suspended"), "{failed}");
        let report = world.resumes(1, worker, host).expect("it can be resumed");
        let host = host.unwrap_or(2);
        assert_eq!((report.from, report.to), (HostId(2), HostId(host)));
        check(&mut world, master, worker, host, &["first", "second"]);
        let failed = world.resumes(1, worker, None).expect_err("it runs");
        assert!(
            failed.text.contains("is not suspended: it runs"),
            "{failed}"
        );
    }
}

#[test]
fn a_task_that_cannot_be_saved_or_finds_no_room_in_the_store_runs_on() {
    let (mut world, master, worker) = setting();
    world.unsavable.insert(worker, 1);
    let failed = world.suspends(1, worker).expect_err("it cannot be saved");
    let text = "cannot be suspended: it has a strange device open; it runs on 'n2'";
    assert!(failed.text.contains(text), "{failed}");
    world.store.full = true;
    let failed = world.suspends(1, worker).expect_err("the store is full");
    assert!(
        failed.text.contains("cannot be suspended: no space"),
        "{failed}"
    );
    check(&mut world, master, worker, 2, &[]);
}

#[test]
fn no_checkpoint_is_made_and_no_signal_but_a_kill_is_accepted_while_a_task_is_suspended() {
    let (mut world, master, worker) = setting();
    world.suspends(1, worker).expect("it can be suspended");
    for request in [
        Request::Checkpoint(master, false),
        Request::Suspend(master, 0),
    ] {
        let failed = moved(world.answer(3, &request)).expect_err("not now");
        let says = failed
            .text
            .contains("its task t2.1 is suspended, and is in no checkpoint");
        assert!(says && failed.kind == FailKind::Refused, "{failed}");
    }
    let failed = moved(world.answer(3, &Request::Signal(worker, 10))).expect_err("not now");
    assert!(
        failed.text.contains("is suspended: resume it first"),
        "{failed}"
    );
    let Answer::Check(reasons) = world.answer(3, &Request::Check(worker)) else {
        panic!("it is looked at");
    };
    assert!(
        reasons[0].contains("'vm resume t2.1' resumes it"),
        "{reasons:?}"
    );
    world.resumes(1, worker, None).expect("it can be resumed");
    let answer = world.answer(3, &Request::Checkpoint(master, false));
    assert!(matches!(answer, Answer::Checkpointed(_)), "{answer:?}");
}

#[test]
fn a_suspended_task_can_be_killed_and_ends_with_its_master() {
    let (mut world, master, worker) = setting();
    let other = world.spawn(master, "worker", 1, on(3)).tids[0];
    world.suspends(1, worker).expect("it can be suspended");
    world.suspends(1, other).expect("it can be suspended");
    assert_eq!(world.answer(4, &Request::Signal(worker, 9)), Answer::Done);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.is_suspended(worker), None);
    assert_eq!(world.shelf.len(), 1);
    world.die(master, ExitStatus::Signal(11));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.is_suspended(other), None);
    assert!(world.shelf.is_empty());
}

#[test]
fn a_draining_host_hands_a_suspended_task_over() {
    let (mut world, master, worker) = setting();
    world.suspends(1, worker).expect("it can be suspended");
    world.send(master, worker, "first");
    let drain = Request::Drain("n2".to_owned(), DrainWay::default());
    let Answer::Drained(report) = world.answer(1, &drain) else {
        panic!("it drains");
    };
    assert_eq!((report.moved_count, report.refused_count), (1, 0));
    let (host, suspended) = world.is_suspended(worker).expect("it is not over");
    assert!(host != HostId(2) && suspended, "{host}");
    assert_eq!(
        world.answer(1, &Request::Delete("n2".to_owned())),
        Answer::Done
    );
    world.run_until("the end of n2", |world| world.end_of(2).is_some());
    world
        .resumes(1, worker, Some(3))
        .expect("it can be resumed");
    check(&mut world, master, worker, 3, &["first"]);
}

#[test]
fn a_suspended_task_is_lost_with_its_host() {
    let (mut world, _, worker) = setting();
    world.suspends(1, worker).expect("it can be suspended");
    world.crash(2);
    world.run_for(Duration::from_secs(8));
    assert_eq!(world.is_suspended(worker), None);
}
