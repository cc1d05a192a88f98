//! Events as tables and sentences.

use super::{
    image,
    words::{
        UNKNOWN, checkpoint_name, count, memory, plain_name, restarted_from, role, state,
        suspended_with, time,
    },
};
use crate::{bucket::BucketRow, checkpoints::Row, event::Event, hosts, signal_name};
use comfy_table::{CellAlignment, Table, presets};
use std::collections::{BTreeMap, BTreeSet};
use vm_bucket::{Address, Fetched, Pushed};
use vm_store::{CheckpointId, Summary};
use vm_wire::{
    HostId, MachineId, Tid,
    agreed::ExitStatus,
    checkpoint::{CheckpointReport, Policy, RestartReport},
    console::{Conf, HostRow, Output, SuspendedRow, TaskRow},
    limits::CHECKPOINTS_KEPT,
    peer::{DrainReport, MoveReport},
    version,
};

/// Blanks between two columns.
const GAP: u16 = 2;

pub(super) fn event(machine: MachineId, event: &Event) -> String {
    match event {
        Event::Conf(conf) => self::conf(conf),
        Event::Tasks(rows, suspended) => {
            tasks(machine, rows) + &self::suspended(machine, suspended)
        }
        Event::Started(tids) => tids
            .iter()
            .map(|tid| format!("{}\n", tid.show(machine)))
            .collect(),
        Event::Signalled(tid, signal) => {
            format!(
                "{}: sent {}\n",
                tid.show(machine),
                signal_name::show(*signal)
            )
        }
        Event::Check(tid, []) => format!("{} can be moved\n", tid.show(machine)),
        Event::Check(tid, reasons) => reasons
            .iter()
            .map(|reason| format!("{} cannot be moved: {reason}\n", tid.show(machine)))
            .collect(),
        Event::Moved(tid, report, conf) => moved(machine, *tid, report, conf, " "),
        Event::Checkpointed(report) => format!(
            "checkpoint {}: {} in {:.1} ms; they stood still for {:.1} ms\n",
            checkpoint_name(report),
            saved(report),
            report.total_us as f64 / 1e3,
            report.freeze_us as f64 / 1e3,
        ),
        Event::Policy(tid, policy) if policy.mtbf_ms != 0 => format!(
            "{}: checkpoints at the interval that fits one failure in {} and what the last one took, {}\n",
            tid.show(machine),
            match policy.mtbf_ms {
                ms @ ..7_200_000 => format!("{:.1} minutes", ms as f64 / 6e4),
                ms => format!("{:.1} hours", ms as f64 / 3.6e6),
            },
            kept(policy),
        ),
        Event::Policy(tid, policy) => match policy.every_ms {
            0 => format!("{}: no more checkpoints by themselves\n", tid.show(machine)),
            every => format!(
                "{}: a checkpoint every {} s, {}\n",
                tid.show(machine),
                every as f64 / 1e3,
                kept(policy),
            ),
        },
        Event::Stopped(report) => format!(
            "stopped with checkpoint {}: {} in {:.1} ms\n",
            checkpoint_name(report),
            saved(report),
            report.total_us as f64 / 1e3,
        ),
        Event::Suspended(app, report) => format!(
            "{0} suspended with checkpoint {1}: {2} in {3:.1} ms; 'vm resume {0}' brings it back\n",
            app.show(machine),
            checkpoint_name(report),
            saved(report),
            report.total_us as f64 / 1e3,
        ),
        Event::TaskSuspended(task, report, conf) => format!(
            "{0} suspended on {1}: {2:.1} MB in {3:.1} ms; 'vm resume {0}' brings it back\n",
            task.show(machine),
            hosts::name(conf, report.from),
            report.bytes as f64 / 1e6,
            report.total_us as f64 / 1e3,
        ),
        Event::TaskResumed(task, report, conf) => format!(
            "{} resumed on {}: {:.1} MB in {:.1} ms\n",
            task.show(machine),
            hosts::name(conf, report.to),
            report.bytes as f64 / 1e6,
            report.total_us as f64 / 1e3,
        ),
        Event::Restarted(report, conf) => restarted(machine, report, conf),
        Event::Resumed(report, conf) => brought_back(machine, report, conf, "resumed"),
        Event::Checkpoints(rows, known, store) => {
            let failed = known.and_then(|known| known.failed.as_ref().map(|why| (known, why)));
            let failed = failed.map(|(known, why)| {
                let address = &known.address;
                format!("not all is in {address}: {why}; 'vm store push' tries it again\n")
            });
            let store = format!("in the store {}\n", store.display());
            checkpoints(rows) + &store + &failed.unwrap_or_default()
        }
        Event::Pushed(pushed, address) => self::pushed(pushed, address),
        Event::Pulled(app, fetched, address) => pulled(*app, fetched, address),
        Event::InBucket(rows, _) => in_bucket(rows),
        Event::Drained(report, conf) => drained(machine, report, conf),
        Event::HostResumed(host) => format!("{host}: takes tasks again\n"),
        Event::HostAdded(host) => format!("{host}: added\n"),
        Event::HostDeleted(host) => format!("{host}: deleted\n"),
        Event::Halted => "the machine has ended\n".to_owned(),
        Event::ImageMade(made) => image::made(made),
        Event::Image(report) => image::people(report),
        Event::ImageVerified(file, verdict) => image::verdict(file, verdict),
        Event::Version(daemon) => {
            let ours = format!(
                "vm {}, protocol {}\n",
                env!("CARGO_PKG_VERSION"),
                version::CURRENT
            );
            let theirs = match daemon {
                Some(daemon) => format!(
                    "vmd {}, protocol {}, host {} of machine {}\n",
                    daemon.release, daemon.protocol, daemon.host, daemon.machine
                ),
                None => "no daemon runs here\n".to_owned(),
            };
            ours + &theirs
        }
        Event::Help(text) => (*text).to_owned(),
        // These three have a way of their own, see `Renderer::show`.
        Event::RunStarted(_) | Event::RunOutput { .. } | Event::RunEnded(..) => String::new(),
    }
}

