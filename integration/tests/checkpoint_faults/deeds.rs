//! The request of a cell, and the second event beside the fault.

use crate::{
    cell::{At, Cell, Deed, Work},
    scene::Scene,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    process::{Command, Stdio},
    thread,
};
use vm_integration::cluster::{binaries, end_with_us, processes, wait_for};

/// Sends the request of the cell, and carries out the second event meanwhile. Returns whether the
/// request succeeded, as far as the console knows, and the reply.
pub fn ask(scene: &mut Scene, cell: &Cell) -> (Option<bool>, String) {
    if cell.deed == Deed::ConsoleKilled {
        kill_console(scene, cell);
        return (None, "(it was killed)".to_owned());
    }
    let at = match (cell.work, cell.deed) {
        (Work::Checkpoint, Deed::LeaderKilled) => At::Home,
        (Work::Checkpoint, _) => At::Leader,
        (Work::Restart, _) => At::Home,
        (Work::Recovery, _) => {
            scene.node(At::Member).signal(Signal::KILL);
            return (None, "nobody asks".to_owned());
        }
    };
    let mut console = scene.node(at).client();
    let (done, told, console) = thread::scope(|scope| {
        let app = scene.app;
        let asked = scope.spawn(move || {
            let (done, told) = match cell.work {
                Work::Checkpoint => match console.save(app, false) {
                    Ok(it) => (true, format!("saved as g{}-e{}", it.generation, it.epoch)),
                    Err(failed) => (false, failed.text),
                },
                _ => match console.restart(app) {
                    Ok(it) => {
                        let passed_over = it.passed_over.join(", ");
                        let told = format!("restarted from {} {passed_over}", it.from);
                        (true, told.trim_end().to_owned())
                    }
                    Err(failed) => (false, failed.text),
                },
            };
            (done, told, console)
        });
        meanwhile(scene, cell);
        asked.join().expect("it is answered")
    });
    if cell.work == Work::Restart && done {
        scene.run = console;
    }
    (Some(done), told)
}

fn meanwhile(scene: &Scene, cell: &Cell) {
    let cut = |at: At| {
        let network = scene.cluster.network.as_ref();
        let network = network.expect("a cluster in namespaces");
        network.set_cable(at as usize, false);
    };
    let acts = !matches!(
        cell.deed,
        Deed::None | Deed::StoreFull | Deed::QuotaReached | Deed::Damaged
    );
    if acts {
        scene.await_fault(cell);
    }
    match cell.deed {
        Deed::CopyKilled => kill_copy(scene),
        Deed::TaskKilled => {
            // A copy exists, so the callee is frozen or has resumed.
            copy(scene);
            kill(scene.callee());
        }
        Deed::LeaderKilled => scene.node(At::Leader).signal(Signal::KILL),
        Deed::HomeCutOff => cut(At::Home),
        Deed::MemberCutOff => cut(At::Member),
        _ => {}
    }
}

/// The copy of the callee's process that writes its image: a living child of the callee.
fn copy(scene: &Scene) -> i32 {
    wait_for("a copy of the callee", crate::scene::PATIENCE, || {
        // Earlier copies have ended, and may still wait to be reaped.
        let mut children = processes::children(scene.callee()).into_iter();
        children.find(|pid| processes::words(*pid).any(|word| word == "callee"))
    })
}

fn kill_copy(scene: &Scene) {
    kill(copy(scene));
}

fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process");
    kill_process(pid, Signal::KILL).expect("it is ours");
}

/// A real console sends the request, and gets SIGKILL while the checkpoint is made.
fn kill_console(scene: &Scene, cell: &Cell) {
    let node = scene.node(At::Leader);
    let shown = scene.app.show(node.conf().machine).to_string();
    let mut command = Command::new(binaries::binary("vm"));
    command
        .arg("--dir")
        .arg(&node.dir)
        .args(["checkpoint", &shown])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    end_with_us(&mut command);
    let mut console = command.spawn().expect("the console runs");
    scene.await_fault(cell);
    assert_eq!(console.try_wait().expect("our child"), None, "it waits");
    console.kill().expect("our child");
    console.wait().expect("our child");
}
