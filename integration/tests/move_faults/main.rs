//! The outcome for a task that moves while a fault strikes: a matrix of named points of a move, on
//! each host that takes part, by fault. To print the matrix: `cargo test --test move_faults --
//! --nocapture`. With `VM_POINT=report.saved` only the cells of that point are played.
//!
//! A caller on one host exchanges numbers with a callee that moves from a second host to a third.
//! After each fault the callee runs exactly once, on the host that the column says, and no number
//! is lost, doubled or out of order; or its owner was lost, or its process was killed, and the
//! caller got the report of the end after the last of its numbers. The console gets a reply in each
//! case, long before the time limit of an image. A coordinator that ends or hangs while it drives
//! the move does no harm: another coordinator takes its place.
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
use vm_wire::agreed::ExitStatus;

/// Number of cells that are played at once.
const WORKERS: usize = 4;
/// Bound on the time until the console gets its reply, even if a fault is not reported.
const TOLD: Duration = Duration::from_secs(30);

/// Plays one cell, and returns the console's reply.
fn strike(cell: &Cell) -> Told {
    let mut scene = Scene::begin(cell)?;
    let coordinator = scene.node(At::SpawnRequester).coordinator(None);
    let start = Instant::now();
    let (moved, told) = deeds::ask(&scene, cell);
    assert!(start.elapsed() < TOLD, "{told} after {:?}", start.elapsed());
    assert!(
        told.contains(cell.told),
        "'{}' is not in: {told}",
        cell.told
    );
    let gone = told.ends_with("runs on 'n3'");
    let then = match (cell.then, moved) {
        (Then::EndsOrMoves, Some(true)) | (Then::StaysOrMoves, Some(true)) => Then::Moves,
        (Then::EndsOrMoves, _) => Then::Ends,
        (Then::StaysOrMoves, _) if gone => Then::Moves,
        (Then::StaysOrEnds, Some(true)) => Then::Ends,
        (Then::StaysOrMoves | Then::StaysOrEnds, _) => Then::Stays,
        (then, _) => then,
    };
    match moved {
        Some(true) => assert_ne!(then, Then::Stays, "{told}"),
        Some(false) => assert!(then != Then::Moves || gone, "{told}"),
        None => {}
    }
    if matches!(cell.fault.2, "end" | "hold") {
        scene
            .node(At::SpawnRequester)
            .coordinator(Some(coordinator));
    }
    match then {
        Then::Ends => check_ended(&mut scene, &told),
        then => check_runs(&mut scene, cell, then, &told),
    }
    Some(told)
}

/// Checks that the callee has ended, that the caller got the report, and that no copy is left.
fn check_ended(scene: &mut Scene, told: &str) {
    let finished = scene.run.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
    let output = &finished.stdout;
    assert!(output.contains("the other ended"), "{told}: {output}");
    wait_for("the end of all copies of the callee", PATIENCE, || {
        scene.copies().is_empty().then_some(())
    });
}

/// Checks that the callee runs on the right host, once, and has lost no message.
fn check_runs(scene: &mut Scene, cell: &Cell, then: Then, told: &str) {
    let place = match then {
        Then::Moves => "n3",
        _ => "n2",
    };
    wait_for("one callee on the right host", PATIENCE, || {
        let there = scene.host_of(scene.callee).as_deref() == Some(place);
        (there && scene.copies().len() == 1).then_some(())
    });
    if cell.deed == Deed::CallerMoves {
        assert_eq!(scene.host_of(scene.caller).as_deref(), Some("n2"));
    }
    scene.run.input(b"end\n");
    let finished = scene.run.finish();
    let (output, errors) = (&finished.stdout, &finished.stderr);
    assert_eq!(finished.status, ExitStatus::Code(0), "{told}: {errors}");
    let whole = "none lost, doubled or out of order";
    assert!(output.contains(whole), "{told}: {output}");
}

#[test]
fn after_any_fault_a_task_that_moves_runs_exactly_once() {
    let only = std::env::var("VM_POINT").ok();
    let wanted = |cell: &Cell| only.as_ref().is_none_or(|only| only == cell.fault.1);
    println!(
        "{:6} {:26} {:33} {:12} the console is told",
        "host", "point", "fault", "task"
    );
    let row = |cell: &Cell| {
        let (at, point, _) = cell.fault;
        let (at, then) = (format!("{at:?}"), format!("{:?}", cell.then));
        format!("{at:6} {point:26} {:33} {then:12}", cell.shown())
    };
    matrix::play(&MATRIX, WORKERS, wanted, strike, row);
}
