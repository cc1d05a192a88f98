//! Events as JSON. Tids and hosts are strings as people write them, so that what one command
//! prints another one takes.

use super::{
    image,
    words::{checkpoint_name, restarted_from, role, state, suspended_with, time},
};
use crate::{checkpoints::Row, event::Event, exit, hosts};
use serde_json::{Value, json};
use vm_store::CheckpointId;
use vm_wire::{
    HostId, MachineId, Tid,
    checkpoint::Recover,
    console::{Conf, HostRow, SuspendedRow, TaskRow},
    version,
};

pub(super) fn event(machine: MachineId, event: &Event) -> Value {
    let tid = |tid: &Tid| tid.show(machine);
    match event {
        Event::Conf(conf) => self::conf(conf),
        Event::Tasks(rows, suspended) => {
            let rows: Vec<Value> = rows.iter().map(|row| task(machine, row)).collect();
            let suspended = suspended.iter().map(|row| self::suspended(machine, row));
            json!({ "tasks": rows, "suspended": suspended.collect::<Vec<_>>() })
        }
        Event::Started(tids) => {
            let tids: Vec<String> = tids.iter().map(tid).collect();
            json!({ "started": tids })
        }
        Event::Signalled(task, signal) => json!({ "tid": tid(task), "signal": signal }),
        Event::Check(task, reasons) => {
            json!({ "tid": tid(task), "movable": reasons.is_empty(), "reasons": reasons })
        }
        Event::Moved(task, report, conf) => json!({
            "tid": tid(task),
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
        }),
        Event::Checkpointed(report) => json!({
            "checkpoint": checkpoint_name(report),
            "tasks": report.tasks,
            "bytes": report.bytes,
            "stored": report.stored,
            "freeze_us": report.freeze_us,
            "total_us": report.total_us,
            "in_transit": report.in_transit,
        }),
        Event::Policy(of, policy) => json!({
            "tid": tid(of),
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
        }),
        Event::Stopped(report) => json!({
            "stopped": checkpoint_name(report),
            "tasks": report.tasks,
            "bytes": report.bytes,
            "stored": report.stored,
            "freeze_us": report.freeze_us,
            "total_us": report.total_us,
            "in_transit": report.in_transit,
        }),
        Event::TaskSuspended(task, report, conf) => json!({
            "suspended": tid(task),
            "host": hosts::name(conf, report.from),
            "bytes": report.bytes,
            "total_us": report.total_us,
        }),
        Event::TaskResumed(task, report, conf) => json!({
            "resumed": tid(task),
            "from": hosts::name(conf, report.from),
            "to": hosts::name(conf, report.to),
            "bytes": report.bytes,
            "total_us": report.total_us,
            "sent_again": report.sent_again,
        }),
        Event::Suspended(app, report) => json!({
            "suspended": tid(app),
            "checkpoint": checkpoint_name(report),
            "tasks": report.tasks,
            "bytes": report.bytes,
            "stored": report.stored,
            "freeze_us": report.freeze_us,
            "total_us": report.total_us,
        }),
        Event::Restarted(report, conf) | Event::Resumed(report, conf) => {
            let row = |(host, count): &(HostId, u32)| json!({ "host": hosts::name(conf, *host), "tasks": count });
            json!({
                "restarted": report.app.show(machine),
                "checkpoint": restarted_from(report),
                "generation": report.generation,
                "hosts": report.hosts.iter().map(row).collect::<Vec<_>>(),
                "total_us": report.total_us,
                "passed_over": report.passed_over,
            })
        }
        Event::Checkpoints(rows, known, store) => {
            let rows = rows.iter().map(|row| {
                let mut value = checkpoint(row);
                if let Some(in_bucket) = row.in_bucket {
                    value["in_bucket"] = json!(in_bucket);
                }
                value
            });
            let mut value = json!({
                "checkpoints": rows.collect::<Vec<_>>(),
                "store": store.display().to_string(),
            });
            if let Some(known) = known {
                let (address, failed) = (known.address.to_string(), &known.failed);
                value["bucket"] = json!({ "address": address, "failed": failed });
            }
            value
        }
        Event::Pushed(pushed, address) => {
            let named = |(app, id): &(Tid, CheckpointId)| named(*app, *id);
            let failed = pushed.failed.iter().map(|(app, id, why)| {
                let mut value = self::named(*app, *id);
                value["why"] = json!(why.to_string());
                value
            });
            json!({
                "bucket": address.to_string(),
                "copied": pushed.copied.iter().map(named).collect::<Vec<_>>(),
                "bytes": pushed.bytes,
                "removed": pushed.removed.iter().map(named).collect::<Vec<_>>(),
                "failed": failed.collect::<Vec<_>>(),
            })
        }
        Event::Pulled(app, fetched, address) => {
            let over = fetched.passed_over.iter();
            let over = over.map(|(id, why)| format!("{id}: {why}"));
            json!({
                "bucket": address.to_string(),
                "application": vm_store::name::app(*app),
                "checkpoint": fetched.good.map(|id| id.to_string()),
                "fetched": fetched.fetched,
                "passed_over": over.collect::<Vec<_>>(),
            })
        }
        Event::InBucket(rows, address) => {
            let rows = rows.iter().map(|row| {
                let mut value = checkpoint(&row.row);
                value["here"] = json!(row.here);
                value
            });
            json!({ "bucket": address.to_string(), "checkpoints": rows.collect::<Vec<_>>() })
        }
        Event::Drained(report, conf) => {
            let moved = report.moved.iter().map(|(task, moved)| {
                json!({
                    "tid": tid(task),
                    "to": hosts::name(conf, moved.to),
                    "bytes": moved.bytes,
                    "total_us": moved.total_us,
                })
            });
            let refused = report.refused.iter();
            let refused =
                refused.map(|(task, why)| json!({ "tid": tid(task), "reason": why.text }));
            json!({
                "drained": hosts::name(conf, report.host),
                "total_us": report.total_us,
                "moved_count": report.moved_count,
                "refused_count": report.refused_count,
                "saved_count": report.saved_count,
                "suspended": report.suspended.iter().map(tid).collect::<Vec<_>>(),
                "moved": moved.collect::<Vec<_>>(),
                "refused": refused.collect::<Vec<_>>(),
            })
        }
        Event::HostResumed(host) => json!({ "resumed": host }),
        Event::HostAdded(host) => json!({ "added": host }),
        Event::HostDeleted(host) => json!({ "deleted": host }),
        Event::Halted => json!({ "halted": true }),
        Event::ImageMade(made) => image::made_json(made),
        Event::Image(report) => image::json(report),
        Event::ImageVerified(file, verdict) => image::verdict_json(file, verdict),
        Event::Version(daemon) => json!({
            "release": env!("CARGO_PKG_VERSION"),
            "protocol": version::CURRENT,
            "daemon": daemon.map(|daemon| json!({
                "release": daemon.release,
                "protocol": daemon.protocol,
                "machine": daemon.machine.to_string(),
                "host": daemon.host.to_string(),
            })),
        }),
        Event::Help(text) => json!({ "help": text }),
        Event::RunStarted(master) => json!({ "event": "started", "tid": tid(master) }),
        Event::RunOutput { output, .. } => json!({
            "event": "output",
            "tid": tid(&output.tid),
            "stream": output.stream,
            "text": String::from_utf8_lossy(&output.bytes),
            "dropped": output.dropped,
        }),
        Event::RunEnded(master, status) => json!({
            "event": "ended",
            "tid": tid(master),
            "status": status.map_or_else(|| "runs on".to_owned(), |status| status.to_string()),
            "code": exit::of_run(*status),
        }),
    }
}

