//! Shows events.
//!
//! A [`Renderer`] shows [`Event`]s as tables and sentences for people, or as one JSON value a line
//! for programs. The JSON is a contract: keys are only ever added.

mod checkpoints;
mod hosts;
mod image;
mod json;
mod moves;
mod people;
mod run;
mod store;
mod table;
mod tasks;
mod version;
mod words;

use crate::event::Event;
use std::io::{self, Write};
use vm_wire::{MachineId, checkpoint::RestartReport, console::Conf};
use words::plain;

/// The readers of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Tables and sentences.
    People,
    /// JSON, one value a line.
    Programs,
}

/// Shows events.
pub struct Renderer {
    audience: Audience,
    /// Tids of this machine are shown without its number.
    machine: MachineId,
    /// Whether the terminal is raw: then a line feed does not return to the start of the line.
    raw_terminal: bool,
    /// Whether results go to a terminal, whose lines are short.
    to_terminal: bool,
    out: Box<dyn Write>,
    errors: Box<dyn Write>,
}

impl Renderer {
    /// Shows results on `out`; notices and errors on `errors`.
    pub fn new(audience: Audience, out: Box<dyn Write>, errors: Box<dyn Write>) -> Self {
        Renderer {
            audience,
            machine: MachineId::from_bits(0),
            raw_terminal: false,
            to_terminal: false,
            out,
            errors,
        }
    }

    /// States whether results go to a terminal.
    pub fn set_to_terminal(&mut self, to_terminal: bool) {
        self.to_terminal = to_terminal;
    }

    /// The readers.
    pub fn audience(&self) -> Audience {
        self.audience
    }

    /// Changes the readers. Returns the former ones.
    pub fn set_audience(&mut self, audience: Audience) -> Audience {
        std::mem::replace(&mut self.audience, audience)
    }

    /// Shows the tids of that machine without its number from now on.
    pub fn set_machine(&mut self, machine: MachineId) {
        self.machine = machine;
    }

    /// States whether the terminal is raw from now on.
    pub fn set_raw_terminal(&mut self, raw: bool) {
        self.raw_terminal = raw;
    }

    /// Shows an event and flushes it.
    ///
    /// # Errors
    /// The error of writing. A broken pipe means that the reader has gone, and is no failure.
    pub fn show(&mut self, event: &Event) -> io::Result<()> {
        match (self.audience, event) {
            (Audience::Programs, _) => {
                let value = json::event(self.machine, event);
                writeln!(self.out, "{value}")?;
            }
            (Audience::People, Event::RunOutput { master, output }) => {
                let bytes = run::output_bytes(self.machine, *master, output, self.raw_terminal);
                let stream = match output.stream {
                    2 => &mut self.errors,
                    _ => &mut self.out,
                };
                stream.write_all(&bytes)?;
                stream.flush()?;
            }
            (Audience::People, Event::RunEnded(tid, status)) => {
                if let Some(line) = run::ended_text(self.machine, *tid, *status) {
                    self.notice(&line)?;
                }
            }
            (Audience::People, Event::Moved(tid, report, conf)) if self.to_terminal => {
                let text = moves::moved_text(self.machine, *tid, report, conf, "\n  ");
                self.out.write_all(plain(&text).as_bytes())?;
            }
            (Audience::People, _) => {
                let text = people::event(self.machine, event);
                self.out.write_all(plain(&text).as_bytes())?;
            }
        }
        self.out.flush()
    }

    /// Shows people a notice; programs see none.
    ///
    /// # Errors
    /// The error of writing.
    pub fn notice(&mut self, text: &str) -> io::Result<()> {
        if self.audience == Audience::People {
            let end = if self.raw_terminal { "\r\n" } else { "\n" };
            write!(self.errors, "vm: {}{end}", plain(text))?;
            self.errors.flush()?;
        }
        Ok(())
    }

    /// Shows that the console did something without a request. `kind` is for programs.
    ///
    /// # Errors
    /// The error of writing.
    pub fn announce(&mut self, kind: &str, text: &str) -> io::Result<()> {
        match self.audience {
            Audience::People => self.notice(text),
            Audience::Programs => {
                writeln!(self.errors, "{}", json::notice(kind, text))?;
                self.errors.flush()
            }
        }
    }

    /// Shows that an application was restarted whose output this console shows from now on.
    ///
    /// # Errors
    /// The error of writing.
    pub fn restarted(&mut self, report: &RestartReport, conf: &Conf) -> io::Result<()> {
        match self.audience {
            Audience::People => {
                let text = checkpoints::restarted_text(self.machine, report, conf);
                self.notice(text.trim_end())
            }
            Audience::Programs => self.show(&Event::Restarted(report, conf)),
        }
    }

    /// Shows that a command failed. `kind` is for programs.
    ///
    /// # Errors
    /// The error of writing.
    pub fn failure(&mut self, kind: &str, text: &str) -> io::Result<()> {
        match self.audience {
            Audience::People => writeln!(self.errors, "vm: {}", plain(text))?,
            Audience::Programs => writeln!(self.errors, "{}", json::failure(kind, text))?,
        }
        self.errors.flush()
    }
}

#[cfg(test)]
pub mod tests;
