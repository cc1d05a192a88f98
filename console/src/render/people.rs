//! Events as tables and sentences, each by the module of its subject.

use super::{checkpoints, hosts, image, moves, store, tasks, version};
use crate::{event::Event, signal_name};
use vm_wire::MachineId;

pub(super) fn event(machine: MachineId, event: &Event) -> String {
    match event {
        Event::Conf(conf) => hosts::conf_text(conf),
        Event::Tasks(rows, suspended) => tasks::list_text(machine, rows, suspended),
        Event::Started(tids) => tasks::started_text(machine, tids),
        Event::Signalled(tid, signal) => {
            format!(
                "{}: sent {}\n",
                tid.show(machine),
                signal_name::show(*signal)
            )
        }
        Event::Check(tid, reasons) => tasks::check_text(machine, *tid, reasons),
        Event::Moved(tid, report, conf) => moves::moved_text(machine, *tid, report, conf, " "),
        Event::Checkpointed(report) => checkpoints::made_text(report),
        Event::Policy(tid, policy) => checkpoints::policy_text(machine, *tid, *policy),
        Event::Stopped(report) => checkpoints::stopped_text(report),
        Event::Suspended(app, report) => checkpoints::suspended_text(machine, *app, report),
        Event::TaskSuspended(tid, report, conf) => {
            moves::suspended_text(machine, *tid, report, conf)
        }
        Event::TaskResumed(tid, report, conf) => moves::resumed_text(machine, *tid, report, conf),
        Event::Restarted(report, conf) => checkpoints::restarted_text(machine, report, conf),
        Event::Resumed(report, conf) => checkpoints::resumed_text(machine, report, conf),
        Event::Checkpoints(rows, known, root) => store::list_text(rows, *known, root),
        Event::Pushed(pushed, address) => store::pushed_text(pushed, address),
        Event::Pulled(app, fetched, address) => store::pulled_text(*app, fetched, address),
        Event::InBucket(rows, _) => store::in_bucket_text(rows),
        Event::Drained(report, conf) => moves::drained_text(machine, report, conf),
        Event::HostResumed(host) => format!("{host}: takes tasks again\n"),
        Event::HostAdded(host) => format!("{host}: added\n"),
        Event::HostDeleted(host) => format!("{host}: deleted\n"),
        Event::Halted => "the machine has ended\n".to_owned(),
        Event::ImageMade(made) => image::made(made),
        Event::Image(report) => image::people(report),
        Event::ImageVerified(file, verdict) => image::verdict(file, verdict),
        Event::Echo(words) => words.join(" ") + "\n",
        Event::Aliases(all) => {
            let line = |(name, words): &(&str, &[String])| {
                format!("alias {name} {}\n", shell_words::join(*words))
            };
            all.iter().map(line).collect()
        }
        Event::Version(daemon) => version::text(*daemon),
        Event::Help(text) => (*text).to_owned(),
        // `Renderer::show` treats these three itself.
        Event::RunStarted(_) | Event::RunOutput { .. } | Event::RunEnded(..) => String::new(),
    }
}
