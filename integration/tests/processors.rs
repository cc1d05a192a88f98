//! Tasks that move between daemons with different sets of processors.

use std::{fs, process::Command};
use vm_integration::cluster::{
    Cluster, PATIENCE,
    client::{Client, spawn},
    groups::Group,
    wait_for,
};
use vm_wire::{
    Tid,
    console::{Answer, Request},
    peer::MoveWay,
    task::Place,
};

/// Prefix of the log line about a task that does not have the processors that its program has
/// chosen.
const ELSEWHERE: &str = "runs on other processors than its program has chosen";

/// Whether the first two processors may be used.
fn are_two() -> bool {
    let is_so = processors("self").starts_with("0-");
    if !is_so {
        eprintln!("skipped: there is but one processor");
    }
    is_so
}

/// The processors that a process may use, as a list.
fn processors(process: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.expect("Linux tells").trim().to_owned()
}

/// A machine of two hosts. The command of `n1` is made by `first`.
fn machine(first: impl FnOnce(&Command) -> Command) -> Cluster {
    let mut cluster = Cluster::on_loopback(0);
    let command = first(&cluster.command("n1", &[]));
    cluster.add_node("n1".to_owned(), command);
    cluster.add(&[]);
    cluster
}

/// Starts a task on a host, and waits until it can be moved.
fn start(cluster: &Cluster, host: &str, args: &[&str]) -> Tid {
    let mut wanted = spawn("vmtest", args);
    wanted.place = Place::Host(host.to_owned());
    let answer = cluster.nodes[0].client().ask(&Request::Spawn(wanted));
    let Answer::Started(tids) = answer else {
        panic!("{answer:?}");
    };
    cluster.nodes[0].await_movable(&tids);
    tids[0]
}

/// The processors that a task may use, as the kernel lists them.
fn processors_of(console: &mut Client, tid: Tid) -> String {
    let pid = wait_for("the task's process", PATIENCE, || {
        let Answer::Ps(rows) = console.ask(&Request::Ps(None)) else {
            panic!("ps has no such answer");
        };
        let row = rows.into_iter().find(|row| row.tid == tid)?;
        Some(row.usage?.pid)
    });
    processors(&pid.to_string())
}

/// Moves a task. Returns the processors that it may use then.
fn moved(console: &mut Client, tid: Tid, host: &str) -> String {
    let to = Some(host.to_owned());
    let answer = console.ask(&Request::Move(tid, to, MoveWay::default()));
    assert!(matches!(answer, Answer::Moved(_)), "{answer:?}");
    processors_of(console, tid)
}

#[test]
fn a_task_that_chose_no_processors_has_those_of_each_daemon_that_it_comes_to() {
    if !are_two() {
        return;
    }
    let cluster = machine(|daemon| {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]);
        command.arg(daemon.get_program()).args(daemon.get_args());
        command
    });
    let all = processors(&cluster.nodes[1].pid().to_string());
    let mut console = cluster.nodes[0].client();
    let task = start(&cluster, "n1", &["idle"]);
    assert_eq!(processors_of(&mut console, task), "0");
    assert_eq!(moved(&mut console, task, "n2"), all);
    assert_eq!(moved(&mut console, task, "n1"), "0");
    // A task whose program has chosen another processor keeps it: the processor is available there.
    let task = start(&cluster, "n2", &["idle-on", "1"]);
    assert_eq!(moved(&mut console, task, "n1"), "1");
    assert!(!cluster.nodes[0].log().contains(ELSEWHERE));
}

#[test]
fn a_task_whose_processors_are_missing_has_the_daemons_and_the_log_says_so() {
    if !are_two() {
        return;
    }
    let Some(group) = Group::of_processors("0") else {
        return;
    };
    let cluster = machine(|daemon| group.command(daemon));
    let mut console = cluster.nodes[0].client();
    let task = start(&cluster, "n2", &["idle-on", "1"]);
    assert_eq!(moved(&mut console, task, "n1"), "0");
    let said = format!("task {task} {ELSEWHERE}");
    wait_for("the log", PATIENCE, || {
        cluster.nodes[0].log().contains(&said).then_some(())
    });
    drop(cluster);
}
