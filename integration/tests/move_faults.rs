//! What becomes of a task that moves while something breaks: the matrix of named points of a move,
//! on the three hosts that it concerns, by fault. Printed with
//! `cargo test --test move_faults -- --nocapture`; with `VM_POINT=report.saved` those of a point alone.
//!
//! A caller on one host exchanges numbers with a callee that moves from a second host to a third.
//! After each fault the callee runs exactly once, where the column says, and no number was lost,
//! doubled or out of order; or its owner was lost, or it was ended itself, and the caller was told
//! after the last of its numbers. The console is told what happened in each case. A coordinator that
//! ends or hangs while it drives the move costs nothing, and another takes its place.

use std::{collections::BTreeSet, fs, sync::Mutex, time::Duration};
use vm_integration::cluster::{Cluster, wait_for};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    console::{Answer, Request},
    peer::MoveWay,
};

/// Where the fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Where it was asked for, and the application's coordinator is.
    Asker,
    Source,
    Target,
}

/// What becomes of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It runs on where it was.
    Stays,
    /// It runs at the target.
    Moves,
    /// It has ended: its owner was lost, or it was ended itself.
    Ends,
    /// Its process was ended when its image was whole: it has ended, or it runs at the target if
    /// that was quicker than the news of its end.
    EndsOrMoves,
}
use At::{Asker, Source, Target};
use Then::{Ends, EndsOrMoves, Moves, Stays};

/// Point, action (see `vmd/src/fault.rs`), and what follows. By phase.
const MATRIX: [(At, &str, &str, Then); 32] = [
    // Offer.
    (Source, "send.MoveOffer", "kill", Ends),
    (Source, "send.MoveOffer", "cut", Moves),
    (Target, "receive.MoveOffer", "kill", Stays),
    (Target, "send.MoveReady", "stop", Stays),
    (Asker, "coordinator.initialisation", "end", Moves),
    (Asker, "coordinator.initialisation", "hold", Moves),
    // Copying, while the task runs.
    (Source, "order.copy", "kill", Ends),
    (Source, "order.copy", "task", Ends),
    (Source, "sender", "kill", Stays),
    (Target, "receiver", "kill", Stays),
    (Target, "receiver", "break", Stays),
    (Target, "restorer", "kill", Stays),
    (Source, "report.copied", "kill", Ends),
    (Asker, "coordinator.copying", "end", Moves),
    (Asker, "coordinator.copying", "hold", Moves),
    // Interruption, draining, saving.
    (Source, "order.freeze", "kill", Ends),
    (Source, "order.freeze", "stop", Ends),
    (Source, "order.freeze", "task", Ends),
    (Source, "report.saved", "kill", Ends),
    (Source, "report.saved", "task", EndsOrMoves),
    (Asker, "coordinator.interruption", "end", Moves),
    (Asker, "coordinator.interruption", "hold", Moves),
    (Asker, "coordinator.saving", "end", Moves),
    (Asker, "coordinator.saving", "hold", Moves),
    // Restoring.
    (Target, "report.back", "kill", Stays),
    (Target, "send.MoveLoaded", "kill", Stays),
    (Target, "send.MoveLoaded", "cut", Moves),
    // Resumption.
    (Source, "send.MoveRelease", "kill", Ends),
    (Source, "send.MoveRelease", "cut", Moves),
    (Target, "receive.MoveRelease", "kill", Stays),
    (Target, "begin", "kill", Ends),
    (Source, "discard", "kill", Moves),
];

/// So many at once.
const WORKERS: usize = 4;

/// What of the cluster's tasks runs, as the system sees it: the processes whose program is the
/// callee of this cluster.
fn callees(cluster: &Cluster) -> BTreeSet<i32> {
    let folder = cluster.folder().to_string_lossy().into_owned();
    let numbers = fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<i32>().ok()
    });
    let is_callee = |pid: &i32| {
        let read = |name| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let words = read("cmdline");
        let mark = format!("{folder}/");
        words.ends_with(b"\0callee\0") && String::from_utf8_lossy(&read("environ")).contains(&mark)
    };
    numbers.filter(is_callee).collect()
}

