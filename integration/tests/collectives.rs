//! Collective calls on a machine of real daemons, while the members move from host to host.

use std::time::Duration;
use vm_integration::cluster::{Cluster, Node, client::Client, wait_for};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    console::{Answer, Request},
    peer::MoveWay,
};

const MEMBERS: usize = 5;
const MOVES: usize = 20;

const TOLD: &str = "rounds, every value right";

/// Starts the program with its members on all hosts, and waits for them. Returns the members.
fn start(node: &Node, run: &mut Client) -> (Tid, Vec<Tid>) {
    let master = run.run("vmtest", &["collectives-until-told", &MEMBERS.to_string()]);
    let members = wait_for("the members", Duration::from_secs(20), || {
        let Answer::Ps(rows) = node.client().ask(&Request::Ps(None)) else {
            panic!("ps has no such answer");
        };
        let members: Vec<Tid> = rows.iter().skip(1).map(|row| row.tid).collect();
        (members.len() == MEMBERS).then_some(members)
    });
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
        let tid = members[number % MEMBERS];
        let asked = Request::Move(tid, None, MoveWay::default());
        let answer = node.client().ask(&asked);
        assert!(
            matches!(answer, Answer::Moved(_)),
            "move {number}: {answer:?}"
        );
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
