//! Moves of tasks, suspensions of single tasks, and drains of hosts.

use super::words::count;
use crate::hosts;
use serde_json::{Value, json};
use vm_wire::{
    MachineId, Tid,
    console::Conf,
    peer::{DrainReport, MoveReport},
};

/// The report of a move: one sentence, with `wrap` where a line of a terminal ends.
pub(super) fn moved_text(
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
        "{} moved from {} to {}: {:.1} MB in {:.1} ms,{wrap}{:.1} MB of them while it ran ({}); \
         frozen for {:.1} ms{wrap}(interrupt {:.1}, save {:.1}, transfer {:.1}, restore \
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

pub(super) fn moved_json(machine: MachineId, tid: Tid, report: &MoveReport, conf: &Conf) -> Value {
    json!({
        "tid": tid.show(machine),
        "from": hosts::name(conf, report.from),
        "to": hosts::name(conf, report.to),
        "bytes": report.bytes,
        "total_us": report.total_us,
        "copied": report.copied,
        "rounds": report.rounds,
        "prepare_us": report.prepare_us,
        "copy_us": report.copy_us,
        "freeze_us": report.freeze_us(),
        "interrupt_us": report.interrupt_us,
        "save_us": report.save_us,
        "transfer_us": report.transfer_us,
        "restore_us": report.restore_us,
        "drain_us": report.drain_us,
        "commit_us": report.commit_us,
        "sent_again": report.sent_again,
    })
}

/// The number of bytes that were sent or saved, and the time that this took.
fn amount(report: &MoveReport) -> String {
    let (bytes, total_us) = (report.bytes as f64, report.total_us as f64);
    format!("{:.1} MB in {:.1} ms", bytes / 1e6, total_us / 1e3)
}

pub(super) fn suspended_text(
    machine: MachineId,
    tid: Tid,
    report: &MoveReport,
    conf: &Conf,
) -> String {
    let (tid, host) = (tid.show(machine), hosts::name(conf, report.from));
    let amount = amount(report);
    format!("{tid} suspended on {host}: {amount}; 'vm resume {tid}' resumes it\n")
}

pub(super) fn suspended_json(
    machine: MachineId,
    tid: Tid,
    report: &MoveReport,
    conf: &Conf,
) -> Value {
    json!({
        "suspended": tid.show(machine),
        "host": hosts::name(conf, report.from),
        "bytes": report.bytes,
        "total_us": report.total_us,
    })
}

pub(super) fn resumed_text(
    machine: MachineId,
    tid: Tid,
    report: &MoveReport,
    conf: &Conf,
) -> String {
    let (tid, host) = (tid.show(machine), hosts::name(conf, report.to));
    format!("{tid} resumed on {host}: {}\n", amount(report))
}

pub(super) fn resumed_json(
    machine: MachineId,
    tid: Tid,
    report: &MoveReport,
    conf: &Conf,
) -> Value {
    json!({
        "resumed": tid.show(machine),
        "from": hosts::name(conf, report.from),
        "to": hosts::name(conf, report.to),
        "bytes": report.bytes,
        "total_us": report.total_us,
        "sent_again": report.sent_again,
    })
}

pub(super) fn drained_text(machine: MachineId, report: &DrainReport, conf: &Conf) -> String {
    let mut text = match report.saved_count {
        0 => String::new(),
        1 => "a checkpoint of 1 application was made first\n".to_owned(),
        count => format!("checkpoints of {count} applications were made first\n"),
    };
    for (tid, moved) in &report.moved {
        let (tid, to) = (tid.show(machine), hosts::name(conf, moved.to));
        text += &format!("{tid} moved to {to}: {}\n", amount(moved));
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

pub(super) fn drained_json(machine: MachineId, report: &DrainReport, conf: &Conf) -> Value {
    let moved = report.moved.iter().map(|(task, moved)| {
        json!({
            "tid": task.show(machine),
            "to": hosts::name(conf, moved.to),
            "bytes": moved.bytes,
            "total_us": moved.total_us,
        })
    });
    let refused = report.refused.iter();
    let refused =
        refused.map(|(task, why)| json!({ "tid": task.show(machine), "reason": why.text }));
    let suspended = report.suspended.iter().map(|app| app.show(machine));
    json!({
        "drained": hosts::name(conf, report.host),
        "total_us": report.total_us,
        "moved_count": report.moved_count,
        "refused_count": report.refused_count,
        "saved_count": report.saved_count,
        "suspended": suspended.collect::<Vec<_>>(),
        "moved": moved.collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
    })
}
