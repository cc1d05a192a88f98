//! `cargo longrun`, as long as a test may take. Only the result is checked: other work of the
//! computer changes the time.

use serde_json::Value;
use std::process::{Command, Stdio};
use vm_integration::cluster::binaries;

#[test]
fn a_run_that_loses_two_hosts_at_random_computes_every_bit_as_one_process_does() {
    let mut run = Command::new(binaries::binary("longrun"));
    run.args(["--json", "--untimed", "--hosts", "3", "--tasks", "6"]);
    run.args(["--minutes", "0.35", "--checkpoint-every", "3"]);
    // The founder, which leads and has the master, is lost first; another host is lost as soon as
    // the founder is back.
    run.args(["--seed", "7", "--mean", "4", "--back", "6", "--losses", "2"]);
    let run = run
        .stdin(Stdio::null())
        .output()
        .expect("it can be started");
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}:\n{errors}", run.status);
    let report: Value = serde_json::from_slice(&run.stdout).expect("one JSON object");
    let many = |key: &str| report[key].as_array().expect("a list").len();
    assert_eq!(many("losses"), 2, "{report}");
    assert!(many("recoveries") > 0, "{report}");
    assert_eq!(report["fingerprint"], report["expected"]);
}
