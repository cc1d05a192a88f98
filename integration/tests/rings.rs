//! Tasks of one host that exchange numbered messages past their daemon, while they are moved, stopped
//! and saved.
//!
//! `VM_MOVES=1000 cargo test --test rings` makes 1000 moves.

use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;
use vm_integration::cluster::{
    Cluster,
    client::NONE_LOST,
    rings::{Holdings, await_rings, holdings, pid, with_rings},
    wait_for, wanted_moves,
};
use vm_wire::Tid;

const MOVES: u32 = 24;
const MEMBERS: usize = 8;
const LIMIT: Duration = Duration::from_secs(30);
/// A member of the ring exchanges messages with two others and its master.
const PEERS: usize = 3;
/// Descriptors that a daemon may have for its link to the other host.
const OF_LINK: usize = 4;
/// Memory by which a process may grow in the second half of the moves, whatever their number: KiB.
const GROWTH_MAX_KIB: u64 = 8 * 1024;
/// Ranges of memory by which it may grow: those of rings, and some of threads and of its allocator.
const MAPPINGS_MAX: usize = 8;

/// The resources of the daemons, and those of the members, which all run.
fn all_holdings(cluster: &Cluster) -> (Vec<Holdings>, Vec<Holdings>) {
    let daemons = cluster.nodes.iter().map(|node| node.pid() as u32);
    let members = cluster.nodes[0].members(MEMBERS);
    let held = |pid| holdings(pid).expect("it runs");
    (
        daemons.map(held).collect(),
        members.iter().map(|row| held(pid(row))).collect(),
    )
}

/// Nothing became more between two moments, with about the same rings.
fn expect_no_growth(before: &[Holdings], after: &[Holdings]) {
    for (before, after) in before.iter().zip(after) {
        let grown = after.memory_kib.saturating_sub(before.memory_kib);
        println!("{before:?} became {after:?}");
        assert!(grown <= GROWTH_MAX_KIB, "{before:?} became {after:?}");
        let mapped = after.mappings.saturating_sub(before.mappings);
        assert!(mapped <= MAPPINGS_MAX, "{before:?} became {after:?}");
    }
}

#[test]
fn nothing_is_lost_or_left_behind_while_tasks_with_rings_move_and_stop() {
    let mut cluster = Cluster::on_loopback(1);
    let alone = holdings(cluster.nodes[0].pid() as u32).expect("it runs");
    let mut run = cluster.nodes[0].client();
    // The ring ends when it gets a line on its standard input.
    run.run("vmtest", &["ring-until-told", "200000"]);
    let all = await_rings(&cluster.nodes[0], MEMBERS, MEMBERS);
    assert_eq!(all.len(), MEMBERS);
    cluster.add(&[]);
    let joined = holdings(cluster.nodes[1].pid() as u32).expect("it runs");
    let node = &cluster.nodes[0];
    let tids: Vec<Tid> = all.iter().map(|row| row.tid).collect();
    node.await_movable(&tids);
    let mut half_way = None;
    for number in 0..wanted_moves(MOVES) as usize {
        // A peer that stands still for the time of a move must not hold the others up for good.
        let stopped = node.members(MEMBERS)[(number + 3) % MEMBERS].clone();
        let process = Pid::from_raw(pid(&stopped) as i32).expect("it runs");
        kill_process(process, Signal::STOP).expect("it runs");
        node.client().move_elsewhere(tids[number % MEMBERS]);
        kill_process(process, Signal::CONT).expect("it runs");
        if number == wanted_moves(MOVES) as usize / 2 {
            half_way = Some(all_holdings(&cluster));
        }
    }
    await_rings(node, MEMBERS, 2);
    let (daemons, members) = all_holdings(&cluster);
    for held in &members {
        assert!(held.rings <= PEERS, "{held:?}");
        // Three standard streams, two sockets, the eventfd of the task and those of its peers, and
        // what a save may have open.
        assert!(held.descriptors <= 12 && held.memfds == 0, "{held:?}");
    }
    for held in &daemons {
        assert!(held.eventfds <= alone.eventfds + MEMBERS + 1, "{held:?}");
    }
    if let Some((daemons_before, members_before)) = half_way {
        expect_no_growth(&daemons_before, &daemons);
        expect_no_growth(&members_before, &members);
    }
    run.input(b"end\n");
    run.ends_well(NONE_LOST);
    for (node, before) in cluster.nodes.iter().zip([alone, joined]) {
        let is_free = |held: &Holdings| {
            (held.rings, held.memfds, held.eventfds) == (0, before.memfds, before.eventfds)
                && held.descriptors <= before.descriptors + OF_LINK
        };
        wait_for("a daemon that holds nothing of the tasks", LIMIT, || {
            let held = holdings(node.pid() as u32).expect("it runs");
            is_free(&held).then_some(())
        });
    }
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
    console.restarts_well(&mut run, master);
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
