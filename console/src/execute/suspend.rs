//! `suspend`, `resume`.

use super::console::Console;
use crate::{
    ask::{self, Resumed, Suspended},
    command::TidArg,
    event::Event,
};
use std::time::Duration;

impl Console {
    /// Suspends an application, or a task alone; without `time`, until it is resumed.
    pub(super) fn suspend(&mut self, app: &TidArg, time: Option<Duration>) -> anyhow::Result<u8> {
        let tid = self.resolve(app)?;
        let for_ms = time.map_or(0, |time| time.as_millis() as u64);
        match self.ask(ask::suspend(tid, for_ms))? {
            Suspended::Application(report) => self.done(&Event::Suspended(tid, &report)),
            Suspended::Task(report) => {
                let conf = self.conf()?;
                self.done(&Event::TaskSuspended(tid, &report, &conf))
            }
        }
    }

    pub(super) fn resume(&mut self, app: &TidArg, host: Option<&str>) -> anyhow::Result<u8> {
        let tid = self.resolve(app)?;
        let conf = self.conf()?;
        match self.ask(ask::resume(tid, host.map(str::to_owned)))? {
            Resumed::Application(report) => self.done(&Event::Resumed(&report, &conf)),
            Resumed::Task(report) => self.done(&Event::TaskResumed(tid, &report, &conf)),
        }
    }
}
