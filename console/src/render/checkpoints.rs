//! Checkpoints that were made, checkpoint policies, and restarts.

use super::words::{checkpoint_name, restarted_from, task_count};
use crate::hosts;
use serde_json::{Value, json};
use vm_wire::{
    HostId, MachineId, Tid,
    checkpoint::{CheckpointReport, Policy, Recover, RestartReport},
    console::Conf,
    limits::CHECKPOINTS_KEPT,
};

pub(super) fn made_text(report: &CheckpointReport) -> String {
    format!(
        "checkpoint {}: {}; frozen for {:.1} ms\n",
        checkpoint_name(report),
        saved(report),
        report.freeze_us as f64 / 1e3,
    )
}

pub(super) fn made_json(report: &CheckpointReport) -> Value {
    let mut value = report_json(report);
    value["checkpoint"] = json!(checkpoint_name(report));
    value["in_transit"] = json!(report.in_transit);
    value
}

pub(super) fn stopped_text(report: &CheckpointReport) -> String {
    let name = checkpoint_name(report);
    format!("stopped with checkpoint {name}: {}\n", saved(report))
}

pub(super) fn stopped_json(report: &CheckpointReport) -> Value {
    let mut value = report_json(report);
    value["stopped"] = json!(checkpoint_name(report));
    value["in_transit"] = json!(report.in_transit);
    value
}

pub(super) fn suspended_text(machine: MachineId, app: Tid, report: &CheckpointReport) -> String {
    let (app, name) = (app.show(machine), checkpoint_name(report));
    let saved = saved(report);
    format!("{app} suspended with checkpoint {name}: {saved}; 'vm resume {app}' resumes it\n")
}

pub(super) fn suspended_json(machine: MachineId, app: Tid, report: &CheckpointReport) -> Value {
    let mut value = report_json(report);
    value["suspended"] = json!(app.show(machine));
    value["checkpoint"] = json!(checkpoint_name(report));
    value
}

/// The fields that the reports of all checkpoints have in common.
fn report_json(report: &CheckpointReport) -> Value {
    json!({
        "tasks": report.tasks,
        "bytes": report.bytes,
        "stored": report.stored,
        "freeze_us": report.freeze_us,
        "total_us": report.total_us,
    })
}

/// The number of bytes that were saved, and the time that this took.
fn saved(report: &CheckpointReport) -> String {
    let (bytes, stored) = (report.bytes as f64 / 1e6, report.stored as f64 / 1e6);
    let stored = match report.stored == report.bytes {
        true => String::new(),
        false => format!(" ({stored:.1} stored)"),
    };
    let (tasks, ms) = (task_count(report.tasks), report.total_us as f64 / 1e3);
    format!("{tasks}, {bytes:.1} MB{stored} in {ms:.1} ms")
}

pub(super) fn policy_text(machine: MachineId, tid: Tid, policy: Policy) -> String {
    let (tid, kept) = (tid.show(machine), kept(&policy));
    match (policy.every_ms, policy.mtbf_ms) {
        (0, 0) => format!("{tid}: no automatic checkpoints any more\n"),
        (every, 0) => format!(
            "{tid}: a checkpoint every {} s, {kept}\n",
            every as f64 / 1e3
        ),
        (_, mtbf) => {
            let mtbf = match mtbf {
                ms @ ..7_200_000 => format!("{:.1} minutes", ms as f64 / 6e4),
                ms => format!("{:.1} hours", ms as f64 / 3.6e6),
            };
            format!(
                "{tid}: checkpoints at the best interval for one failure in {mtbf} and the cost of \
                 the last checkpoint, {kept}\n"
            )
        }
    }
}

pub(super) fn policy_json(machine: MachineId, tid: Tid, policy: Policy) -> Value {
    json!({
        "tid": tid.show(machine),
        "every_ms": policy.every_ms,
        "mtbf_ms": (policy.mtbf_ms != 0).then_some(policy.mtbf_ms),
        "keep": (policy.keep != 0).then_some(policy.keep),
        "recover": match policy.recover {
            Recover::Host => "host",
            Recover::Kill => "kill",
            Recover::Never => "never",
        },
        "compress": policy.compress,
        "blocking": policy.blocking,
    })
}

/// The number of checkpoints that a policy keeps, and how their images are written.
fn kept(policy: &Policy) -> String {
    let count = match policy.keep {
        0 => CHECKPOINTS_KEPT,
        keep => keep,
    };
    let packed = if policy.compress { ", compressed" } else { "" };
    let stood = match policy.blocking {
        true => ", tasks are frozen while they are saved",
        false => "",
    };
    format!("{count} are kept{packed}{stood}")
}

/// The hosts on which the tasks of a restarted application run.
pub(super) fn restarted_text(machine: MachineId, report: &RestartReport, conf: &Conf) -> String {
    runs_again(machine, report, conf, "restarted")
}

/// The hosts on which the tasks of a resumed application run.
pub(super) fn resumed_text(machine: MachineId, report: &RestartReport, conf: &Conf) -> String {
    runs_again(machine, report, conf, "resumed")
}

fn runs_again(machine: MachineId, report: &RestartReport, conf: &Conf, how: &str) -> String {
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

pub(super) fn restarted_json(machine: MachineId, report: &RestartReport, conf: &Conf) -> Value {
    let row =
        |(host, count): &(HostId, u32)| json!({ "host": hosts::name(conf, *host), "tasks": count });
    json!({
        "restarted": report.app.show(machine),
        "checkpoint": restarted_from(report),
        "generation": report.generation,
        "hosts": report.hosts.iter().map(row).collect::<Vec<_>>(),
        "total_us": report.total_us,
        "passed_over": report.passed_over,
    })
}
