//! Tasks of one host that exchange numbered messages past their daemon, while they are moved, stopped
//! and saved.
//!
//! `VM_MOVES=1000 cargo test --test rings` makes 1000 moves.

use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;
use vm_integration::cluster::{
    Cluster,
    client::NONE_LOST,
    rings::{await_rings, holdings, pid, with_rings},
    wait_for,
};
use vm_wire::{Tid, agreed::ExitStatus};

const MOVES: u32 = 24;
const MEMBERS: usize = 8;
const LIMIT: Duration = Duration::from_secs(30);
/// A member of the ring exchanges messages with two others and its master.
const PEERS: usize = 3;

fn moves() -> u32 {
    let wanted = std::env::var("VM_MOVES").ok();
    wanted.map_or(MOVES, |text| text.parse().expect("VM_MOVES is a number"))
}

#[test]
fn nothing_is_lost_or_left_behind_while_tasks_with_rings_move_and_stop() {
    let mut cluster = Cluster::on_loopback(1);
    let mut run = cluster.nodes[0].client();
    // The ring ends when it gets a line on its standard input.
    run.run("vmtest", &["ring-until-told", "200000"]);
    let all = await_rings(&cluster.nodes[0], MEMBERS, MEMBERS);
    assert_eq!(all.len(), MEMBERS);
    cluster.add(&[]);
    let node = &cluster.nodes[0];
    let tids: Vec<Tid> = all.iter().map(|row| row.tid).collect();
    node.await_movable(&tids);
    for number in 0..moves() as usize {
        // A peer that stands still for the time of a move must not hold the others up for good.
        let stopped = node.members(MEMBERS)[(number + 3) % MEMBERS].clone();
        let process = Pid::from_raw(pid(&stopped) as i32).expect("it runs");
        kill_process(process, Signal::STOP).expect("it runs");
        node.client().move_elsewhere(tids[number % MEMBERS]);
        kill_process(process, Signal::CONT).expect("it runs");
    }
    let rows = await_rings(node, MEMBERS, 2);
    for row in rows {
        let holdings = holdings(pid(&row)).expect("it runs");
        let (rings, descriptors) = (holdings.rings, holdings.descriptors);
        assert!(rings <= PEERS, "{} has {rings} rings", row.tid);
        // Three standard streams, two sockets, the eventfd of the task and those of its peers, and
        // what a save may have open.
        assert!(descriptors <= 12, "{} has {descriptors}", row.tid);
    }
    run.input(b"end\n");
    run.ends_well(NONE_LOST);
}

#[test]
fn an_application_with_rings_restarts_from_its_checkpoint() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let master = run.run("vmtest", &["ring", "6", "200000"]);
    await_rings(node, MEMBERS, MEMBERS);
    let mut console = node.client();
    for _ in 0..3 {
        console.save(master, false).expect("it is saved");
        // The tasks that run on keep their rings.
        await_rings(node, MEMBERS, MEMBERS);
    }
    console.save(master, true).expect("it is saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    console.restart(master).expect("it is restored");
    console.ends_well(NONE_LOST);
}

#[test]
fn a_ring_without_use_is_given_up_and_opened_again_on_demand() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    run.run("vmtest", &["pauses"]);
    let both = await_rings(node, 2, 2);
    run.input(b"wait\n");
    // Both tasks sleep in a receive.
    wait_for("tasks without rings", LIMIT, || {
        (with_rings(&both) == 0).then_some(())
    });
    run.input(b"talk\n");
    await_rings(node, 2, 2);
    run.input(b"end\n");
    run.ends_well("each answered in order");
}
