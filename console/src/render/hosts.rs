//! The machine and its hosts.

use super::{
    table::{align_right, lines, table},
    words::{UNKNOWN, count},
};
use crate::hosts;
use serde_json::{Value, json};
use vm_wire::console::{Conf, HostRow, HostState};

pub(super) fn conf_text(conf: &Conf) -> String {
    let present = |row: &&HostRow| hosts::is_present(row);
    let hosts = conf.hosts.iter().filter(present).count();
    let tasks: u32 = conf.hosts.iter().filter(present).map(|row| row.tasks).sum();
    let mut table = table(&[
        "HOST", "NAME", "ADDRESS", "ROLE", "STATE", "TASKS", "CPUS", "ARCH",
    ]);
    align_right(&mut table, &[6]);
    for row in &conf.hosts {
        let here = if row.host == conf.here { " *" } else { "" };
        table.add_row([
            format!("{}{here}", row.host),
            row.facts.name.clone(),
            row.facts.addr.clone(),
            role(conf, row).to_owned(),
            state(row).to_owned(),
            if present(&row) {
                format!("{}/{}", row.tasks, row.facts.tasks_max)
            } else {
                UNKNOWN.to_owned()
            },
            row.facts.cpus.to_string(),
            row.facts.arch.clone(),
        ]);
    }
    let down = conf.links_down.iter().map(|(a, b)| {
        let (a, b) = (hosts::name(conf, *a), hosts::name(conf, *b));
        format!("{a} and {b} cannot reach each other\n")
    });
    let down: String = down.collect();
    let gap = if down.is_empty() { "" } else { "\n" };
    format!(
        "machine {}, {}, {}\n\n{}{gap}{down}",
        conf.machine,
        count(hosts, "host"),
        count(tasks as usize, "task"),
        lines(&table)
    )
}

pub(super) fn conf_json(conf: &Conf) -> Value {
    let hosts: Vec<Value> = conf.hosts.iter().map(|row| host(conf, row)).collect();
    let name = |host| hosts::name(conf, host);
    let down = conf.links_down.iter();
    let down: Vec<Value> = down.map(|(a, b)| json!([name(*a), name(*b)])).collect();
    json!({
        "machine": conf.machine.to_string(),
        "applied": conf.applied,
        "hosts": hosts,
        "links_down": down,
    })
}

fn host(conf: &Conf, row: &HostRow) -> Value {
    json!({
        "host": row.host.to_string(),
        "name": row.facts.name,
        "address": row.facts.addr,
        "cpus": row.facts.cpus,
        "tasks": row.tasks,
        "tasks_max": row.facts.tasks_max,
        "arch": row.facts.arch,
        "role": role(conf, row),
        "state": state(row),
        "here": row.host == conf.here,
    })
}

fn role(conf: &Conf, row: &HostRow) -> &'static str {
    match row.state {
        HostState::Gone | HostState::Dead => UNKNOWN,
        _ if row.host == conf.leader => "leader",
        _ if row.voter => "voter",
        _ => "follower",
    }
}

fn state(row: &HostRow) -> &'static str {
    match row.state {
        HostState::Live => "live",
        HostState::Draining if row.tasks == 0 => "drained",
        HostState::Draining => "draining",
        HostState::Leaving => "leaving",
        HostState::Gone => "gone",
        HostState::Dead => "dead",
    }
}
