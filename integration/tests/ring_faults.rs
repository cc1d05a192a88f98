//! Faults beside rings: peers that are killed, stopped or moved, systems that refuse memory to share
//! or the memory of others, and tasks that write garbage.

use rustix::process::{Pid, Signal, kill_process};
use std::{process::Command, time::Duration};
use tempfile::TempDir;
use vm_integration::cluster::{
    Cluster,
    binaries::binary,
    client::NONE_LOST,
    processes::is_descendant,
    rings::{await_rings, holdings, pid},
    wait_for,
};
use vm_wire::{Tid, console::TaskRow};

/// Both tasks of a duet.
const BOTH: usize = 2;
const SURVIVORS: usize = 5;
/// Messages that a task has sent to each peer before it is killed.
const STREAM_MIN: u64 = 50;
const GARBAGE_WRITERS: usize = 8;
/// Moves of the tasks of a duet.
const MOVES: usize = 12;
/// Times for which a task is stopped.
const STOPS: [Duration; 6] = [
    Duration::from_millis(3),
    Duration::from_millis(30),
    Duration::from_millis(1_000),
    Duration::from_millis(1),
    Duration::from_millis(100),
    Duration::from_millis(300),
];
/// Longest time for a message of 16 MiB in each direction, on a busy computer. A chunk that is only
/// repeated after a second is a part of a second of each megabyte.
const ROUND_MAX: Duration = Duration::from_secs(5);

const MIB: u64 = 1 << 20;

fn signal(row: &TaskRow, signal: Signal) {
    let process = Pid::from_raw(pid(row) as i32).expect("a process id");
    kill_process(process, signal).expect("it runs");
}

/// A machine of one host whose daemon and tasks get an error from that system call.
fn refusing(call: &str) -> Cluster {
    let mut cluster = Cluster::on_loopback(0);
    let inner = cluster.command("n1", &[]);
    let mut command = Command::new(binary("vmtest"));
    command.args(["refusing", call]).arg(inner.get_program());
    command.args(inner.get_args());
    cluster.add_node("n1".to_owned(), command);
    cluster
}

/// The time of the longest round of a duet, from its output.
fn longest_round(text: &str) -> Duration {
    let (_, rest) = text.split_once("the longest round ").expect("its time");
    let (ms, _) = rest.split_once(" ms").expect("its time");
    Duration::from_millis(ms.parse().expect("a number"))
}

#[test]
fn the_peers_of_a_killed_task_get_what_it_has_sent_and_then_its_end() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    for victim in [0, SURVIVORS - 1] {
        let sent = TempDir::new().expect("a folder");
        let folder = sent.path().to_str().expect("a name");
        let mut run = node.client();
        run.run("vmtest", &["survivors", &SURVIVORS.to_string(), folder]);
        let members = await_rings(node, SURVIVORS, SURVIVORS);
        let own = sent.path().join(members[victim].tid.to_string());
        wait_for("a stream to each peer", Duration::from_secs(30), || {
            let held = holdings(pid(&members[victim])).expect("it runs");
            let counts = std::fs::read(&own).unwrap_or_default();
            let counts = counts.as_chunks::<8>().0.iter();
            let many = counts.filter(|count| u64::from_le_bytes(**count) >= STREAM_MIN);
            let all = SURVIVORS - 1;
            (held.rings >= all && many.count() >= all).then_some(())
        });
        signal(&members[victim], Signal::KILL);
        run.ends_well(NONE_LOST);
    }
}

#[test]
fn messages_of_all_lengths_arrive_though_their_tasks_are_stopped_for_a_while() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let largest = (16 * MIB).to_string();
    run.run("vmtest", &["duet", "8", &largest]);
    let members = await_rings(node, BOTH, BOTH);
    for (number, time) in STOPS.into_iter().enumerate() {
        let member = &members[number % BOTH];
        signal(member, Signal::STOP);
        // The length of the fault: nothing is waited for.
        std::thread::park_timeout(time);
        signal(member, Signal::CONT);
    }
    run.input(b"end\n");
    run.ends_well(NONE_LOST);
}

#[test]
fn messages_that_are_lent_arrive_though_either_task_is_moved() {
    let cluster = Cluster::on_loopback(2);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let (least, largest) = (MIB.to_string(), (16 * MIB).to_string());
    run.run("vmtest", &["duet", &least, &largest]);
    let members = await_rings(node, BOTH, BOTH);
    let tids: Vec<Tid> = members.iter().map(|row| row.tid).collect();
    node.await_movable(&tids);
    for number in 0..MOVES {
        // Each second move brings the two to the same host.
        let tid = tids[number / 2 % BOTH];
        node.client().move_elsewhere(tid);
        if number % 2 == 1 {
            await_rings(node, BOTH, BOTH);
        }
    }
    for row in node.members(BOTH) {
        // Where only ancestors may read a process's memory, the daemon is named in their place.
        let pid = pid(&row) as i32;
        let daemons = || cluster.nodes.iter().map(|node| node.pid());
        assert!(daemons().any(|daemon| is_descendant(pid, daemon)));
    }
    run.input(b"end\n");
    run.ends_well(NONE_LOST);
}

#[test]
fn long_messages_go_through_the_ring_where_the_memory_of_others_cannot_be_read() {
    let cluster = refusing("process_vm_readv");
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let largest = (16 * MIB).to_string();
    run.run("vmtest", &["duet", &largest, &largest]);
    await_rings(node, BOTH, BOTH);
    run.input(b"end\n");
    let finished = run.finish();
    assert!(finished.stdout.contains(NONE_LOST), "{finished:?}");
    let longest = longest_round(&finished.stdout);
    println!("the longest round took {longest:?}");
    assert!(longest < ROUND_MAX, "{longest:?}");
}

#[test]
fn messages_go_by_the_daemon_where_it_cannot_make_memory_to_share() {
    let cluster = refusing("memfd_create");
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let largest = (16 * MIB).to_string();
    run.run("vmtest", &["duet", "8", &largest]);
    let members = node.members(BOTH);
    wait_for("a ring that is refused", Duration::from_secs(30), || {
        let said = node
            .log()
            .contains("memory for them to share cannot be made");
        said.then_some(())
    });
    for row in &members {
        let held = holdings(pid(row)).expect("it runs");
        assert_eq!((held.rings, held.memfds), (0, 0), "{held:?}");
    }
    run.input(b"end\n");
    run.ends_well(NONE_LOST);
}

#[test]
fn tasks_that_write_garbage_into_their_rings_harm_nobody_else() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    run.run("vmtest", &["garbage", &GARBAGE_WRITERS.to_string()]);
    run.output_until("garbage is written");
    run.input(b"end\n");
    run.ends_well(NONE_LOST);
    // The daemon serves the next application.
    let mut run = node.client();
    run.run("vmtest", &["duet", "8", "1000000"]);
    await_rings(node, BOTH, BOTH);
    run.input(b"end\n");
    run.ends_well(NONE_LOST);
}
