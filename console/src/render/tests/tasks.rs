//! Tasks, and suspended applications and tasks.

use super::*;
use vm_wire::{
    console::{SuspendedRow, TaskRow},
    peer::UsageRow,
};

fn tasks() -> Vec<TaskRow> {
    let task = |tid, parent, host: &str, usage| TaskRow {
        tid,
        parent,
        app: fake::tid(1, 1),
        host: host.to_owned(),
        incarnation: 1,
        program: "align".to_owned(),
        usage,
        suspended: false,
    };
    let usage = |tid, cpu_ms, memory| {
        Some(UsageRow {
            tid,
            pid: 4242,
            cpu_ms,
            memory,
            state: 'R',
        })
    };
    let (master, a, b, c) = (tid(1, 1), tid(1, 2), tid(2, 1), tid(2, 2));
    vec![
        task(c, a, "beta", None),
        task(b, master, "beta", usage(b, 62_500, 3 << 30)),
        task(master, Tid::NONE, "alpha", usage(master, 40, 5 << 20)),
        task(a, master, "alpha", usage(a, 3_723_000, 1000)),
    ]
}

#[test]
fn people_and_programs_see_which_task_is_suspended() {
    let mut tasks = tasks();
    tasks[0].suspended = true;
    let people = shown(Audience::People, &Event::Tasks(&tasks, &[]));
    let suspended: Vec<&str> = people
        .lines()
        .filter(|it| it.contains("suspended"))
        .collect();
    assert!(
        matches!(suspended[..], [line] if line.contains("t2.2")),
        "{people}"
    );
    let value = shown(Audience::Programs, &Event::Tasks(&tasks, &[]));
    let value: serde_json::Value = serde_json::from_str(&value).expect("JSON");
    assert_eq!(value["tasks"][0]["suspended"], true);
    assert_eq!(value["tasks"][1]["suspended"], false);
}

#[test]
fn people_see_children_below_their_parents() {
    assert_eq!(
        shown(Audience::People, &Event::Tasks(&tasks(), &[])),
        "\
TASK        HOST   PROGRAM   PID  STATE      CPU   MEMORY
t1.1        alpha  align    4242  R       0.04 s  5.0 MiB
├─ t1.2     alpha  align    4242  R      1:02:03   1000 B
│  └─ t2.2  beta   align       -  -            -        -
└─ t2.1     beta   align    4242  R         1:02  3.0 GiB
"
    );
    assert_eq!(
        shown(Audience::People, &Event::Tasks(&[], &[])),
        "no tasks\n"
    );
}

#[test]
fn people_and_programs_see_suspended_applications() {
    let row = |own, until_ms, drained: Option<&str>, resuming| SuspendedRow {
        app: tid(1, own),
        program: "heat".to_owned(),
        tasks: 3,
        from: vm_store::CheckpointId::new(1, 4),
        since_ms: 1_000_000_000_000,
        until_ms,
        drained: drained.map(str::to_owned),
        resuming,
    };
    let rows = [
        row(1, 0, None, false),
        row(2, 1_000_007_200_000, None, false),
        row(3, 0, Some("beta"), true),
    ];
    assert_eq!(
        shown(Audience::People, &Event::Tasks(&[], &rows)),
        "\
no tasks
t1.1 (heat, 3 tasks) is suspended with g1-e4 since 2001-09-09T01:46:40Z; 'vm resume t1.1' resumes it
t1.2 (heat, 3 tasks) is suspended with g1-e4 since 2001-09-09T01:46:40Z until 2001-09-09T03:46:40Z; 'vm resume t1.2' resumes it
t1.3 (heat, 3 tasks) is suspended with g1-e4 since 2001-09-09T01:46:40Z, as beta drained; it is being resumed
"
    );
    let text = shown(Audience::Programs, &Event::Tasks(&[], &rows));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let second = &value["suspended"][1];
    assert_eq!(second["app"], "t1.2");
    assert_eq!(second["checkpoint"], "g1-e4");
    assert_eq!(second["until"], "2001-09-09T03:46:40Z");
    assert_eq!(second["drained"], serde_json::Value::Null);
    assert_eq!(value["suspended"][2]["resuming"], true);
}

#[test]
fn programs_see_tids_as_text_and_unknown_values_as_null() {
    let text = shown(Audience::Programs, &Event::Tasks(&tasks(), &[]));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["tasks"][0]["tid"], "t2.2");
    assert_eq!(value["tasks"][0]["usage"], serde_json::Value::Null);
    assert_eq!(value["tasks"][2]["parent"], serde_json::Value::Null);
    assert_eq!(value["tasks"][1]["usage"]["cpu_ms"], 62_500);
}

#[test]
fn commands_on_tasks_are_shown_in_both_ways() {
    let reasons = ["it has no way back".to_owned()];
    assert_both([
        (
            Event::Started(&[tid(1, 1), tid(2, 1)]),
            "t1.1\nt2.1\n",
            r#"{"started":["t1.1","t2.1"]}"#,
        ),
        (
            Event::Signalled(tid(1, 1), 15),
            "t1.1: sent SIGTERM\n",
            r#"{"signal":15,"tid":"t1.1"}"#,
        ),
        (
            Event::Check(tid(1, 1), &[]),
            "t1.1 can be moved\n",
            r#"{"movable":true,"reasons":[],"tid":"t1.1"}"#,
        ),
        (
            Event::Check(tid(1, 1), &reasons),
            "t1.1 cannot be moved: it has no way back\n",
            r#"{"movable":false,"reasons":["it has no way back"],"tid":"t1.1"}"#,
        ),
    ]);
}
