//! Machines in control groups that limit their memory, as a batch system does for a job: daemon and
//! tasks survive, and checkpoints are made.
//!
//! The tests need root and a hierarchy of control groups for memory. Without them, they print so
//! and pass.

use std::fs;
use vm_integration::cluster::{
    Cluster, PATIENCE,
    client::{Client, spawn},
    groups::Group,
    wait_for,
};
use vm_store::{State, Store};
use vm_wire::{
    Tid,
    checkpoint::Policy,
    console::{Answer, Request},
};

/// The memory limit of the daemon and all its children together. MiB.
const LIMIT: u64 = 320;
/// The memory that a task rewrites: more than half of the limit. MiB.
const TASK: &str = "180";
/// The `oom_score_adj` of a task minus that of its daemon.
const TASK_SCORE: i32 = 300;

/// A machine of one host in a control group.
fn machine(group: &Group) -> Cluster {
    let mut cluster = Cluster::on_loopback(0);
    let command = group.command(&cluster.command("n1", &[]));
    cluster.add_node("n1".to_owned(), command);
    cluster
}

/// The processes of tasks.
fn processes(console: &mut Client) -> Vec<(Tid, u32)> {
    match console.ask(&Request::Ps(None)) {
        Answer::Ps(rows) => rows
            .iter()
            .filter_map(|row| Some((row.tid, row.usage.as_ref()?.pid)))
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn score(pid: u32) -> i32 {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("it runs");
    text.trim().parse().expect("a number")
}

/// Checks that checkpoints are made, under `policy`, of a task that rewrites more than half of the
/// memory limit.
fn checkpoints_are_made(policy: Policy) {
    let Some(group) = Group::of_memory(LIMIT) else {
        return;
    };
    let cluster = machine(&group);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["rewriter", TASK]);
    run.output_until("it goes");
    let mut console = cluster.nodes[0].client();
    let answer = console.ask(&Request::Policy(master, policy));
    assert_eq!(answer, Answer::Done);
    for _ in 0..3 {
        console.save(master, false).expect("there is room for it");
    }
    run.input(b"end\n");
    run.output_until("all of it is of one round");
    let store = Store::open(cluster.store()).expect("a store");
    let entries = store.list().expect("it can be listed");
    assert!(!entries.is_empty());
    for entry in entries {
        assert!(matches!(entry.state, State::Committed(_)), "{entry:?}");
        store.verify(entry.app, entry.id).expect("it is whole");
    }
    assert_eq!(group.killed(), 0);
    drop(cluster);
}

#[test]
fn no_copy_is_made_where_a_limit_has_no_room_for_it() {
    // The checkpoints follow each other closely, so that images could also be kept in memory.
    checkpoints_are_made(Policy {
        every_ms: 100_000,
        ..Policy::default()
    });
}

#[test]
fn no_image_is_left_in_memory_where_a_limit_has_no_room_for_it() {
    checkpoints_are_made(Policy {
        blocking: true,
        ..Policy::default()
    });
}

#[test]
fn a_daemon_is_killed_after_its_tasks_wherever_they_came_from() {
    let cluster = Cluster::on_loopback(1);
    let daemon = score(cluster.nodes[0].process.id());
    let tasks = (daemon + TASK_SCORE).min(1000);
    let mut console = cluster.nodes[0].client();
    let Answer::Started(tids) = console.ask(&Request::Spawn(spawn("vmtest", &["idle"]))) else {
        panic!("it cannot be started");
    };
    wait_for("a checkpoint", PATIENCE, || {
        console.save(tids[0], false).ok()
    });
    let started = processes(&mut console);
    assert_eq!(started.len(), 1);
    assert_eq!(score(started[0].1), tasks);
    console.save(tids[0], true).expect("it can be saved");
    let mut run = cluster.nodes[0].client();
    run.restart(tids[0]).expect("it can be brought back");
    let back = processes(&mut console);
    assert_eq!(back.len(), 1);
    assert_ne!(back, started);
    assert_eq!(score(back[0].1), tasks);
}