/// How a move went: one sentence, with `wrap` where a terminal's line ends.
pub(super) fn moved(
    machine: MachineId,
    tid: Tid,
    report: &MoveReport,
    conf: &Conf,
    wrap: &str,
) -> String {
    let ms = |us: u64| us as f64 / 1e3;
    let again = match report.sent_again {
        0 => String::new(),
        chunks => format!(";{wrap}{} sent again", count(chunks as usize, "chunk")),
    };
    format!(
        "{} moved from {} to {}: {:.1} MB in {:.1} ms,{wrap}{:.1} MB of them while it ran ({}); it \
         stood still for {:.1} ms{wrap}(interrupt {:.1}, save {:.1}, transfer {:.1}, restore \
         {:.1}, drain {:.1}, commit {:.1}){again}\n",
        tid.show(machine),
        hosts::name(conf, report.from),
        hosts::name(conf, report.to),
        report.bytes as f64 / 1e6,
        ms(report.total_us),
        report.copied as f64 / 1e6,
        count(report.rounds as usize, "round"),
        ms(report.freeze_us()),
        ms(report.interrupt_us),
        ms(report.save_us),
        ms(report.transfer_us),
        ms(report.restore_us),
        ms(report.drain_us),
        ms(report.commit_us),
    )
}

/// A line for each application that is suspended.
fn suspended(machine: MachineId, rows: &[SuspendedRow]) -> String {
    let line = |row: &SuspendedRow| {
        let app = row.app.show(machine);
        let until = match row.until_ms {
            0 => String::new(),
            until => format!(" until {}", time(until)),
        };
        let drained = row.drained.as_ref();
        let drained = drained.map_or_else(String::new, |host| format!(", as {host} drained"));
        let how = match row.resuming {
            true => "it is just being resumed".to_owned(),
            false => format!("'vm resume {app}' brings it back"),
        };
        format!(
            "{app} ({}, {}) is suspended with {} since {}{until}{drained}; {how}\n",
            plain_name(&row.program),
            task_count(row.tasks),
            suspended_with(row),
            time(row.since_ms),
        )
    };
    rows.iter().map(line).collect()
}

fn drained(machine: MachineId, report: &DrainReport, conf: &Conf) -> String {
    let mut text = match report.saved_count {
        0 => String::new(),
        1 => "1 application was saved first\n".to_owned(),
        count => format!("{count} applications were saved first\n"),
    };
    for (tid, moved) in &report.moved {
        text += &format!(
            "{} moved to {}: {:.1} MB in {:.1} ms\n",
            tid.show(machine),
            hosts::name(conf, moved.to),
            moved.bytes as f64 / 1e6,
            moved.total_us as f64 / 1e3,
        );
    }
    for (tid, why) in &report.refused {
        text += &format!("{} stays: {why}\n", tid.show(machine));
    }
    for app in &report.suspended {
        text += &format!(
            "{0} suspended: it is resumed when there is room, or by 'vm resume {0}'\n",
            app.show(machine)
        );
    }
    let have = |number: u32| if number == 1 { "has" } else { "have" };
    let (left, stay) = (report.moved_count, report.refused_count);
    let rest = match stay {
        0 => String::new(),
        _ => format!(", {stay} {} not", have(stay)),
    };
    let host = hosts::name(conf, report.host);
    let tasks = count(left as usize, "task");
    let seconds = report.total_us as f64 / 1e6;
    text + &format!(
        "{host}: {tasks} {} left in {seconds:.3} s{rest}\n",
        have(left)
    )
}

