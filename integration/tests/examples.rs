//! The examples whose tasks exchange messages all the time, over real daemons, while a task moves.

use serde_json::Value;
use std::process::{Command, Stdio};
use vm_integration::cluster::{Cluster, binaries};
use vm_wire::{
    console::{Answer, Request},
    peer::MoveWay,
};

/// The JSON output of a run, during which two workers move to other hosts.
fn report(cluster: &Cluster, words: &[&str]) -> Value {
    let node = &cluster.nodes[0];
    let mut run = Command::new(binaries::binary("vm"));
    run.arg("--dir").arg(&node.dir).arg("run").args(words);
    let run = run.arg("--json").stdin(Stdio::null());
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().expect("the console can be started");
    let output = std::thread::scope(|scope| {
        let output = scope.spawn(|| child.wait_with_output().expect("it ends"));
        let mut moved = 0;
        while !output.is_finished() && moved < 4 {
            let Answer::Ps(rows) = node.client().ask(&Request::Ps(None)) else {
                panic!("ps has no such answer");
            };
            // The task may be ending, or may not have enrolled.
            if let Some(row) = rows.last().filter(|_| rows.len() > 1) {
                let ask = Request::Move(row.tid, None, MoveWay::default());
                let answer = node.client().ask(&ask);
                moved += u32::from(matches!(answer, Answer::Moved(_)));
            }
        }
        output.join().expect("no panic")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}:\n{errors}", output.status);
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn heat_spreads_over_three_hosts_as_over_one() {
    let cluster = Cluster::on_loopback(3);
    let picture = cluster.nodes[0].dir.join("heat.png");
    let path = picture.display().to_string();
    let words = ["heat", "--workers", "4", "--size", "200", "--steps", "2000"];
    let words = [&words[..], &["--until", "0", "--verify", "--out", &path]].concat();
    let report = report(&cluster, &words);
    assert_eq!(
        (&report["steps"], &report["workers"]),
        (&2000.into(), &4.into())
    );
    assert_eq!(report["verified"], true);
    let picture = std::fs::read(picture).expect("it was painted");
    assert!(picture.starts_with(b"\x89PNG"));
}

#[test]
fn a_product_is_the_same_whatever_the_workers() {
    let cluster = Cluster::on_loopback(2);
    let sums = ["1", "3"].map(|workers| {
        let words = [
            "matmul",
            "--size",
            "96",
            "--rounds",
            "20",
            "--workers",
            workers,
        ];
        report(&cluster, &words)["sum"].clone()
    });
    assert_eq!(sums[0], sums[1]);
}
