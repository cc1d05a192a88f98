//! A sample machine, shown in both ways.

use super::*;
use crate::{
    ask::DaemonFacts,
    bucket::{BucketRow, Known},
    checkpoints::Row,
    fake::{self, HERE, tid},
};
use std::{cell::RefCell, path::Path, rc::Rc};
use vm_bucket::{Address, Fetched, Pushed};
use vm_wire::{
    HostId, Tid,
    agreed::{ExitStatus, HostFacts},
    checkpoint::{CheckpointReport, Policy},
    console::{HostRow, HostState, Output, SuspendedRow, TaskRow},
    peer::{DrainReport, MoveReport, UsageRow},
    task::{FailKind, Failed},
};

/// A writer whose bytes a test can see.
#[derive(Clone, Default)]
pub struct Seen(Rc<RefCell<Vec<u8>>>);

impl Write for Seen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seen {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.borrow()).into_owned()
    }
}

/// A renderer, and what it writes as result and as error.
pub fn renderer(audience: Audience) -> (Renderer, Seen, Seen) {
    let (out, errors) = (Seen::default(), Seen::default());
    let mut renderer = Renderer::new(audience, Box::new(out.clone()), Box::new(errors.clone()));
    renderer.set_machine(HERE);
    (renderer, out, errors)
}

fn shown(audience: Audience, event: &Event) -> String {
    let (mut renderer, out, _) = renderer(audience);
    renderer.show(event).unwrap();
    out.text()
}

fn conf() -> Conf {
    let host = |number: u16, name: &str, state, voter, tasks| HostRow {
        host: HostId(number),
        facts: HostFacts {
            name: name.to_owned(),
            addr: format!("10.0.0.{number}:7000"),
            cpus: 2,
            tasks_max: 4096,
            arch: "x86_64".to_owned(),
            store_local: false,
        },
        tasks,
        voter,
        state,
    };
    Conf {
        machine: HERE,
        here: HostId(2),
        leader: HostId(1),
        applied: 41,
        store: "/var/vm/store".to_owned(),
        hosts: vec![
            host(1, "alpha", HostState::Live, true, 3),
            host(2, "beta", HostState::Live, false, 0),
            host(3, "gamma-with-a-long-name", HostState::Dead, false, 0),
        ],
        links_down: vec![(HostId(1), HostId(2))],
    }
}

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

fn moved() -> MoveReport {
    MoveReport {
        from: HostId(2),
        to: HostId(1),
        bytes: 5_000_000,
        total_us: 40_000,
        copied: 4_000_000,
        rounds: 2,
        prepare_us: 5_000,
        copy_us: 5_000,
        interrupt_us: 1_000,
        save_us: 9_000,
        transfer_us: 4_000,
        restore_us: 6_000,
        drain_us: 1_000,
        commit_us: 9_000,
        sent_again: 2,
    }
}

#[test]
fn on_a_terminal_no_line_of_a_move_is_long() {
    let (mut renderer, out, _) = renderer(Audience::People);
    let (moved, conf) = (moved(), conf());
    let event = Event::Moved(tid(2, 1), &moved, &conf);
    renderer.set_to_terminal(true);
    renderer.show(&event).unwrap();
    assert_eq!(
        out.text(),
        "\
t2.1 moved from beta to alpha: 5.0 MB in 40.0 ms,
  4.0 MB of them while it ran (2 rounds); it stood still for 30.0 ms
  (interrupt 1.0, save 9.0, transfer 4.0, restore 6.0, drain 1.0, commit 9.0);
  2 chunks sent again
"
    );
    let one_line = shown(Audience::People, &event);
    assert_eq!(out.text().replace("\n  ", " "), one_line);
}