/// What a task of the run wrote, as it goes to the terminal. The master's bytes pass as they are;
/// each line of another task begins with its tid.
pub(super) fn run_output(
    machine: MachineId,
    master: Tid,
    output: &Output,
    raw_terminal: bool,
) -> Vec<u8> {
    let end: &[u8] = if raw_terminal { b"\r\n" } else { b"\n" };
    let mut bytes = Vec::with_capacity(output.bytes.len() + 32);
    let tid = output.tid.show(machine);
    if output.dropped > 0 {
        bytes.extend_from_slice(
            format!(
                "vm: {} bytes of {tid}'s output were dropped here",
                output.dropped
            )
            .as_bytes(),
        );
        bytes.extend_from_slice(end);
    }
    if output.tid == master {
        bytes.extend_from_slice(&output.bytes);
        return bytes;
    }
    for line in output.bytes.split_inclusive(|byte| *byte == b'\n') {
        bytes.extend_from_slice(format!("[{tid}] ").as_bytes());
        bytes.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        bytes.extend_from_slice(end);
    }
    bytes
}

/// How many checkpoints are kept by a policy, and how.
fn kept(policy: &Policy) -> String {
    let count = match policy.keep {
        0 => CHECKPOINTS_KEPT,
        keep => keep,
    };
    let packed = if policy.compress { ", compressed" } else { "" };
    let stood = match policy.blocking {
        true => ", tasks stand meanwhile",
        false => "",
    };
    format!("{count} are kept{packed}{stood}")
}

/// What a shell would say of a program that ended so, if anything.
pub(super) fn run_ended(
    machine: MachineId,
    tid: Tid,
    status: Option<ExitStatus>,
) -> Option<String> {
    let tid = tid.show(machine);
    let Some(status) = status else {
        return Some(format!(
            "{tid} runs on, but this host leaves the machine: what it writes goes to the logs of its \
             hosts, and 'vm ps' there shows it"
        ));
    };
    match status {
        ExitStatus::Left(_) | ExitStatus::Code(_) => None,
        ExitStatus::Signal(libc::SIGINT | libc::SIGPIPE) => None,
        ExitStatus::Signal(signal) => {
            Some(format!("{tid} was ended by {}", signal_name::show(signal)))
        }
        ExitStatus::NotStarted
        | ExitStatus::HostLost
        | ExitStatus::Suspended
        | ExitStatus::Unknown => Some(format!("{tid} {status}")),
        // Why, was said before; while it goes back to a checkpoint, its run has not ended.
        ExitStatus::RolledBack => Some(format!("{tid} could not be brought back")),
    }
}

