//! Collective calls on a machine of real daemons, while the members move from host to host.

use std::time::Duration;
use vm_integration::cluster::{Cluster, wait_for};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    console::{Answer, Request},
    peer::MoveWay,
};

const MEMBERS: usize = 5;
const MOVES: usize = 20;

#[test]
fn every_collective_call_is_right_while_its_members_move() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    run.run("vmtest", &["collectives-until-told", &MEMBERS.to_string()]);
    let members = wait_for("the members", Duration::from_secs(20), || {
        let Answer::Ps(rows) = node.client().ask(&Request::Ps(None)) else {
            panic!("ps has no such answer");
        };
        let members: Vec<Tid> = rows.iter().skip(1).map(|row| row.tid).collect();
        (members.len() == MEMBERS).then_some(members)
    });
    node.await_movable(&members);
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
    let told = "rounds, every value right";
    assert!(finished.stdout.contains(told), "{}", finished.stdout);
    assert!(
        !finished.stdout.contains(" 0 rounds"),
        "{}",
        finished.stdout
    );
    println!("{MOVES} moves; {}", finished.stdout);
}
