//! Reports of tasks and helper processes about images.

use super::Moves;
use crate::{
    context::Context,
    fault::{self, Strike},
    image::{
        carriers::{News, Role},
        news::tell,
    },
    process::{processes::Processes, spare, usage},
};
use std::time::Duration;
use vm_machine::{Input, MoveInput, Written};
use vm_wire::{
    Tid,
    interrupt::Report,
    task::{FailKind, Failed},
};

impl Moves {
    /// Handles a report of a task.
    pub fn reported(
        &mut self,
        tid: Tid,
        reported: Report<String>,
        processes: &mut Processes,
        context: &mut Context,
    ) {
        let refused =
            |kind, text| Input::Move(MoveInput::Frozen(tid, Err(Failed::new(kind, text))));
        let point = match reported {
            Report::Copied { .. } => "report.copied",
            Report::Saved { .. } => "report.saved",
            Report::Refused(_) | Report::Busy(_) => "report.refused",
            Report::Back { .. } => "report.back",
            Report::Writes => "report.writes",
            Report::Portable => "report.portable",
            Report::Held => "report.held",
            Report::InCalls => "report.in_calls",
        };
        if fault::at(point) == Strike::Task {
            processes.signal(tid, libc::SIGKILL);
        }
        let input = match reported {
            Report::Copied { bytes, rounds } => Input::Move(MoveInput::Copied(tid, bytes, rounds)),
            Report::Saved {
                bytes,
                micros,
                unacknowledged,
            } => {
                // The output that the task wrote before its freeze is delivered by this host.
                processes.read_all(tid, context);
                let time = Duration::from_micros(micros.into());
                let written = Written {
                    bytes,
                    time,
                    unacknowledged,
                };
                Input::Move(MoveInput::Frozen(tid, Ok(written)))
            }
            Report::Refused(text) => refused(FailKind::Refused, text),
            Report::Busy(text) => refused(FailKind::Busy, text),
            Report::Writes => return self.store_copy(tid, None, context),
            Report::Portable => Input::Move(MoveInput::Portable(tid)),
            Report::Held => Input::Move(MoveInput::Held(tid)),
            Report::InCalls => Input::Move(MoveInput::InCalls(tid)),
            Report::Back { elsewhere } => {
                if elsewhere {
                    log::warn!(
                        "task {tid} runs on other processors than its program has chosen: some of them \
                         are not there, or not this daemon's"
                    );
                }
                self.starting.remove(&tid);
                self.carriers.arrived(tid);
                if let Some(process) = processes.pid(tid) {
                    spare::becomes_task(process);
                }
                processes.came_back(tid);
                Input::Move(MoveInput::Arrived(tid, Ok(())))
            }
        };
        context.inbox.push_back(input);
    }

    /// Handles the ends of children, which may be transfer processes.
    pub fn reaped(&mut self, processes: &Processes, context: &mut Context) {
        self.copies.forget(|tid| processes.pid(tid).is_none());
        for (pid, status) in std::mem::take(&mut context.strangers) {
            for news in self.carriers.ended(pid, status) {
                self.hear(news, processes, context);
            }
        }
    }

    /// Handles a report about a transfer process.
    pub(super) fn hear(&mut self, news: News, processes: &Processes, context: &mut Context) {
        match &news {
            News::Stored(tid, _, part) => {
                self.memories.stored(*tid, context.now);
                let process = processes.pid(*tid);
                let page = rustix::param::page_size() as u64;
                let pages = (part.bytes / page, page);
                let faults = process.and_then(usage::faults);
                if self.copies.ended(*tid, faults, pages)
                    && let Some(bytes) = process.and_then(usage::resident)
                {
                    self.memories.prepare(*tid, bytes, context.now);
                }
            }
            News::Failed(failure) => {
                self.memories.drop_busy(failure.tid);
                if matches!(failure.role, Role::Writer(..)) {
                    self.copies.lost(failure.tid);
                }
            }
            _ => {}
        }
        tell(news, processes, context);
    }
}