fn conf(conf: &Conf) -> String {
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

/// The rows with children below their parents, each with the branch that leads to it. A task
/// whose parent has ended stands by itself.
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
    // What is still to be shown, last first: task, its own branch, the branch of its children.
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

/// How much was saved.
fn saved(report: &CheckpointReport) -> String {
    let (bytes, stored) = (report.bytes as f64 / 1e6, report.stored as f64 / 1e6);
    let stored = match report.stored == report.bytes {
        true => String::new(),
        false => format!(" ({stored:.1} stored)"),
    };
    format!("{}, {bytes:.1} MB{stored}", task_count(report.tasks))
}

fn task_count(count: u32) -> String {
    format!("{count} task{}", if count == 1 { "" } else { "s" })
}

/// Where an application goes on that was restarted.
pub(super) fn restarted(machine: MachineId, report: &RestartReport, conf: &Conf) -> String {
    brought_back(machine, report, conf, "restarted")
}

fn brought_back(machine: MachineId, report: &RestartReport, conf: &Conf, how: &str) -> String {
    let on = |(host, count): &(HostId, u32)| {
        format!("{} on {}", task_count(*count), hosts::name(conf, *host))
    };
    let passed_over: String = report
        .passed_over
        .iter()
        .map(|it| format!("{it}\n"))
        .collect();
    format!(
        "{passed_over}{} {how} from {} in {:.1} ms: {}\n",
        report.app.show(machine),
        restarted_from(report),
        report.total_us as f64 / 1e3,
        report.hosts.iter().map(on).collect::<Vec<_>>().join(", "),
    )
}

fn pushed(pushed: &Pushed, address: &Address) -> String {
    let named = |app: &Tid, id: &CheckpointId| format!("{} {id}", vm_store::name::app(*app));
    let copied = pushed.copied.iter();
    let mut text: String = copied
        .map(|(app, id)| format!("{} copied to {address}\n", named(app, id)))
        .collect();
    for (app, id) in &pushed.removed {
        text += &format!("{} removed from {address}\n", named(app, id));
    }
    for (app, id, why) in &pushed.failed {
        text += &format!("{} not copied: {why}\n", named(app, id));
    }
    match text.is_empty() {
        true => format!("all is in {address}\n"),
        false => text,
    }
}

fn pulled(app: Tid, fetched: &Fetched, address: &Address) -> String {
    let over = fetched.passed_over.iter();
    let over: String = over.map(|(id, why)| format!("{id}: {why}\n")).collect();
    let app = vm_store::name::app(app);
    let last = match (fetched.good, fetched.fetched) {
        (Some(id), true) => format!("{app} {id} fetched from {address}\n"),
        (Some(id), false) => format!("{app} {id} is in the folder, undamaged\n"),
        (None, _) => format!("no checkpoint of {app} can be had from {address}\n"),
    };
    over + &last
}

fn in_bucket(rows: &[BucketRow]) -> String {
    let mut table = table(&[
        "APPLICATION",
        "CHECKPOINT",
        "MADE",
        "TASKS",
        "MB",
        "STORED",
        "BASE",
        "FOLDER",
        "PROGRAM",
    ]);
    align_right(&mut table, &[3, 4, 5]);
    for BucketRow { row, here } in rows {
        let of = |text: &dyn Fn(&Summary) -> String| {
            let summary = row.summary.as_ref();
            summary.map(text).unwrap_or_default()
        };
        table.add_row([
            row.app_name(),
            row.id.to_string(),
            of(&|it| time(it.taken_ms)),
            of(&|it| it.tasks.to_string()),
            of(&|it| format!("{:.1}", it.bytes as f64 / 1e6)),
            of(&|it| format!("{:.1}", it.stored as f64 / 1e6)),
            of(&|it| it.base.map(|base| base.to_string()).unwrap_or_default()),
            if *here { "yes" } else { "no" }.to_owned(),
            match &row.damaged {
                Some(why) => plain_name(&format!("damaged: {why}")),
                None => of(&|it| plain_name(&it.program)),
            },
        ]);
    }
    lines(&table)
}

fn checkpoints(rows: &[Row]) -> String {
    let bucket = rows.iter().any(|row| row.in_bucket.is_some());
    let mut columns = vec![
        "APPLICATION",
        "CHECKPOINT",
        "MADE",
        "TASKS",
        "MB",
        "STORED",
        "TOOK",
        "STOOD",
        "BASE",
        "PROGRAM",
    ];
    if bucket {
        columns.insert(9, "BUCKET");
    }
    let mut table = table(&columns);
    align_right(&mut table, &[3, 4, 5, 6, 7]);
    for row in rows {
        let of = |text: &dyn Fn(&Summary) -> String| {
            let summary = row.summary.as_ref();
            summary.map(text).unwrap_or_default()
        };
        let program = match &row.damaged {
            Some(why) => plain_name(&format!("damaged: {why}")),
            None if row.alone > 0 => of(&|it| {
                let (program, alone) = (plain_name(&it.program), row.alone);
                format!(
                    "{program} ({alone} of {} images on one disk alone)",
                    it.tasks
                )
            }),
            None => of(&|it| plain_name(&it.program)),
        };
        let mut cells = vec![
            row.app_name(),
            row.id.to_string(),
            of(&|it| time(it.taken_ms)),
            of(&|it| it.tasks.to_string()),
            of(&|it| format!("{:.1}", it.bytes as f64 / 1e6)),
            of(&|it| format!("{:.1}", it.stored as f64 / 1e6)),
            of(&|it| format!("{:.0} ms", it.took_us as f64 / 1e3)),
            of(&|it| format!("{:.0} ms", it.freeze_us as f64 / 1e3)),
            of(&|it| it.base.map(|base| base.to_string()).unwrap_or_default()),
            program,
        ];
        if bucket {
            let there = row.in_bucket == Some(true);
            cells.insert(9, if there { "yes" } else { "no" }.to_owned());
        }
        table.add_row(cells);
    }
    lines(&table)
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    table
}

fn align_right(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// The table's lines without the blanks at their ends.
fn lines(table: &Table) -> String {
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
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
    fn a_circle_of_parents_does_not_hang_the_tree() {
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
