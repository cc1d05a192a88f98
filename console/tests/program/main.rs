//! The whole program `vm`, against a fake daemon.

mod commands;
#[path = "../fake/mod.rs"]
mod fake;
mod hosts;
mod prompt;
mod run;
#[path = "../screen/mod.rs"]
mod screen;

use fake::{FakeDaemon, HERE, tid};
use screen::{text, vm};
use std::process::Output;
use vm_wire::{
    HostId, Tid,
    agreed::HostFacts,
    console::{Conf, HostRow, HostState, TaskRow},
};

/// Runs `vm` with these words against `script`, which serves one connection.
fn against(words: &[&str], script: impl FnMut(FakeDaemon) + Send + 'static) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut script = script;
    let daemon = fake::listen(dir.path(), 1, move |_, mut daemon| {
        daemon.greet();
        script(daemon);
    });
    let output = vm(dir.path()).args(words).output().unwrap();
    daemon.join().unwrap();
    output
}

fn row(tid: Tid) -> TaskRow {
    TaskRow {
        tid,
        parent: Tid::NONE,
        app: tid,
        host: "alpha".to_owned(),
        incarnation: 0,
        program: "prog".to_owned(),
        usage: None,
        suspended: false,
    }
}

fn conf() -> Conf {
    let host = |number: u16, name: &str, state| HostRow {
        host: HostId(number),
        facts: HostFacts {
            name: name.to_owned(),
            addr: format!("192.0.2.{number}:7170"),
            cpus: 1,
            tasks_max: 10,
            arch: "x86_64".to_owned(),
            store_local: false,
        },
        tasks: 0,
        voter: state == HostState::Live,
        state,
    };
    Conf {
        machine: HERE,
        here: HostId(1),
        leader: HostId(1),
        applied: 9,
        store: "/s".to_owned(),
        hosts: vec![
            host(1, "alpha", HostState::Live),
            host(2, "left", HostState::Gone),
            host(3, "lost", HostState::Dead),
        ],
        links_down: Vec::new(),
    }
}
