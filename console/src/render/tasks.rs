//! Tasks, and suspended applications and tasks.

use super::{
    table::{align_right, lines, table},
    words::{UNKNOWN, memory, plain_name, suspended_with, task_count, time},
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    MachineId, Tid,
    console::{SuspendedRow, TaskRow},
};

pub(super) fn list_text(
    machine: MachineId,
    rows: &[TaskRow],
    suspended: &[SuspendedRow],
) -> String {
    let suspended = suspended.iter().map(|row| suspended_line(machine, row));
    tasks(machine, rows) + &suspended.collect::<String>()
}

pub(super) fn list_json(machine: MachineId, rows: &[TaskRow], suspended: &[SuspendedRow]) -> Value {
    let rows: Vec<Value> = rows.iter().map(|row| task(machine, row)).collect();
    let suspended = suspended.iter().map(|row| suspended_json(machine, row));
    json!({ "tasks": rows, "suspended": suspended.collect::<Vec<_>>() })
}

pub(super) fn started_text(machine: MachineId, tids: &[Tid]) -> String {
    tids.iter()
        .map(|tid| format!("{}\n", tid.show(machine)))
        .collect()
}

pub(super) fn started_json(machine: MachineId, tids: &[Tid]) -> Value {
    let tids: Vec<String> = tids.iter().map(|tid| tid.show(machine)).collect();
    json!({ "started": tids })
}

pub(super) fn check_text(machine: MachineId, tid: Tid, reasons: &[String]) -> String {
    let tid = tid.show(machine);
    if reasons.is_empty() {
        return format!("{tid} can be moved\n");
    }
    let line = |reason| format!("{tid} cannot be moved: {reason}\n");
    reasons.iter().map(line).collect()
}

pub(super) fn check_json(machine: MachineId, tid: Tid, reasons: &[String]) -> Value {
    json!({ "tid": tid.show(machine), "movable": reasons.is_empty(), "reasons": reasons })
}

fn tasks(machine: MachineId, rows: &[TaskRow]) -> String {
    if rows.is_empty() {
        return "no tasks\n".to_owned();
    }
    let mut table = table(&["TASK", "HOST", "PROGRAM", "PID", "STATE", "CPU", "MEMORY"]);
    align_right(&mut table, &[3, 5, 6]);
    for (branch, row) in tree(rows) {
        let usage = row.usage.as_ref();
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        table.add_row([
            format!("{branch}{}", row.tid.show(machine)),
            row.host.clone(),
            plain_name(&row.program),
            or_unknown(usage.map(|usage| usage.pid.to_string())),
            match row.suspended {
                true => "suspended".to_owned(),
                false => or_unknown(usage.map(|usage| usage.state.to_string())),
            },
            or_unknown(usage.map(|usage| cpu_time(usage.cpu_ms))),
            or_unknown(usage.map(|usage| memory(usage.memory))),
        ]);
    }
    lines(&table)
}

/// The rows with children below their parents, each with the branch that leads to it. A task whose
/// parent has ended is a root.
fn tree(rows: &[TaskRow]) -> Vec<(String, &TaskRow)> {
    let by_tid: BTreeMap<Tid, &TaskRow> = rows.iter().map(|row| (row.tid, row)).collect();
    let mut children: BTreeMap<Tid, Vec<Tid>> = BTreeMap::new();
    let mut roots = Vec::new();
    for row in by_tid.values() {
        if by_tid.contains_key(&row.parent) && row.parent != row.tid {
            children.entry(row.parent).or_default().push(row.tid);
        } else {
            roots.push(row.tid);
        }
    }
    // The rows that are still to be shown, in reverse order: the task, its own branch, the branch
    // of its children.
    let mut stack: Vec<(Tid, String, String)> = roots
        .into_iter()
        .rev()
        .map(|tid| (tid, String::new(), String::new()))
        .collect();
    let mut seen = BTreeSet::new();
    let mut shown = Vec::with_capacity(rows.len());
    while let Some((tid, branch, below)) = stack.pop() {
        if !seen.insert(tid) {
            continue;
        }
        shown.push((branch, by_tid[&tid]));
        let children = children.get(&tid).map_or(&[][..], Vec::as_slice);
        for (index, child) in children.iter().enumerate().rev() {
            let (own, deeper) = if index + 1 == children.len() {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            stack.push((*child, format!("{below}{own}"), format!("{below}{deeper}")));
        }
    }
    shown
}

fn task(machine: MachineId, row: &TaskRow) -> Value {
    json!({
        "tid": row.tid.show(machine),
        "parent": (!row.parent.is_none()).then(|| row.parent.show(machine)),
        "app": row.app.show(machine),
        "host": row.host,
        "incarnation": row.incarnation,
        "program": row.program,
        "suspended": row.suspended,
        "usage": row.usage.as_ref().map(|usage| json!({
            "pid": usage.pid,
            "cpu_ms": usage.cpu_ms,
            "memory_bytes": usage.memory,
            "state": usage.state,
        })),
    })
}

/// The line of an application that is suspended.
fn suspended_line(machine: MachineId, row: &SuspendedRow) -> String {
    let app = row.app.show(machine);
    let until = match row.until_ms {
        0 => String::new(),
        until => format!(" until {}", time(until)),
    };
    let drained = row.drained.as_ref();
    let drained = drained.map_or_else(String::new, |host| format!(", as {host} drained"));
    let how = match row.resuming {
        true => "it is being resumed".to_owned(),
        false => format!("'vm resume {app}' resumes it"),
    };
    format!(
        "{app} ({}, {}) is suspended with {} since {}{until}{drained}; {how}\n",
        plain_name(&row.program),
        task_count(row.tasks),
        suspended_with(row),
        time(row.since_ms),
    )
}

fn suspended_json(machine: MachineId, row: &SuspendedRow) -> Value {
    json!({
        "app": row.app.show(machine),
        "program": row.program,
        "tasks": row.tasks,
        "checkpoint": suspended_with(row),
        "since": time(row.since_ms),
        "until": (row.until_ms != 0).then(|| time(row.until_ms)),
        "drained": row.drained,
        "resuming": row.resuming,
    })
}

fn cpu_time(ms: u64) -> String {
    let seconds = ms / 1000;
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}.{:02} s", ms % 1000 / 10),
        (0, _) => format!("{minutes}:{rest:02}"),
        _ => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_parents_does_not_hang_the_task_list() {
        let tid = |sequence| crate::fake::tid(1, sequence);
        let row = |own, parent| TaskRow {
            tid: tid(own),
            parent: tid(parent),
            app: tid(1),
            host: "a".to_owned(),
            incarnation: 1,
            program: "p".to_owned(),
            usage: None,
            suspended: false,
        };
        let rows = [row(1, 2), row(2, 1), row(3, 3)];
        let shown: Vec<Tid> = tree(&rows).into_iter().map(|(_, row)| row.tid).collect();
        assert_eq!(shown, [tid(3)]);
    }

    #[test]
    fn amounts_have_the_unit_that_fits() {
        assert_eq!(cpu_time(59_999), "59.99 s");
        assert_eq!(cpu_time(60_000), "1:00");
        assert_eq!(memory(1023), "1023 B");
        assert_eq!(memory(1536), "1.5 KiB");
        assert_eq!(memory(5 << 40), "5.0 TiB");
    }
}