pub(super) fn failure(kind: &str, text: &str) -> Value {
    json!({ "error": { "kind": kind, "text": text } })
}

pub(super) fn notice(kind: &str, text: &str) -> Value {
    json!({ "notice": { "kind": kind, "text": text } })
}

fn conf(conf: &Conf) -> Value {
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

fn suspended(machine: MachineId, row: &SuspendedRow) -> Value {
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

/// A checkpoint in a store.
fn checkpoint(row: &Row) -> Value {
    let summary = row.summary.as_ref();
    json!({
        "application": row.app_name(),
        "checkpoint": row.id.to_string(),
        "made": summary.map(|it| time(it.taken_ms)),
        "tasks": summary.map(|it| it.tasks),
        "bytes": summary.map(|it| it.bytes),
        "stored": summary.map(|it| it.stored),
        "freeze_us": summary.map(|it| it.freeze_us),
        "took_us": summary.map(|it| it.took_us),
        "in_transit": summary.map(|it| it.in_transit),
        "base": summary.and_then(|it| it.base).map(|base| base.to_string()),
        "program": summary.map(|it| it.program.clone()),
        "damaged": row.damaged,
        "alone": row.alone,
    })
}

fn named(app: Tid, id: CheckpointId) -> Value {
    json!({ "application": vm_store::name::app(app), "checkpoint": id.to_string() })
}
