//! The second event of a cell, beside the fault.

use crate::{
    cell::{At, Cell, Deed},
    scene::Scene,
};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use std::{
    fs,
    process::{Command, Stdio},
    thread,
};
use vm_integration::cluster::{binaries, end_with_us};
use vm_wire::{
    console::{Answer, Request},
    peer::MoveWay,
    task::FailKind,
};

/// Address space that processes at the target get in addition to their daemon's. Bytes.
const MEMORY_LEFT: u64 = 256 << 20;

/// Requests the move, and carries out the second event meanwhile. Returns whether the task moved,
/// as far as the console knows, and the reply.
pub fn ask(scene: &Scene, cell: &Cell) -> (Option<bool>, String) {
    match cell.deed {
        Deed::MemoryFull => limit_memory(scene),
        Deed::DiskFull => scene.fill_disk(),
        Deed::ConsoleKilled => {
            kill_console(scene, cell);
            return (None, "(it was killed)".to_owned());
        }
        _ => {}
    }
    thread::scope(|scope| {
        let asked = scope.spawn(|| asked_move(scene, cell));
        let also = meanwhile(scene, cell);
        let (moved, mut told) = asked.join().expect("it is answered");
        if cell.deed == Deed::LinkCut {
            network(scene).set_apart(&ends(scene), false);
        }
        if !also.is_empty() {
            told = format!("{told}; {also}");
        }
        if cell.deed != Deed::AskAnew {
            return (Some(moved), told);
        }
        assert!(!moved, "{told}");
        let (moved, then) = asked_move(scene, cell);
        (Some(moved), format!("{told}; then: {then}"))
    })
}

/// Requests the move as a console does, and waits for the reply.
fn asked_move(scene: &Scene, cell: &Cell) -> (bool, String) {
    let at = match cell.deed {
        Deed::AskedAtTarget => At::Target,
        _ => At::SpawnRequester,
    };
    let request = Request::Move(scene.callee, Some("n3".to_owned()), MoveWay::default());
    match scene.node(at).client().ask(&request) {
        Answer::Moved(_) => (true, "moved".to_owned()),
        Answer::Failed(failed) => (false, failed.text),
        other => panic!("a move has no such answer: {other:?}"),
    }
}

fn meanwhile(scene: &Scene, cell: &Cell) -> String {
    let cut = |at| network(scene).set_cable(scene.place(at), false);
    match cell.deed {
        Deed::None
        | Deed::AskedAtTarget
        | Deed::AskAnew
        | Deed::MemoryFull
        | Deed::DiskFull
        | Deed::ConsoleKilled => return String::new(),
        _ => scene.await_fault(cell.fault),
    }
    match cell.deed {
        Deed::LeaderKilled => scene.cluster.nodes[0].signal(Signal::KILL),
        Deed::SourceCutOff => cut(At::Source),
        Deed::TargetCutOff => cut(At::Target),
        Deed::LinkCut => network(scene).set_apart(&ends(scene), true),
        Deed::AskTwice => return second(scene, "n3"),
        Deed::AskElsewhere => return second(scene, "n1"),
        Deed::CallerMoves => {
            let request = Request::Move(scene.caller, Some("n2".to_owned()), MoveWay::default());
            match scene.node(At::SpawnRequester).client().ask(&request) {
                Answer::Moved(_) => return "so is the caller".to_owned(),
                other => panic!("the caller did not move: {other:?}"),
            }
        }
        _ => {}
    }
    String::new()
}

fn network(scene: &Scene) -> &vm_integration::cluster::network::Network {
    let network = scene.cluster.network.as_ref();
    network.expect("a cluster in namespaces")
}

fn ends(scene: &Scene) -> [usize; 2] {
    [scene.place(At::Source), scene.place(At::Target)]
}

/// Checks that a second request is refused.
fn second(scene: &Scene, host: &str) -> String {
    let request = Request::Move(scene.callee, Some(host.to_owned()), MoveWay::default());
    match scene.node(At::SpawnRequester).client().ask(&request) {
        Answer::Failed(failed) => {
            assert_eq!(failed.kind, FailKind::Refused, "{failed}");
            assert!(failed.text.contains("on its way already"), "{failed}");
            format!("the second: {}", failed.text)
        }
        other => panic!("the second move is not refused: {other:?}"),
    }
}

/// A real console requests the move, and gets SIGKILL while the task moves.
fn kill_console(scene: &Scene, cell: &Cell) {
    let node = scene.node(At::SpawnRequester);
    let shown = scene.callee.show(node.conf().machine).to_string();
    let mut command = Command::new(binaries::binary("vm"));
    command
        .arg("--dir")
        .arg(&node.dir)
        .args(["move", &shown, "n3"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    end_with_us(&mut command);
    let mut console = command.spawn().expect("the console runs");
    scene.await_fault(cell.fault);
    assert_eq!(console.try_wait().expect("our child"), None, "it waits");
    console.kill().expect("our child");
    console.wait().expect("our child");
}

/// Limits the memory of the target's daemon, so that processes that it starts are too small for the
/// task.
fn limit_memory(scene: &Scene) {
    let pid = scene.node(At::Target).pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let size = size.and_then(|line| line.split_whitespace().next());
    let kib: u64 = size.and_then(|size| size.parse().ok()).expect("a size");
    let most = Some((kib << 10) + MEMORY_LEFT);
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    prlimit(Pid::from_raw(pid), Resource::As, limit).expect("it is ours");
}
