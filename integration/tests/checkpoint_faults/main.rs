//! The outcome for an application while a fault strikes in the middle of its checkpoint or of its
//! restart: a matrix of named points, on each host that takes part, by fault. To print the matrix:
//! `cargo test --test checkpoint_faults -- --nocapture`. With `VM_POINT=writer` only the cells of
//! that point are played.
//!
//! A caller on one host exchanges numbers with a callee on another host; a third host leads the
//! machine. They have a checkpoint before the fault. After the fault, as the column says, all tasks
//! of the application run on, or the application has recovered from its last checkpoint, or the
//! callee was reported dead. No number is lost, doubled or out of order, and the console gets a
//! reply. At the end of each cell no process is left over, the last committed checkpoint is whole,
//! and a restart takes that checkpoint and no other. If the application runs on, its next
//! checkpoint leaves no file of an aborted one in the store.
//!
//! Cells with a network need root and `ip`, and the full disk needs root. Without them these cells
//! are left out, which is printed.

mod cell;
mod deeds;
mod scene;

use cell::{At, Cell, Deed, MATRIX, Then};
use scene::{PATIENCE, Scene};
use std::time::{Duration, Instant};
use vm_integration::{
    cluster::wait_for,
    matrix::{self, Told},
};
use vm_store::CheckpointId;
use vm_wire::agreed::ExitStatus;

/// Number of cells that are played at once.
const WORKERS: usize = 5;
/// Bound on the time until the console gets its reply, even if a fault is not reported.
const TOLD: Duration = Duration::from_secs(30);
/// The last line of a caller that has lost no message.
const WHOLE: &str = "none lost, doubled or out of order";

/// Plays one cell, and returns the console's reply.
fn strike(cell: &Cell) -> Told {
    let mut scene = Scene::begin(cell)?;
    scene.prepare(cell);
    let start = Instant::now();
    let (done, told) = deeds::ask(&mut scene, cell);
    assert!(start.elapsed() < TOLD, "{told} after {:?}", start.elapsed());
    let expected = cell.told;
    assert!(told.contains(expected), "'{expected}' is not in: {told}");
    let then = match (cell.then, done) {
        (Then::RefusedOrEnded, Some(true)) => Then::Ended,
        (Then::RefusedOrEnded, _) => Then::Refused,
        (then, _) => then,
    };
    match (then, done) {
        (Then::Saved | Then::Runs, Some(done)) => assert!(done, "{told}"),
        (Then::NotSaved | Then::Refused, Some(done)) => assert!(!done, "{told}"),
        _ => {}
    }
    match then {
        Then::Saved | Then::NotSaved => check_goes_on(&mut scene, cell),
        Then::Back => check_back(&mut scene, cell),
        Then::Ended => ends_well(&mut scene, "the other ended", &told),
        Then::Runs => ends_well(&mut scene, WHOLE, &told),
        Then::Refused | Then::RefusedOrEnded => {}
    }
    let at = survivor(cell);
    wait_for("all tasks have ended", PATIENCE, || {
        scene.tasks(at).is_empty().then_some(())
    });
    scene.await_silence();
    if cell.deed != Deed::Damaged {
        check_last(&mut scene, at);
    }
    Some(told)
}

/// A host that is not lost in the cell.
fn survivor(cell: &Cell) -> At {
    match cell {
        Cell {
            deed: Deed::LeaderKilled,
            ..
        } => At::Home,
        _ => At::Leader,
    }
}

/// Checks that all tasks run on where they were, that the next checkpoint is made, and that no file
/// of an aborted checkpoint is left.
fn check_goes_on(scene: &mut Scene, cell: &Cell) {
    scene.relieve(cell);
    let mut hosts: Vec<String> = scene
        .tasks(At::Home)
        .into_iter()
        .map(|row| row.host)
        .collect();
    hosts.sort();
    assert_eq!(hosts, ["n2", "n3"]);
    let before = scene.stored().0;
    let made = if cell.then == Then::Saved { 2 } else { 1 };
    // Without its console, the test does not know whether the checkpoint is committed already.
    assert!(
        before.len() >= made || cell.deed == Deed::ConsoleKilled,
        "{before:?}"
    );
    let mut console = scene.node(At::Home).client();
    let next = wait_for("the next checkpoint", PATIENCE, || {
        console.save(scene.app, false).ok()
    });
    let (committed, left) = scene.stored();
    assert_eq!(left, 0, "of checkpoints that were given up");
    let next = CheckpointId::new(next.generation, next.epoch);
    assert_eq!(committed.last(), Some(&next));
    scene.run.input(b"end\n");
    ends_well(scene, WHOLE, "it went on");
}

/// Checks in the output of the application, or in the log if it has no console, that it recovered
/// and lost no message.
fn check_back(scene: &mut Scene, cell: &Cell) {
    let home_is_lost = scene.cluster.nodes[At::Home as usize]
        .process
        .try_wait()
        .expect("our child")
        .is_some()
        || cell.deed == Deed::HomeCutOff;
    if home_is_lost {
        for text in ["runs again on", WHOLE] {
            wait_for(text, PATIENCE, || {
                let mut logs = [At::Leader, At::Member].into_iter();
                logs.any(|at| scene.node(at).log().contains(text))
                    .then_some(())
            });
        }
    } else {
        scene.run.output_until("restarts from its last checkpoint");
        scene.run.output_until("runs again on");
        // The standard input of the recovered application is empty, so it ends.
        ends_well(scene, WHOLE, "it went back");
    }
}

/// Checks that the application ends in order, with this text in its output.
fn ends_well(scene: &mut Scene, text: &str, told: &str) {
    let finished = scene.run.finish();
    let (output, errors) = (&finished.stdout, &finished.stderr);
    assert_eq!(finished.status, ExitStatus::Code(0), "{told}: {errors}");
    assert!(output.contains(text), "{told}: {output} {errors}");
}

/// Checks that the last committed checkpoint is whole, that a restart takes it, and that the
/// application then runs to its end.
fn check_last(scene: &mut Scene, at: At) {
    let last = scene.verify_last();
    let mut console = scene.node(at).client();
    let report = console.restart(scene.app).expect("it can be brought back");
    assert_eq!(report.from, last);
    assert_eq!(report.hosts.iter().map(|(_, count)| count).sum::<u32>(), 2);
    scene.run = console;
    ends_well(scene, WHOLE, "after a restart");
    scene.await_silence();
}

#[test]
fn after_any_fault_an_application_runs_on_or_restarts_from_its_last_checkpoint() {
    let only = std::env::var("VM_POINT").ok();
    let wanted = |cell: &Cell| only.as_ref().is_none_or(|only| only == cell.fault.1);
    println!(
        "{:10} {:6} {:22} {:36} {:8} the console is told",
        "work", "host", "point", "fault", "then"
    );
    let row = |cell: &Cell| {
        let (at, point, _) = cell.fault;
        let (work, at) = (format!("{:?}", cell.work), format!("{at:?}"));
        let then = format!("{:?}", cell.then);
        format!("{work:10} {at:6} {point:22} {:36} {then:8}", cell.shown())
    };
    matrix::play(&MATRIX, WORKERS, wanted, strike, row);
}
