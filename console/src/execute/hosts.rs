//! `conf`, `add`, `delete`, `halt`.

use super::console::{Console, code_of};
use crate::{ask, command::AddArgs, event::Event, exit, failure::ClientError, hosts, launch};
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

impl Console {
    pub(super) fn show_conf(&mut self, all: bool) -> anyhow::Result<u8> {
        let mut conf = self.conf()?;
        conf.hosts.retain(|row| all || hosts::is_present(row));
        self.done(&Event::Conf(&conf))
    }

    pub(super) fn add(&mut self, args: &AddArgs) -> anyhow::Result<u8> {
        self.client_or_start()?;
        let ok =
            self.with_client(|client, dir, renderer| launch::add(client, args, dir, renderer))?;
        Ok(code_of(ok))
    }

    /// Removes hosts from the machine, one after the other.
    pub(super) fn delete(&mut self, names: &[String]) -> anyhow::Result<u8> {
        let conf = self.conf()?;
        let mut code = exit::DONE;
        for host in names {
            let row = hosts::called(&conf, host);
            let is_here = row.is_some_and(|row| row.host == conf.here);
            let name = row.map_or(host, |row| &row.facts.name);
            match self.ask(ask::delete(host.clone())) {
                Ok(()) if is_here => self.await_end()?,
                Ok(()) => {}
                // The daemon of this host may end before its reply is sent.
                Err(error) if is_here && error.is_lost() => self.disconnect(),
                Err(error @ ClientError::Refused(_)) => {
                    code = self.failed(&error)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            self.renderer.show(&Event::HostDeleted(name))?;
        }
        Ok(code)
    }

    /// Ends the machine; asks first if standard input is a terminal.
    pub(super) fn halt(&mut self, yes: bool) -> anyhow::Result<u8> {
        self.client()?;
        if !yes && io::stdin().is_terminal() && !confirmed()? {
            return Ok(exit::FAILED);
        }
        match self.ask(ask::halt()) {
            Ok(()) => self.await_end()?,
            // The daemon may end before its reply is sent.
            Err(error) if error.is_lost() => self.disconnect(),
            Err(error) => return Err(error.into()),
        }
        self.done(&Event::Halted)
    }
}

fn confirmed() -> io::Result<bool> {
    eprint!("End the machine, with all its tasks and daemons? [y/N] ");
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(
        line.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}
