//! Moves of tasks, and drains of hosts.

use super::*;
use vm_wire::{
    peer::{DrainReport, MoveReport},
    task::{FailKind, Failed},
};

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
  4.0 MB of them while it ran (2 rounds); frozen for 30.0 ms
  (interrupt 1.0, save 9.0, transfer 4.0, restore 6.0, drain 1.0, commit 9.0);
  2 chunks sent again
"
    );
    let one_line = shown(Audience::People, &event);
    assert_eq!(out.text().replace("\n  ", " "), one_line);
}

#[test]
fn moves_and_drains_are_shown_in_both_ways() {
    let reasons = ["it has no way back".to_owned()];
    let moved = moved();
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
    assert_both([
        (
            Event::Moved(tid(2, 1), &moved, &machine),
            "t2.1 moved from beta to alpha: 5.0 MB in 40.0 ms, 4.0 MB of them while it ran (2 \
             rounds); frozen for 30.0 ms (interrupt 1.0, save 9.0, transfer 4.0, \
             restore 6.0, drain 1.0, commit 9.0); 2 chunks sent again\n",
            r#"{"bytes":5000000,"commit_us":9000,"copied":4000000,"copy_us":5000,"drain_us":1000,"freeze_us":30000,"from":"beta","interrupt_us":1000,"prepare_us":5000,"restore_us":6000,"rounds":2,"save_us":9000,"sent_again":2,"tid":"t2.1","to":"alpha","total_us":40000,"transfer_us":4000}"#,
        ),
        (
            Event::TaskSuspended(tid(2, 1), &moved, &machine),
            "t2.1 suspended on beta: 5.0 MB in 40.0 ms; 'vm resume t2.1' resumes it\n",
            r#"{"bytes":5000000,"host":"beta","suspended":"t2.1","total_us":40000}"#,
        ),
        (
            Event::TaskResumed(tid(2, 1), &moved, &machine),
            "t2.1 resumed on alpha: 5.0 MB in 40.0 ms\n",
            r#"{"bytes":5000000,"from":"beta","resumed":"t2.1","sent_again":2,"to":"alpha","total_us":40000}"#,
        ),
        (
            Event::Drained(&emptied, &machine),
            "checkpoints of 2 applications were made first\n\
             t1.1 suspended: it is resumed when there is room, or by 'vm resume t1.1'\n\
             beta: 0 tasks have left in 0.250 s\n",
            r#"{"drained":"beta","moved":[],"moved_count":0,"refused":[],"refused_count":0,"saved_count":2,"suspended":["t1.1"],"total_us":250000}"#,
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
    ]);
}

#[test]
fn a_move_without_repeated_chunks_does_not_mention_them() {
    let conf = conf();
    let moved = MoveReport {
        sent_again: 0,
        ..moved()
    };
    let text = shown(Audience::People, &Event::Moved(tid(2, 1), &moved, &conf));
    assert!(text.ends_with("commit 9.0)\n"), "{text}");
}
