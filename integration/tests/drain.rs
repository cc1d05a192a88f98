//! Hosts whose tasks move off while they exchange messages: by `vm drain`, and at SIGTERM.

use rustix::process::Signal;
use std::time::Duration;
use vm_integration::cluster::{
    Cluster, Node,
    client::{Client, spawn},
    wait_for,
};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    console::{Answer, HostState, Request, TaskRow},
    peer::{DrainReport, DrainWay},
    task::{FailKind, Place},
};

/// Members of the ring, beside the master.
const MEMBERS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(20);

fn rows(node: &Node) -> Vec<TaskRow> {
    match node.client().ask(&Request::Ps(None)) {
        Answer::Ps(rows) => rows,
        other => panic!("{other:?}"),
    }
}

fn tasks_on(node: &Node, host: &str) -> Vec<Tid> {
    let rows = rows(node);
    let there = rows.iter().filter(|row| row.host == host);
    there.map(|row| row.tid).collect()
}

fn state_of(node: &Node, host: &str) -> HostState {
    let conf = node.conf();
    let row = conf.hosts.iter().find(|row| row.facts.name == host);
    row.expect("it is remembered").state
}

/// A ring that exchanges messages until it is told to end. Its master is a run at that daemon.
fn ring(node: &Node, bytes: &str) -> Client {
    let mut run = node.client();
    run.run("vmtest", &["ring-until-told", bytes]);
    wait_for("the members of the ring", PATIENCE, || {
        (rows(node).len() == MEMBERS + 1).then_some(())
    });
    run
}

fn end(mut run: Client) {
    run.input(b"end\n");
    let finished = run.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
    let told = "none lost, doubled or out of order";
    assert!(finished.stdout.contains(told), "{}", finished.stdout);
}

fn drain(node: &Node, host: &str) -> DrainReport {
    match node
        .client()
        .ask(&Request::Drain(host.to_owned(), DrainWay::default()))
    {
        Answer::Drained(report) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ring_of_eight_loses_nothing_while_a_host_is_drained_and_deleted() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let run = ring(node, "1048576");
    for host in ["n2", "n3"] {
        let there = tasks_on(node, host);
        assert!(!there.is_empty(), "no member is on {host}");
        let report = drain(node, host);
        assert_eq!(report.refused_count, 0, "{report:?}");
        let named: Vec<Tid> = report.moved.iter().map(|(tid, _)| *tid).collect();
        assert_eq!(named, there);
        assert!(tasks_on(node, host).is_empty());
        assert_eq!(state_of(node, host), HostState::Draining);
        let asked = Request::Delete(host.to_owned());
        assert_eq!(node.client().ask(&asked), Answer::Done);
        assert_eq!(state_of(node, host), HostState::Gone);
    }
    assert_eq!(tasks_on(node, "n1").len(), MEMBERS + 1);
    end(run);
}

#[test]
fn a_task_that_cannot_leave_is_named_and_the_others_leave() {
    let cluster = Cluster::on_loopback(2);
    let node = &cluster.nodes[0];
    let run = ring(node, "4096");
    let master = rows(node)[0].tid;
    // The master reads its input from this console.
    let report = drain(node, "n1");
    let refused: Vec<Tid> = report.refused.iter().map(|(tid, _)| *tid).collect();
    assert_eq!(refused, [master]);
    let why = &report.refused[0].1.text;
    assert!(why.contains("comes from a console"), "{why}");
    let Answer::Check(reasons) = node.client().ask(&Request::Check(master)) else {
        panic!("check has no such answer");
    };
    assert_eq!(reasons, std::slice::from_ref(why));
    assert_eq!(tasks_on(node, "n1"), [master]);
    // The last host that takes tasks cannot be drained.
    let Answer::Failed(failed) = node
        .client()
        .ask(&Request::Drain("n2".to_owned(), DrainWay::default()))
    else {
        panic!("it has nowhere to drain to");
    };
    assert_eq!(failed.kind, FailKind::Refused);
    assert!(failed.text.contains("run on where they are"), "{failed}");
    assert_eq!(tasks_on(node, "n2").len(), MEMBERS);
    // After the drain is undone, the host takes tasks again: all tasks of the other host.
    let undo = Request::Undrain("n1".to_owned());
    assert_eq!(node.client().ask(&undo), Answer::Done);
    assert_eq!(drain(node, "n2").refused_count, 0);
    assert_eq!(tasks_on(node, "n1").len(), MEMBERS + 1);
    end(run);
}

#[test]
fn a_machine_of_one_host_has_nowhere_to_drain_to() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let Answer::Started(tids) = node
        .client()
        .ask(&Request::Spawn(spawn("vmtest", &["idle"])))
    else {
        panic!("it was not started");
    };
    let Answer::Failed(failed) = node
        .client()
        .ask(&Request::Drain("n1".to_owned(), DrainWay::default()))
    else {
        panic!("it has nowhere to drain to");
    };
    assert!(failed.text.contains("add one"), "{failed}");
    assert_eq!(state_of(node, "n1"), HostState::Live);
    assert_eq!(tasks_on(node, "n1"), tids);
    let Answer::Check(reasons) = node.client().ask(&Request::Check(tids[0])) else {
        panic!("check has no such answer");
    };
    let nowhere = |reason: &String| reason.contains("there is no other host that takes tasks");
    assert!(reasons.iter().any(nowhere), "{reasons:?}");
}

#[test]
fn sigterm_drains_a_host_with_that_option_and_ends_tasks_that_cannot_leave() {
    let mut cluster = Cluster::on_loopback(2);
    cluster.add(&["--on-term", "drain", "--grace", "60"]);
    let run = ring(&cluster.nodes[0], "65536");
    let there = tasks_on(&cluster.nodes[0], "n3");
    assert!(!there.is_empty(), "no member is on n3");
    cluster.nodes[2].signal(Signal::TERM);
    assert!(cluster.nodes[2].wait_end(PATIENCE).success());
    assert_eq!(state_of(&cluster.nodes[0], "n3"), HostState::Gone);
    assert_eq!(rows(&cluster.nodes[0]).len(), MEMBERS + 1);
    end(run);
    // Without another host, its tasks end.
    let mut alone = Cluster::on_loopback(0);
    alone.add(&["--on-term", "drain", "--grace", "600"]);
    let mut idle = spawn("vmtest", &["idle"]);
    idle.place = Place::Host("n1".to_owned());
    alone.nodes[0].client().ask(&Request::Spawn(idle));
    alone.nodes[0].signal(Signal::TERM);
    assert!(alone.nodes[0].wait_end(PATIENCE).success());
}
