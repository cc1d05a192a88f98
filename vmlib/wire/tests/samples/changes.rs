//! Samples of entries of the log.

use super::{
    checkpoints,
    values::{Visitor, facts, text, tid},
};
use vm_wire::{
    CheckpointId, HostId,
    agreed::{Change, ExitStatus, SpawnRecord},
    peer::Propose,
};

/// Entries about hosts.
fn of_hosts() -> Vec<(&'static str, Change)> {
    let host = HostId(1);
    vec![
        (
            "HostJoin",
            Change::HostJoin {
                nonce: 7,
                facts: facts(),
            },
        ),
        (
            "HostAddress",
            Change::HostAddress {
                host,
                addr: text("10.0.0.2:7000"),
            },
        ),
        (
            "HostDraining",
            Change::HostDraining {
                host,
                suspend: true,
            },
        ),
        ("HostResumed", Change::HostResumed(host)),
        ("HostLeaving", Change::HostLeaving(host)),
        ("HostGone", Change::HostGone(host)),
        ("HostDead", Change::HostDead(host)),
        ("Halt", Change::Halt),
    ]
}

/// Entries about single tasks.
fn of_tasks() -> Vec<(&'static str, Change)> {
    let (task, host, from, to) = (tid(1, 2), HostId(1), HostId(1), HostId(2));
    let record = SpawnRecord {
        requester: tid(1, 1),
        request: 300,
        host,
        index: 4,
        first: 2,
        count: 3,
        app: tid(1, 1),
        program: text("worker"),
        enrolled: false,
        generation: 3,
        console: HostId::NONE,
    };
    let status = ExitStatus::Left(0);
    let group = || text("ring");
    vec![
        ("Spawn", Change::Spawn(record)),
        (
            "Exit",
            Change::Exit {
                tid: task,
                host,
                incarnation: 3,
                status,
                killed: false,
                unasked: true,
            },
        ),
        (
            "Relocate",
            Change::Relocate {
                tid: task,
                from,
                to,
                incarnation: 3,
                suspended: true,
            },
        ),
        (
            "Stay",
            Change::Stay {
                tid: task,
                host,
                incarnation: 3,
            },
        ),
        (
            "GroupJoin",
            Change::GroupJoin {
                group: group(),
                tid: task,
                generation: 3,
            },
        ),
        (
            "GroupLeave",
            Change::GroupLeave {
                group: group(),
                tid: task,
                generation: 3,
            },
        ),
        (
            "Context",
            Change::Context {
                tid: task,
                generation: 3,
            },
        ),
    ]
}

/// Entries about applications.
fn of_applications() -> Vec<(&'static str, Change)> {
    let host = HostId(1);
    vec![
        (
            "Coordinator",
            Change::Coordinator {
                app: tid(1, 1),
                host,
                term: 2,
            },
        ),
        (
            "Cut",
            Change::Cut {
                app: tid(1, 1),
                epoch: 4,
                term: 2,
                stop: None,
            },
        ),
        (
            "Cut.suspend",
            Change::Cut {
                app: tid(1, 1),
                epoch: 4,
                term: 2,
                stop: Some(checkpoints::suspend()),
            },
        ),
        (
            "CutGo",
            Change::CutGo {
                app: tid(1, 1),
                epoch: 4,
            },
        ),
        (
            "CutEnd",
            Change::CutEnd {
                app: tid(1, 1),
                epoch: 4,
                saved: true,
                cost_us: 70_000,
            },
        ),
        (
            "Unsuspend",
            Change::Unsuspend {
                app: tid(1, 1),
                from: CheckpointId::new(2, 4),
                over: true,
            },
        ),
    ]
}

pub fn changes(visitor: &mut impl Visitor) {
    for (name, change) in [of_hosts(), of_tasks(), of_applications()].concat() {
        let changes = vec![change];
        let entry = Propose {
            proposer: HostId(2),
            number: 1,
            changes,
        };
        visitor.message(&format!("Propose.{name}"), entry);
    }
}
