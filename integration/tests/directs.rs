//! Tasks of different hosts that exchange messages past their daemons, while they are moved, stopped and
//! saved.
//!
//! `VM_MOVES=1000 cargo test --test directs` makes 1000 moves.

use rustix::process::{Pid, Signal, kill_process};
use std::{collections::BTreeSet, fs, time::Duration};
use vm_integration::cluster::{
    Cluster, Node, client::NONE_LOST, rings::pid, wait_for, wanted_moves,
};
use vm_wire::{Tid, console::TaskRow};

const MOVES: u32 = 24;
const MEMBERS: usize = 8;
const LIMIT: Duration = Duration::from_secs(30);
/// The state of a connection in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// Direct connections of a process: a task has no other connection of TCP.
fn directs(pid: u32) -> usize {
    let table = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")));
    let table = table.map(Result::unwrap_or_default).concat();
    let fields = table.lines().map(|line| line.split_whitespace().collect());
    let established: BTreeSet<String> = fields
        .filter(|fields: &Vec<&str>| fields.get(3) == Some(&ESTABLISHED))
        .filter_map(|fields| fields.get(9).map(|inode| format!("socket:[{inode}]")))
        .collect();
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    let descriptors = descriptors.into_iter().flatten().flatten();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter(|link| link.to_str().is_some_and(|link| established.contains(link)))
        .count()
}

/// Waits until `count` of the members have direct connections.
fn await_directs(node: &Node, members: usize, count: usize) -> Vec<TaskRow> {
    wait_for("direct connections between the members", LIMIT, || {
        let members = node.members(members);
        let connected = members.iter().filter(|row| directs(pid(row)) > 0);
        (connected.count() >= count).then_some(members)
    })
}

#[test]
fn nothing_is_lost_while_tasks_with_direct_connections_move_and_stop() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    // The ring ends when it gets a line on its standard input.
    run.run("vmtest", &["ring-until-told", "1048576"]);
    let all = await_directs(node, MEMBERS, MEMBERS);
    let tids: Vec<Tid> = all.iter().map(|row| row.tid).collect();
    node.await_movable(&tids);
    for number in 0..wanted_moves(MOVES) as usize {
        // A peer that stands still for the time of a move must not hold the others up for good.
        let stopped = node.members(MEMBERS)[(number + 3) % MEMBERS].clone();
        let process = Pid::from_raw(pid(&stopped) as i32).expect("it runs");
        kill_process(process, Signal::STOP).expect("it runs");
        node.client().move_elsewhere(tids[number % MEMBERS]);
        kill_process(process, Signal::CONT).expect("it runs");
    }
    await_directs(node, MEMBERS, 2);
    run.input(b"end\n");
    run.ends_well(NONE_LOST);
}

#[test]
fn an_application_with_direct_connections_restarts_from_its_checkpoint() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let master = run.run("vmtest", &["ring", "20", "200000"]);
    await_directs(node, MEMBERS, MEMBERS);
    let mut console = node.client();
    for _ in 0..2 {
        console.save(master, false).expect("it is saved");
        // The tasks that run on keep their connections.
        await_directs(node, MEMBERS, MEMBERS);
    }
    console.restarts_well(&mut run, master);
}

#[test]
fn a_message_of_the_last_call_of_its_sender_follows_a_receiver_that_moves() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().to_str().expect("the path is text");
    let sign = |name: &str| fs::write(folder.path().join(name), "").expect("it can be written");
    let mut run = node.client();
    run.run("vmtest", &["last-call", path]);
    let both = await_directs(node, 2, 2);
    sign("talked");
    wait_for("the last message", LIMIT, || {
        folder.path().join("said").exists().then_some(())
    });
    // The message is in the connection, and its sender makes no call any more.
    assert!(both.iter().all(|row| directs(pid(row)) > 0));
    let is_receiver = |row: &&TaskRow| row.host != node.name;
    let receiver = both.iter().find(is_receiver).expect("it is elsewhere");
    node.client().move_elsewhere(receiver.tid);
    sign("hears");
    run.output_until("heard the last message");
    sign("end");
    run.ends_well("and the last one");
}
