//! `spawn`, `ps`, `kill`, `sig`, `check`.

use super::console::{Console, code_of, current_dir};
use crate::{
    ask,
    command::{SpawnArgs, TidArg},
    event::Event,
    exit,
    failure::ClientError,
};

impl Console {
    pub(super) fn spawn(&mut self, args: &SpawnArgs) -> anyhow::Result<u8> {
        let cwd = current_dir()?;
        let spawn = args.program.spawn(args.count, args.place(), &cwd);
        let tids = self.client_or_start()?.ask(ask::spawn(spawn))?;
        self.done(&Event::Started(&tids))
    }

    pub(super) fn ps(&mut self, app: Option<&TidArg>) -> anyhow::Result<u8> {
        let app = app.map(|app| self.resolve(app)).transpose()?;
        let rows = self.task_rows(app)?;
        let mut suspended = self.suspended_rows()?;
        suspended.retain(|row| app.is_none_or(|app| row.app == app));
        self.done(&Event::Tasks(&rows, &suspended))
    }

    pub(super) fn signal(&mut self, signal: i32, tids: &[TidArg]) -> anyhow::Result<u8> {
        let mut code = exit::DONE;
        for tid in tids {
            let tid = self.resolve(tid)?;
            match self.ask(ask::signal(tid, signal)) {
                Ok(()) => self.renderer.show(&Event::Signalled(tid, signal))?,
                Err(error @ ClientError::Refused(_)) => code = self.failed(&error)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(code)
    }

    pub(super) fn check(&mut self, tid: &TidArg) -> anyhow::Result<u8> {
        let tid = self.resolve(tid)?;
        let reasons = self.ask(ask::check(tid))?;
        self.renderer.show(&Event::Check(tid, &reasons))?;
        Ok(code_of(reasons.is_empty()))
    }
}
