//! The main job over three real daemons finds the same alignments as one process.

use serde_json::Value;
use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};
use vm_integration::cluster::{Cluster, binaries};

/// A stretch with two known hits, in blocks so small that all workers exchange many messages.
const JOB: [&str; 9] = [
    "--start",
    "1204001",
    "--length",
    "6000",
    "--block-rows",
    "500",
    "--block-columns",
    "700",
    "--json",
];

/// The JSON output of a run.
fn report(command: &mut Command) -> Value {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("the program can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}:\n{errors}", output.status);
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn three_hosts_find_what_one_process_finds() {
    let cluster = Cluster::on_loopback(3);
    let serial = report(Command::new(binaries::binary("align-serial")).args(JOB));
    let mut run = Command::new(binaries::binary("vm"));
    run.arg("--dir").arg(&cluster.nodes[0].dir);
    let parallel = report(run.args(["run", "align", "--workers", "5"]).args(JOB));

    assert_eq!(serial["alignments"].as_array().map(Vec::len), Some(2));
    assert_eq!(parallel["alignments"], serial["alignments"]);
    assert_eq!(parallel["cells"], serial["cells"]);

    let workers = parallel["workers"].as_array().expect("a list of workers");
    let hosts: BTreeSet<_> = workers
        .iter()
        .filter_map(|worker| worker["host"].as_str())
        .collect();
    assert_eq!((workers.len(), hosts.len()), (5, 3), "{workers:?}");
    let computed: u64 = workers
        .iter()
        .filter_map(|worker| worker["cells"].as_u64())
        .sum();
    assert_eq!(Some(computed), serial["cells"].as_u64());
    assert!(
        workers
            .iter()
            .all(|worker| worker["blocks"].as_u64() > Some(0)),
        "{workers:?}"
    );
}
