//! Checkpoints, and restarts from them.

use super::*;
use vm_wire::checkpoint::{CheckpointReport, Policy, RestartReport};

#[test]
fn checkpoints_and_restarts_are_shown_in_both_ways() {
    let saved = CheckpointReport {
        generation: 0,
        epoch: 2,
        tasks: 4,
        bytes: 80_000_000,
        stored: 900_000,
        freeze_us: 45_000,
        total_us: 60_000,
        in_transit: 7,
    };
    let policy = Policy {
        every_ms: 300_000,
        keep: 5,
        ..Policy::default()
    };
    let compressed = Policy {
        every_ms: 300_000,
        compress: true,
        blocking: true,
        ..Policy::default()
    };
    let restarted = RestartReport {
        app: tid(1, 1),
        from: vm_store::CheckpointId::new(0, 2),
        generation: 1,
        hosts: vec![(HostId(1), 1), (HostId(2), 2)],
        total_us: 80_000,
        passed_over: vec!["g0-e3: it is half as long".to_owned()],
    };
    let machine = conf();
    assert_both([
        (
            Event::Checkpointed(&saved),
            "checkpoint g0-e2: 4 tasks, 80.0 MB (0.9 stored) in 60.0 ms; frozen for 45.0 ms\n",
            r#"{"bytes":80000000,"checkpoint":"g0-e2","freeze_us":45000,"in_transit":7,"stored":900000,"tasks":4,"total_us":60000}"#,
        ),
        (
            Event::Policy(tid(1, 1), policy),
            "t1.1: a checkpoint every 300 s, 5 are kept\n",
            r#"{"blocking":false,"compress":false,"every_ms":300000,"keep":5,"mtbf_ms":null,"recover":"host","tid":"t1.1"}"#,
        ),
        (
            Event::Policy(tid(1, 1), compressed),
            "t1.1: a checkpoint every 300 s, 3 are kept, compressed, tasks are frozen while they are saved\n",
            r#"{"blocking":true,"compress":true,"every_ms":300000,"keep":null,"mtbf_ms":null,"recover":"host","tid":"t1.1"}"#,
        ),
        (
            Event::Policy(tid(1, 1), Policy::default()),
            "t1.1: no automatic checkpoints any more\n",
            r#"{"blocking":false,"compress":false,"every_ms":0,"keep":null,"mtbf_ms":null,"recover":"host","tid":"t1.1"}"#,
        ),
        (
            Event::Stopped(&saved),
            "stopped with checkpoint g0-e2: 4 tasks, 80.0 MB (0.9 stored) in 60.0 ms\n",
            r#"{"bytes":80000000,"freeze_us":45000,"in_transit":7,"stopped":"g0-e2","stored":900000,"tasks":4,"total_us":60000}"#,
        ),
        (
            Event::Suspended(tid(1, 1), &saved),
            "t1.1 suspended with checkpoint g0-e2: 4 tasks, 80.0 MB (0.9 stored) in 60.0 ms; \
             'vm resume t1.1' resumes it\n",
            r#"{"bytes":80000000,"checkpoint":"g0-e2","freeze_us":45000,"stored":900000,"suspended":"t1.1","tasks":4,"total_us":60000}"#,
        ),
        (
            Event::Restarted(&restarted, &machine),
            "\
g0-e3: it is half as long
t1.1 restarted from g0-e2 in 80.0 ms: 1 task on alpha, 2 tasks on beta
",
            r#"{"checkpoint":"g0-e2","generation":1,"hosts":[{"host":"alpha","tasks":1},{"host":"beta","tasks":2}],"passed_over":["g0-e3: it is half as long"],"restarted":"t1.1","total_us":80000}"#,
        ),
    ]);
}

#[test]
fn the_report_of_a_resumed_application_says_so() {
    let conf = conf();
    let report = RestartReport {
        app: tid(1, 1),
        from: vm_store::CheckpointId::new(0, 2),
        generation: 1,
        hosts: vec![(HostId(1), 1)],
        total_us: 1_000,
        passed_over: Vec::new(),
    };
    let text = shown(Audience::People, &Event::Resumed(&report, &conf));
    assert!(text.starts_with("t1.1 resumed from g0-e2"), "{text}");
}
