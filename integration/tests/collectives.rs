//! Collective calls on a machine of real daemons, while the members move from host to host.

use vm_integration::cluster::{Cluster, Node, client::Client};
use vm_wire::{Tid, agreed::ExitStatus};

const MEMBERS: usize = 5;
const MOVES: usize = 20;

const TOLD: &str = "rounds, every value right";

/// Starts the program with its members on all hosts, and waits for them. Returns the members.
fn start(node: &Node, run: &mut Client) -> (Tid, Vec<Tid>) {
    let master = run.run("vmtest", &["collectives-until-told", &MEMBERS.to_string()]);
    let members = node
        .members(MEMBERS)
        .iter()
        .map(|row| row.tid)
        .collect::<Vec<Tid>>();
    node.await_movable(&members);
    (master, members)
}

#[test]
fn every_collective_call_is_right_while_its_members_move() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let (_, members) = start(node, &mut run);
    for number in 0..MOVES {
        node.client().move_elsewhere(members[number % MEMBERS]);
    }
    run.input(b"end\n");
    let finished = run.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
    assert!(finished.stdout.contains(TOLD), "{}", finished.stdout);
    assert!(
        !finished.stdout.contains(" 0 rounds"),
        "{}",
        finished.stdout
    );
    println!("{MOVES} moves; {}", finished.stdout);
}

#[test]
fn collective_calls_go_on_after_a_restart_from_a_checkpoint() {
    let cluster = Cluster::on_loopback(2);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let (master, _) = start(node, &mut run);
    let mut console = cluster.nodes[1].client();
    console.save(master, true).expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    console.restart(master).expect("it can be restarted");
    console.ends_well(TOLD);
}