#[test]
fn people_see_the_machine_as_a_table() {
    assert_eq!(
        shown(Audience::People, &Event::Conf(&conf())),
        "\
machine 00beef, 2 hosts, 3 tasks

HOST  NAME                    ADDRESS        ROLE      STATE  TASKS   CPUS  ARCH
h1    alpha                   10.0.0.1:7000  leader    live   3/4096     2  x86_64
h2 *  beta                    10.0.0.2:7000  follower  live   0/4096     2  x86_64
h3    gamma-with-a-long-name  10.0.0.3:7000  -         dead   -          2  x86_64

alpha and beta cannot reach each other
"
    );
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
fn people_and_programs_see_what_is_suspended() {
    let row = |own, until_ms, drained: Option<&str>, resuming| SuspendedRow {
        app: tid(1, own),
        program: "heat".to_owned(),
        tasks: 3,
        from: (1, 4),
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
t1.1 (heat, 3 tasks) is suspended with g1-e4 since 2001-09-09T01:46:40Z; 'vm resume t1.1' brings it back
t1.2 (heat, 3 tasks) is suspended with g1-e4 since 2001-09-09T01:46:40Z until 2001-09-09T03:46:40Z; 'vm resume t1.2' brings it back
t1.3 (heat, 3 tasks) is suspended with g1-e4 since 2001-09-09T01:46:40Z, as beta drained; it is just being resumed
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
fn programs_see_one_json_value_a_line() {
    let text = shown(Audience::Programs, &Event::Conf(&conf()));
    assert_eq!(text.lines().count(), 1);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["machine"], "00beef");
    assert_eq!(value["hosts"][1]["here"], true);
    assert_eq!(value["hosts"][0]["role"], "leader");
    assert_eq!(value["hosts"][2]["state"], "dead");
    assert_eq!(value["links_down"][0][1], "beta");

    let text = shown(Audience::Programs, &Event::Tasks(&tasks(), &[]));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["tasks"][0]["tid"], "t2.2");
    assert_eq!(value["tasks"][0]["usage"], serde_json::Value::Null);
    assert_eq!(value["tasks"][2]["parent"], serde_json::Value::Null);
    assert_eq!(value["tasks"][1]["usage"]["cpu_ms"], 62_500);
}

#[test]
fn every_event_is_shown_in_both_ways() {
    let output = Output {
        tid: tid(1, 1),
        stream: 1,
        bytes: b"hello\n".to_vec().into(),
        dropped: 0,
    };
    let facts = DaemonFacts {
        protocol: 1,
        release: "0.1.0".to_owned(),
        machine: HERE,
        host: HostId(1),
    };
    let reasons = ["it has no way back".to_owned()];
    let moved = moved();
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
        from: (0, 2),
        generation: 1,
        hosts: vec![(HostId(1), 1), (HostId(2), 2)],
        total_us: 80_000,
        passed_over: vec!["g0-e3: it is half as long".to_owned()],
    };
    let row = |epoch, summary, damaged: Option<&str>| Row {
        app: tid(1, 1),
        id: vm_store::CheckpointId::new(0, epoch),
        summary,
        damaged: damaged.map(str::to_owned),
        alone: if epoch == 4 { 2 } else { 0 },
        in_bucket: None,
    };
    let summary = vm_store::Summary {
        taken_ms: 1_000_000_000_000,
        bytes: 80_000_000,
        stored: 900_000,
        base: Some(vm_store::CheckpointId::new(0, 1)),
        tasks: 4,
        freeze_us: 45_000,
        took_us: 1_060_000,
        in_transit: 7,
        program: "heat".to_owned(),
    };
    let half = Some("it is half as long");
    let rows = [
        row(2, Some(summary.clone()), None),
        row(3, None, half),
        row(4, Some(summary), None),
    ];
    let mut copied = row(3, None, half);
    copied.in_bucket = Some(false);
    let address = Address::parse("s3://saved/x", None).expect("an address");
    let known = Known {
        address: address.clone(),
        failed: Some("it is away".to_owned()),
    };
    let pushed = Pushed {
        copied: vec![(tid(1, 1), vm_store::CheckpointId::new(0, 3))],
        bytes: 7,
        removed: vec![(tid(1, 1), vm_store::CheckpointId::new(0, 1))],
        failed: Vec::new(),
    };
    let fetched = Fetched {
        good: Some(vm_store::CheckpointId::new(0, 2)),
        fetched: true,
        passed_over: vec![(vm_store::CheckpointId::new(0, 3), "it is half".to_owned())],
    };
    let in_bucket = [BucketRow {
        row: row(3, None, half),
        here: true,
    }];
    let copied = [copied];
    let drained = DrainReport {
        host: HostId(2),
        total_us: 250_000,
        moved_count: 1,
        refused_count: 1,
        saved_count: 0,
        moved: vec![(tid(2, 1), moved.clone())],
        refused: vec![(tid(2, 2), Failed::new(FailKind::Refused, &reasons[0]))],
        suspended: Vec::new(),
    };
    let emptied = DrainReport {
        moved_count: 0,
        refused_count: 0,
        saved_count: 2,
        moved: Vec::new(),
        refused: Vec::new(),
        suspended: vec![tid(1, 1)],
        ..drained
    };
    let machine = conf();
    for (event, people, programs) in [
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
        (
            Event::Moved(tid(2, 1), &moved, &machine),
            "t2.1 moved from beta to alpha: 5.0 MB in 40.0 ms, 4.0 MB of them while it ran (2 \
             rounds); it stood still for 30.0 ms (interrupt 1.0, save 9.0, transfer 4.0, \
             restore 6.0, drain 1.0, commit 9.0); 2 chunks sent again\n",
            r#"{"bytes":5000000,"commit_us":9000,"copied":4000000,"copy_us":5000,"drain_us":1000,"freeze_us":30000,"from":"beta","interrupt_us":1000,"prepare_us":5000,"restore_us":6000,"rounds":2,"save_us":9000,"sent_again":2,"tid":"t2.1","to":"alpha","total_us":40000,"transfer_us":4000}"#,
        ),
        (
            Event::Checkpointed(&saved),
            "checkpoint g0-e2: 4 tasks, 80.0 MB (0.9 stored) in 60.0 ms; they stood still for 45.0 ms\n",
            r#"{"bytes":80000000,"checkpoint":"g0-e2","freeze_us":45000,"in_transit":7,"stored":900000,"tasks":4,"total_us":60000}"#,
        ),
        (
            Event::Policy(tid(1, 1), policy),
            "t1.1: a checkpoint every 300 s, 5 are kept\n",
            r#"{"blocking":false,"compress":false,"every_ms":300000,"keep":5,"mtbf_ms":null,"recover":"host","tid":"t1.1"}"#,
        ),
        (
            Event::Policy(tid(1, 1), compressed),
            "t1.1: a checkpoint every 300 s, 3 are kept, compressed, tasks stand meanwhile\n",
            r#"{"blocking":true,"compress":true,"every_ms":300000,"keep":null,"mtbf_ms":null,"recover":"host","tid":"t1.1"}"#,
        ),
        (
            Event::Policy(tid(1, 1), Policy::default()),
            "t1.1: no more checkpoints by themselves\n",
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
             'vm resume t1.1' brings it back\n",
            r#"{"bytes":80000000,"checkpoint":"g0-e2","freeze_us":45000,"stored":900000,"suspended":"t1.1","tasks":4,"total_us":60000}"#,
        ),
        (
            Event::TaskSuspended(tid(2, 1), &moved, &machine),
            "t2.1 suspended on beta: 5.0 MB in 40.0 ms; 'vm resume t2.1' brings it back\n",
            r#"{"bytes":5000000,"host":"beta","suspended":"t2.1","total_us":40000}"#,
        ),
        (
            Event::TaskResumed(tid(2, 1), &moved, &machine),
            "t2.1 resumed on alpha: 5.0 MB in 40.0 ms\n",
            r#"{"bytes":5000000,"from":"beta","resumed":"t2.1","sent_again":2,"to":"alpha","total_us":40000}"#,
        ),
        (
            Event::Drained(&emptied, &machine),
            "2 applications were saved first\n\
             t1.1 suspended: it is resumed when there is room, or by 'vm resume t1.1'\n\
             beta: 0 tasks have left in 0.250 s\n",
            r#"{"drained":"beta","moved":[],"moved_count":0,"refused":[],"refused_count":0,"saved_count":2,"suspended":["t1.1"],"total_us":250000}"#,
        ),
        (
            Event::Restarted(&restarted, &machine),
            "\
g0-e3: it is half as long
t1.1 restarted from g0-e2 in 80.0 ms: 1 task on alpha, 2 tasks on beta
",
            r#"{"checkpoint":"g0-e2","generation":1,"hosts":[{"host":"alpha","tasks":1},{"host":"beta","tasks":2}],"passed_over":["g0-e3: it is half as long"],"restarted":"t1.1","total_us":80000}"#,
        ),
        (
            Event::Checkpoints(&rows, None, Path::new("/saved")),
            "\
APPLICATION  CHECKPOINT  MADE                  TASKS    MB  STORED     TOOK  STOOD  BASE   PROGRAM
00beef-t1.1  g0-e2       2001-09-09T01:46:40Z      4  80.0     0.9  1060 ms  45 ms  g0-e1  heat
00beef-t1.1  g0-e3                                                                         damaged: it is half as long
00beef-t1.1  g0-e4       2001-09-09T01:46:40Z      4  80.0     0.9  1060 ms  45 ms  g0-e1  heat (2 of 4 images on one disk alone)
in the store /saved
",
            r#"{"checkpoints":[{"alone":0,"application":"00beef-t1.1","base":"g0-e1","bytes":80000000,"checkpoint":"g0-e2","damaged":null,"freeze_us":45000,"in_transit":7,"made":"2001-09-09T01:46:40Z","program":"heat","stored":900000,"tasks":4,"took_us":1060000},{"alone":0,"application":"00beef-t1.1","base":null,"bytes":null,"checkpoint":"g0-e3","damaged":"it is half as long","freeze_us":null,"in_transit":null,"made":null,"program":null,"stored":null,"tasks":null,"took_us":null},{"alone":2,"application":"00beef-t1.1","base":"g0-e1","bytes":80000000,"checkpoint":"g0-e4","damaged":null,"freeze_us":45000,"in_transit":7,"made":"2001-09-09T01:46:40Z","program":"heat","stored":900000,"tasks":4,"took_us":1060000}],"store":"/saved"}"#,
        ),
        (
            Event::Checkpoints(&copied, Some(&known), Path::new("/saved")),
            "\
APPLICATION  CHECKPOINT  MADE  TASKS  MB  STORED  TOOK  STOOD  BASE  BUCKET  PROGRAM
00beef-t1.1  g0-e3                                                   no      damaged: it is half as long
in the store /saved
not all is in s3://saved/x: it is away; 'vm store push' tries it again
",
            r#"{"bucket":{"address":"s3://saved/x","failed":"it is away"},"checkpoints":[{"alone":0,"application":"00beef-t1.1","base":null,"bytes":null,"checkpoint":"g0-e3","damaged":"it is half as long","freeze_us":null,"in_bucket":false,"in_transit":null,"made":null,"program":null,"stored":null,"tasks":null,"took_us":null}],"store":"/saved"}"#,
        ),
        (
            Event::Pushed(&pushed, &address),
            "\
00beef-t1.1 g0-e3 copied to s3://saved/x
00beef-t1.1 g0-e1 removed from s3://saved/x
",
            r#"{"bucket":"s3://saved/x","bytes":7,"copied":[{"application":"00beef-t1.1","checkpoint":"g0-e3"}],"failed":[],"removed":[{"application":"00beef-t1.1","checkpoint":"g0-e1"}]}"#,
        ),
        (
            Event::Pulled(tid(1, 1), &fetched, &address),
            "g0-e3: it is half\n00beef-t1.1 g0-e2 fetched from s3://saved/x\n",
            r#"{"application":"00beef-t1.1","bucket":"s3://saved/x","checkpoint":"g0-e2","fetched":true,"passed_over":["g0-e3: it is half"]}"#,
        ),
        (
            Event::InBucket(&in_bucket, &address),
            "\
APPLICATION  CHECKPOINT  MADE  TASKS  MB  STORED  BASE  FOLDER  PROGRAM
00beef-t1.1  g0-e3                                      yes     damaged: it is half as long
",
            r#"{"bucket":"s3://saved/x","checkpoints":[{"alone":0,"application":"00beef-t1.1","base":null,"bytes":null,"checkpoint":"g0-e3","damaged":"it is half as long","freeze_us":null,"here":true,"in_transit":null,"made":null,"program":null,"stored":null,"tasks":null,"took_us":null}]}"#,
        ),
        (
            Event::Drained(&drained, &machine),
            "\
t2.1 moved to alpha: 5.0 MB in 40.0 ms
t2.2 stays: it has no way back
beta: 1 task has left in 0.250 s, 1 has not
",
            r#"{"drained":"beta","moved":[{"bytes":5000000,"tid":"t2.1","to":"alpha","total_us":40000}],"moved_count":1,"refused":[{"reason":"it has no way back","tid":"t2.2"}],"refused_count":1,"saved_count":0,"suspended":[],"total_us":250000}"#,
        ),
        (
            Event::HostResumed("beta"),
            "beta: takes tasks again\n",
            r#"{"resumed":"beta"}"#,
        ),
        (
            Event::HostAdded("beta"),
            "beta: added\n",
            r#"{"added":"beta"}"#,
        ),
        (
            Event::HostDeleted("beta"),
            "beta: deleted\n",
            r#"{"deleted":"beta"}"#,
        ),
        (
            Event::Halted,
            "the machine has ended\n",
            r#"{"halted":true}"#,
        ),
        (
            Event::Version(Some(&facts)),
            "vm 0.1.0, protocol 3\nvmd 0.1.0, protocol 1, host h1 of machine 00beef\n",
            r#"{"daemon":{"host":"h1","machine":"00beef","protocol":1,"release":"0.1.0"},"protocol":3,"release":"0.1.0"}"#,
        ),
        (Event::Help("text\n"), "text\n", r#"{"help":"text\n"}"#),
        (
            Event::RunStarted(tid(1, 1)),
            "",
            r#"{"event":"started","tid":"t1.1"}"#,
        ),
        (
            Event::RunOutput {
                master: tid(1, 1),
                output: &output,
            },
            "hello\n",
            r#"{"dropped":0,"event":"output","stream":1,"text":"hello\n","tid":"t1.1"}"#,
        ),
        (
            Event::RunEnded(tid(1, 1), Some(ExitStatus::Code(0))),
            "",
            r#"{"code":0,"event":"ended","status":"exited with code 0","tid":"t1.1"}"#,
        ),
        (
            Event::RunEnded(tid(1, 1), Some(ExitStatus::Signal(9))),
            "",
            r#"{"code":137,"event":"ended","status":"killed by signal 9","tid":"t1.1"}"#,
        ),
    ] {
        assert_eq!(shown(Audience::People, &event), people);
        assert_eq!(shown(Audience::Programs, &event), format!("{programs}\n"));
    }
}

#[test]
fn lines_of_others_than_the_master_begin_with_their_tid() {
    let output = |tid, bytes: &[u8], dropped| Output {
        tid,
        stream: 2,
        bytes: bytes.to_vec().into(),
        dropped,
    };
    let master = tid(1, 1);
    for (raw, expected) in [
        (false, "[t2.1] a\n[t2.1] b\n[t2.1] c\nas it is"),
        (true, "[t2.1] a\r\n[t2.1] b\r\n[t2.1] c\r\nas it is"),
    ] {
        let (mut renderer, out, errors) = renderer(Audience::People);
        renderer.set_raw_terminal(raw);
        for output in [
            output(tid(2, 1), b"a\nb\n", 0),
            output(tid(2, 1), b"c", 0),
            output(master, b"as it is", 0),
        ] {
            let event = Event::RunOutput {
                master,
                output: &output,
            };
            renderer.show(&event).unwrap();
        }
        assert_eq!(out.text(), "");
        assert_eq!(errors.text(), expected);
    }
    let (mut renderer, _, errors) = renderer(Audience::People);
    let output = output(tid(2, 1), b"late\n", 77);
    let event = Event::RunOutput {
        master,
        output: &output,
    };
    renderer.show(&event).unwrap();
    assert_eq!(
        errors.text(),
        "vm: 77 bytes of t2.1's output were dropped here\n[t2.1] late\n"
    );
}

#[test]
fn what_was_done_unasked_is_no_result() {
    for (audience, expected) in [
        (Audience::People, "vm: started\n"),
        (
            Audience::Programs,
            "{\"notice\":{\"kind\":\"Kind\",\"text\":\"started\"}}\n",
        ),
    ] {
        let (mut renderer, out, errors) = renderer(audience);
        renderer.announce("Kind", "started").unwrap();
        assert_eq!(
            (out.text().as_str(), errors.text().as_str()),
            ("", expected)
        );
    }
}

#[test]
fn a_failure_is_no_result() {
    for (audience, expected) in [
        (Audience::People, "vm: no task t9.9\n"),
        (
            Audience::Programs,
            "{\"error\":{\"kind\":\"NoSuchTask\",\"text\":\"no task t9.9\"}}\n",
        ),
    ] {
        let (mut renderer, out, errors) = renderer(audience);
        renderer.failure("NoSuchTask", "no task t9.9").unwrap();
        assert_eq!(
            (out.text().as_str(), errors.text().as_str()),
            ("", expected)
        );
    }
}

#[test]
fn what_names_and_errors_hold_commands_no_terminal() {
    let row = TaskRow {
        tid: tid(1, 1),
        parent: Tid::NONE,
        app: tid(1, 1),
        host: "alpha".to_owned(),
        incarnation: 1,
        program: "a\u{1b}[31m\u{7}\r\nb\u{9b}".to_owned(),
        usage: None,
        suspended: false,
    };
    let rows = [row];
    let text = shown(Audience::People, &Event::Tasks(&rows, &[]));
    assert!(
        text.contains(r"a\u{1b}[31m\u{7}\u{d}\u{a}b\u{9b}"),
        "{text}"
    );
    let (mut renderer, _, errors) = renderer(Audience::People);
    renderer
        .failure("Kind", "no program '\u{1b}]0;x\u{7}'")
        .unwrap();
    renderer.notice("\u{1b}c").unwrap();
    let commands = |letter: char| letter.is_control() && letter != '\n';
    for text in [text, errors.text()] {
        assert!(!text.contains(commands), "{text:?}");
    }
}

#[test]
fn what_was_resumed_is_said_to_be_and_nothing_sent_again_is_not_said() {
    let conf = conf();
    let moved = MoveReport {
        sent_again: 0,
        ..moved()
    };
    let text = shown(Audience::People, &Event::Moved(tid(2, 1), &moved, &conf));
    assert!(text.ends_with("commit 9.0)\n"), "{text}");
    let report = RestartReport {
        app: tid(1, 1),
        from: (0, 2),
        generation: 1,
        hosts: vec![(HostId(1), 1)],
        total_us: 1_000,
        passed_over: Vec::new(),
    };
    let text = shown(Audience::People, &Event::Resumed(&report, &conf));
    assert!(text.starts_with("t1.1 resumed from g0-e2"), "{text}");
}
