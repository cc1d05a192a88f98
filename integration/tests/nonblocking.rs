//! Tasks with started sends and receives, tasks that receive into buffers of their own, and tasks with
//! handlers and contexts, while they are moved, saved and restored: past their daemon by rings, by direct
//! connections, and by the daemons.

use std::{fs, time::Duration};
use vm_integration::cluster::{
    Cluster, Node,
    client::{Client, NONE_LOST},
    wait_for,
};
use vm_wire::{Tid, console::TaskRow};

const MEMBERS: usize = 4;
const MOVES: usize = 12;
const LIMIT: Duration = Duration::from_secs(30);

/// A program whose members send messages until it is told to end.
type Program = &'static [&'static str];

/// The members keep sends and receives open. Messages of up to 3 MB are longer than the window.
const REQUESTS: Program = &["requests-until-told", "4", "3000000"];
/// The members receive into buffers.
const INTO: Program = &["into-until-told", "4"];
/// The members answer in handlers, in a context of their own.
const HANDLERS: Program = &["handlers-until-told", "4"];

/// Starts a program with its members on all hosts. Returns the master and the members.
fn start(node: &Node, run: &mut Client, program: Program) -> (Tid, Vec<TaskRow>) {
    let master = run.run("vmtest", program);
    (master, node.members(MEMBERS))
}

/// Waits until each of these tasks has a ring: it has exchanged messages with a task of its host.
fn await_rings(members: &[TaskRow]) {
    for row in members {
        let pid = row.usage.as_ref().expect("its host has said so").pid;
        wait_for("a ring", LIMIT, || {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
            maps.contains("/memfd:vm-ring").then_some(())
        });
    }
}

fn tids(members: &[TaskRow]) -> Vec<Tid> {
    members.iter().map(|row| row.tid).collect()
}

fn move_all(node: &Node, members: &[Tid]) {
    node.await_movable(members);
    for number in 0..MOVES {
        node.client()
            .move_elsewhere(members[number % members.len()]);
    }
}

/// Saves the application as it is, restores it, and lets it end.
fn restart(node: &Node, mut run: Client, master: Tid) {
    let mut console = node.client();
    console.save(master, false).expect("it is saved");
    console.restarts_well(&mut run, master);
}

/// All members are on one host at first, and move to and fro.
fn move_from_one_host(program: Program) {
    let mut cluster = Cluster::on_loopback(1);
    let mut run = cluster.nodes[0].client();
    let (_, members) = start(&cluster.nodes[0], &mut run, program);
    await_rings(&members);
    cluster.add(&[]);
    move_all(&cluster.nodes[0], &tids(&members));
    run.input(b"end\n");
    run.ends_well(NONE_LOST);
}

fn restore_on_one_host(program: Program) {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let (master, members) = start(node, &mut run, program);
    await_rings(&members);
    restart(node, run, master);
}

fn move_and_restore_on_several_hosts(program: Program) {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let (master, members) = start(node, &mut run, program);
    move_all(node, &tids(&members));
    restart(node, run, master);
}

#[test]
fn tasks_with_open_requests_move_from_host_to_host() {
    move_from_one_host(REQUESTS);
}

#[test]
fn tasks_of_one_host_with_open_requests_are_restored_from_their_checkpoint() {
    restore_on_one_host(REQUESTS);
}

#[test]
fn tasks_of_several_hosts_with_open_requests_move_and_are_restored() {
    move_and_restore_on_several_hosts(REQUESTS);
}

#[test]
fn tasks_that_receive_into_buffers_move_from_host_to_host() {
    move_from_one_host(INTO);
}

#[test]
fn tasks_of_one_host_that_receive_into_buffers_are_restored_from_their_checkpoint() {
    restore_on_one_host(INTO);
}

#[test]
fn tasks_of_several_hosts_that_receive_into_buffers_move_and_are_restored() {
    move_and_restore_on_several_hosts(INTO);
}

#[test]
fn tasks_with_handlers_and_contexts_move_from_host_to_host() {
    move_from_one_host(HANDLERS);
}

#[test]
fn tasks_with_handlers_and_contexts_on_several_hosts_move_and_are_restored() {
    move_and_restore_on_several_hosts(HANDLERS);
}
