//! `drain`, and its `--undo`.

use super::console::{Console, code_of};
use crate::{
    ask,
    command::DrainArgs,
    event::Event,
    failure::ClientError,
    hosts,
    progress::{self, LOOK},
};
use vm_wire::peer::DrainWay;

impl Console {
    /// Drains a host, and shows how many tasks are left until the drain ends.
    pub(super) fn drain(&mut self, args: &DrainArgs) -> anyhow::Result<u8> {
        let host = args.host.as_str();
        let way = DrainWay {
            checkpoint: args.checkpoint,
            suspend: args.suspend,
        };
        let bar = progress::of_host(self.renderer.audience(), host);
        let request = ask::drain(host.to_owned(), way);
        let report = self.client()?.ask_while(request, LOOK, |client| {
            let conf = client.ask(ask::conf())?;
            if let Some(row) = hosts::called(&conf, host) {
                bar.set_message(progress::left_there(row.tasks));
            }
            Ok(())
        });
        bar.finish_and_clear();
        if let Err(ClientError::Interrupted) = report {
            let text =
                format!("the drain of {host} continues: 'vm conf' shows how many tasks are left");
            self.renderer.notice(&text)?;
        }
        let report = report?;
        let conf = self.conf()?;
        self.renderer.show(&Event::Drained(&report, &conf))?;
        Ok(code_of(report.refused_count == 0))
    }

    pub(super) fn undrain(&mut self, host: &str) -> anyhow::Result<u8> {
        self.ask(ask::undrain(host.to_owned()))?;
        self.done(&Event::HostResumed(host))
    }
}