/// Runs one cell; what the console and the user were told.
fn strike(at: At, point: &str, action: &str, then: Then) -> String {
    let mut cluster = Cluster::on_loopback(0);
    for (name, here) in [("n1", Asker), ("n2", Source), ("n3", Target)] {
        let mut command = cluster.command(name, &[]);
        if at == here {
            command.env("VM_FAULT", format!("{point}:{action}"));
        }
        cluster.add_node(name.to_owned(), command);
        let await_host = Request::AwaitHost(name.to_owned());
        assert_eq!(cluster.nodes[0].client().ask(&await_host), Answer::Done);
    }
    let node = &cluster.nodes[0];
    let mut run = node.client();
    run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let task = || -> Option<(Tid, String)> {
        let Answer::Ps(rows) = node.client().ask(&Request::Ps(None)) else {
            panic!("ps has no such answer");
        };
        rows.get(1).map(|row| (row.tid, row.host.clone()))
    };
    let (callee, _) = task().expect("the callee");
    let coordinator = node.coordinator(None);
    let asked = Request::Move(callee, Some("n3".to_owned()), MoveWay::default());
    let told = match node.client().ask(&asked) {
        Answer::Moved(report) => {
            assert_ne!(then, Stays, "{at:?} {point} {action}: {report:?}");
            "moved".to_owned()
        }
        Answer::Failed(failed) => {
            let told = then != Moves || failed.text.ends_with("runs on 'n3'");
            assert!(told, "{at:?} {point} {action}: {failed}");
            failed.text
        }
        other => panic!("{other:?}"),
    };
    let then = match then {
        EndsOrMoves if told == "moved" => Moves,
        EndsOrMoves => Ends,
        then => then,
    };
    if at == Asker {
        node.coordinator(Some(coordinator));
    }
    if then == Ends {
        let finished = run.finish();
        assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
        assert!(
            finished.stdout.contains("the other ended"),
            "{told}: {}",
            finished.stdout
        );
        wait_for("no copy of it is left", Duration::from_secs(20), || {
            callees(&cluster).is_empty().then_some(())
        });
        return told;
    }
    let place = match then {
        Moves => "n3",
        _ => "n2",
    };
    wait_for(
        "it runs where it should, once",
        Duration::from_secs(20),
        || {
            let (_, host) = task()?;
            (host == place && callees(&cluster).len() == 1).then_some(())
        },
    );
    run.input(b"end\n");
    let finished = run.finish();
    assert_eq!(
        finished.status,
        ExitStatus::Code(0),
        "{told}: {}",
        finished.stderr
    );
    let whole = "none lost, doubled or out of order";
    assert!(
        finished.stdout.contains(whole),
        "{told}: {}",
        finished.stdout
    );
    told
}

#[test]
fn after_any_fault_a_task_that_moves_runs_exactly_once() {
    let only = std::env::var("VM_POINT").ok();
    let wanted = |point: &str| only.as_ref().is_none_or(|only| only == point);
    let cells = MATRIX.iter().enumerate();
    let cells = Mutex::new(cells.filter(|(_, (_, point, ..))| wanted(point)));
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((index, cell)) = { cells.lock().expect("no panic").next() } {
                    let (at, point, action, then) = *cell;
                    let cell = || strike(at, point, action, then);
                    let told = std::panic::catch_unwind(cell);
                    rows.lock().expect("no panic").push((index, told));
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("no panic");
    rows.sort_by_key(|(index, _)| *index);
    println!(
        "{:7} {:26} {:6} {:11} the console is told",
        "host", "point", "fault", "task"
    );
    let mut failed = 0;
    for (index, told) in rows {
        let (at, point, action, then) = MATRIX[index];
        failed += u32::from(told.is_err());
        let told = told.unwrap_or_else(|_| "FAILED, see above".to_owned());
        let (at, then) = (format!("{at:?}"), format!("{then:?}"));
        println!("{at:7} {point:26} {action:6} {then:11} {told}");
    }
    assert_eq!(failed, 0, "cells failed");
}
