//! Events as JSON, each by the module of its subject. Tids and hosts are strings as people write
//! them, so that the output of one command is good as an argument of another.

use super::{checkpoints, hosts, image, moves, run, store, tasks, version};
use crate::event::Event;
use serde_json::{Value, json};
use vm_wire::MachineId;

pub(super) fn event(machine: MachineId, event: &Event) -> Value {
    match event {
        Event::Conf(conf) => hosts::conf_json(conf),
        Event::Tasks(rows, suspended) => tasks::list_json(machine, rows, suspended),
        Event::Started(tids) => tasks::started_json(machine, tids),
        Event::Signalled(tid, signal) => json!({ "tid": tid.show(machine), "signal": signal }),
        Event::Check(tid, reasons) => tasks::check_json(machine, *tid, reasons),
        Event::Moved(tid, report, conf) => moves::moved_json(machine, *tid, report, conf),
        Event::Checkpointed(report) => checkpoints::made_json(report),
        Event::Policy(tid, policy) => checkpoints::policy_json(machine, *tid, *policy),
        Event::Stopped(report) => checkpoints::stopped_json(report),
        Event::Suspended(app, report) => checkpoints::suspended_json(machine, *app, report),
        Event::TaskSuspended(tid, report, conf) => {
            moves::suspended_json(machine, *tid, report, conf)
        }
        Event::TaskResumed(tid, report, conf) => moves::resumed_json(machine, *tid, report, conf),
        Event::Restarted(report, conf) | Event::Resumed(report, conf) => {
            checkpoints::restarted_json(machine, report, conf)
        }
        Event::Checkpoints(rows, known, root) => store::list_json(rows, *known, root),
        Event::Pushed(pushed, address) => store::pushed_json(pushed, address),
        Event::Pulled(app, fetched, address) => store::pulled_json(*app, fetched, address),
        Event::InBucket(rows, address) => store::in_bucket_json(rows, address),
        Event::Drained(report, conf) => moves::drained_json(machine, report, conf),
        Event::HostResumed(host) => json!({ "resumed": host }),
        Event::HostAdded(host) => json!({ "added": host }),
        Event::HostDeleted(host) => json!({ "deleted": host }),
        Event::Halted => json!({ "halted": true }),
        Event::ImageMade(made) => image::made_json(made),
        Event::Image(report) => image::json(report),
        Event::ImageVerified(file, verdict) => image::verdict_json(file, verdict),
        Event::Echo(words) => json!({ "echo": words }),
        Event::Aliases(all) => {
            let row = |(name, words): &(&str, &[String])| json!({ "name": name, "words": words });
            json!({ "aliases": all.iter().map(row).collect::<Vec<_>>() })
        }
        Event::Version(daemon) => version::json(*daemon),
        Event::Help(text) => json!({ "help": text }),
        Event::RunStarted(master) => json!({ "event": "started", "tid": master.show(machine) }),
        Event::RunOutput { output, .. } => run::output_json(machine, output),
        Event::RunEnded(master, status) => run::ended_json(machine, *master, *status),
    }
}

pub(super) fn failure(kind: &str, text: &str) -> Value {
    json!({ "error": { "kind": kind, "text": text } })
}

pub(super) fn notice(kind: &str, text: &str) -> Value {
    json!({ "notice": { "kind": kind, "text": text } })
}
