//! What the console has to say, apart from how it is shown.
//!
//! Commands produce [`Event`]s. A [`Renderer`] shows them as tables and sentences for people, or
//! as one JSON value a line for programs. The JSON is a contract: keys are only ever added.

mod image;
mod json;
mod people;

use crate::bucket::{BucketRow, Known};
use crate::checkpoints::Row;
use crate::{
    client::DaemonFacts,
    image::{Made, Report, Whole},
};
use std::{
    borrow::Cow,
    io::{self, Write},
    path::Path,
};
use vm_bucket::{Address, Fetched, Pushed};
use vm_image::image::ImageError;
use vm_wire::{
    HostId, MachineId, Tid,
    agreed::ExitStatus,
    checkpoint::{CheckpointReport, Policy, RestartReport},
    console::{Conf, Output, SuspendedRow, TaskRow},
    peer::{DrainReport, MoveReport},
};

/// A host's name, or its number if it is not known any more.
fn host_name(conf: &Conf, host: HostId) -> String {
    let row = conf.hosts.iter().find(|row| row.host == host);
    row.map_or_else(|| host.to_string(), |row| row.facts.name.clone())
}

/// Something that a user wanted to know.
#[derive(Debug)]
pub enum Event<'a> {
    /// The machine.
    Conf(&'a Conf),
    /// Its tasks, and applications that are suspended.
    Tasks(&'a [TaskRow], &'a [SuspendedRow]),
    /// Tasks that were started in the background.
    Started(&'a [Tid]),
    /// A signal was sent.
    Signalled(Tid, i32),
    /// Whether a task can be moved: each reason why not.
    Check(Tid, &'a [String]),
    /// A task was moved, and how that went; the machine, for the names.
    Moved(Tid, &'a MoveReport, &'a Conf),
    /// A checkpoint was made.
    Checkpointed(&'a CheckpointReport),
    /// When checkpoints of a task's application are made by themselves, from now on.
    Policy(Tid, Policy),
    /// An application was stopped with a checkpoint.
    Stopped(&'a CheckpointReport),
    /// One was suspended.
    Suspended(Tid, &'a CheckpointReport),
    /// A single task was; the machine, for the names.
    TaskSuspended(Tid, &'a MoveReport, &'a Conf),
    /// It was resumed.
    TaskResumed(Tid, &'a MoveReport, &'a Conf),
    /// An application was brought back; the machine, for the names.
    Restarted(&'a RestartReport, &'a Conf),
    /// A suspended application was brought back; the machine, for the names.
    Resumed(&'a RestartReport, &'a Conf),
    /// What is in the store.
    Checkpoints(&'a [Row], Option<&'a Known>, &'a Path),
    /// What was copied to a bucket.
    Pushed(&'a Pushed, &'a Address),
    /// What was fetched from a bucket.
    Pulled(Tid, &'a Fetched, &'a Address),
    /// The checkpoints that are in a bucket.
    InBucket(&'a [BucketRow], &'a Address),
    /// The tasks of a host have left it, or not; the machine, for the names.
    Drained(&'a DrainReport, &'a Conf),
    /// A host takes tasks again.
    HostResumed(&'a str),
    /// A host is in the machine now.
    HostAdded(&'a str),
    /// A host is in the machine no more.
    HostDeleted(&'a str),
    /// The machine has ended.
    Halted,
    /// A process has saved itself.
    ImageMade(&'a Made),
    /// What is in the image of a process.
    Image(&'a Report),
    /// Whether an image is whole: what it takes to bring it back, or where it is damaged.
    ImageVerified(&'a Path, &'a Result<Whole, ImageError>),
    /// Our release, and the daemon's if there is one.
    Version(Option<&'a DaemonFacts>),
    /// A manual page.
    Help(&'a str),
    /// A program runs at this console.
    RunStarted(Tid),
    /// It, or a task that it spawned, wrote something; `master` is the first.
    RunOutput {
        /// Who runs at this console.
        master: Tid,
        /// What was written, and by whom.
        output: &'a Output,
    },
    /// It has ended.
    RunEnded(Tid, Option<ExitStatus>),
}

/// For whom.
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
    /// Whether the terminal is raw, so that a new line does not also go back to its beginning.
    raw_terminal: bool,
    /// Whether results go to a terminal, whose lines are short.
    to_terminal: bool,
    out: Box<dyn Write>,
    errors: Box<dyn Write>,
}

impl Renderer {
    /// Shows results on `out`, and what must not be mixed with them on `errors`.
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

    /// Whether results go to a terminal.
    pub fn set_to_terminal(&mut self, to_terminal: bool) {
        self.to_terminal = to_terminal;
    }

    /// For whom this shows.
    pub fn audience(&self) -> Audience {
        self.audience
    }

    /// Changes for whom, and returns for whom it was.
    pub fn set_audience(&mut self, audience: Audience) -> Audience {
        std::mem::replace(&mut self.audience, audience)
    }

    /// Which machine's tids are shown short.
    pub fn set_machine(&mut self, machine: MachineId) {
        self.machine = machine;
    }

    /// Whether the terminal is raw from now on.
    pub fn set_raw_terminal(&mut self, raw: bool) {
        self.raw_terminal = raw;
    }

    /// Shows an event, to the last byte.
    ///
    /// # Errors
    /// What writing said; a broken pipe is for the caller to take as the reader's wish to stop.
    pub fn show(&mut self, event: &Event) -> io::Result<()> {
        match (self.audience, event) {
            (Audience::Programs, _) => {
                let value = json::event(self.machine, event);
                writeln!(self.out, "{value}")?;
            }
            (Audience::People, Event::RunOutput { master, output }) => {
                let bytes = people::run_output(self.machine, *master, output, self.raw_terminal);
                let stream = match output.stream {
                    2 => &mut self.errors,
                    _ => &mut self.out,
                };
                stream.write_all(&bytes)?;
                stream.flush()?;
            }
            (Audience::People, Event::RunEnded(tid, status)) => {
                if let Some(line) = people::run_ended(self.machine, *tid, *status) {
                    self.notice(&line)?;
                }
            }
            (Audience::People, Event::Moved(tid, report, conf)) if self.to_terminal => {
                let text = people::moved(self.machine, *tid, report, conf, "\n  ");
                self.out.write_all(plain(&text).as_bytes())?;
            }
            (Audience::People, _) => {
                let text = people::event(self.machine, event);
                self.out.write_all(plain(&text).as_bytes())?;
            }
        }
        self.out.flush()
    }

    /// Tells people something by the way; programs are not told.
    ///
    /// # Errors
    /// What writing said.
    pub fn notice(&mut self, text: &str) -> io::Result<()> {
        if self.audience == Audience::People {
            let end = if self.raw_terminal { "\r\n" } else { "\n" };
            write!(self.errors, "vm: {}{end}", plain(text))?;
            self.errors.flush()?;
        }
        Ok(())
    }

    /// Tells everybody of something that was done unasked. `kind` is for programs.
    ///
    /// # Errors
    /// What writing said.
    pub fn announce(&mut self, kind: &str, text: &str) -> io::Result<()> {
        match self.audience {
            Audience::People => self.notice(text),
            Audience::Programs => {
                writeln!(self.errors, "{}", json::notice(kind, text))?;
                self.errors.flush()
            }
        }
    }

    /// Shows that an application was brought back which writes to this console from now on.
    ///
    /// # Errors
    /// What writing said.
    pub fn restarted(&mut self, report: &RestartReport, conf: &Conf) -> io::Result<()> {
        match self.audience {
            Audience::People => {
                let text = people::restarted(self.machine, report, conf);
                self.notice(text.trim_end())
            }
            Audience::Programs => self.show(&Event::Restarted(report, conf)),
        }
    }

    /// Shows that a command failed. `kind` is for programs.
    ///
    /// # Errors
    /// What writing said.
    pub fn failure(&mut self, kind: &str, text: &str) -> io::Result<()> {
        match self.audience {
            Audience::People => writeln!(self.errors, "vm: {}", plain(text))?,
            Audience::Programs => writeln!(self.errors, "{}", json::failure(kind, text))?,
        }
        self.errors.flush()
    }
}

/// A text in which nothing commands a terminal: control characters, from the name of a program for
/// example, are shown as `\u{1b}`. Lines stay lines.
fn plain(text: &str) -> Cow<'_, str> {
    let commands = |letter: char| letter.is_control() && letter != '\n';
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    let letter = |letter: char| match commands(letter) {
        true => letter.escape_unicode().to_string(),
        false => letter.to_string(),
    };
    Cow::Owned(text.chars().map(letter).collect())
}

/// A name on one line, likewise.
fn plain_name(name: &str) -> String {
    plain(name).replace('\n', "\\u{a}")
}

/// That from which an application was brought back, likewise.
fn restarted_from(report: &RestartReport) -> String {
    let (generation, epoch) = report.from;
    vm_store::CheckpointId::new(generation, epoch).to_string()
}

/// That with which an application was suspended.
fn suspended_with(row: &SuspendedRow) -> String {
    vm_store::CheckpointId::new(row.from.0, row.from.1).to_string()
}

/// A checkpoint, as it is called in the store.
fn checkpoint_name(report: &CheckpointReport) -> String {
    vm_store::CheckpointId::new(report.generation, report.epoch).to_string()
}

/// A moment, from milliseconds since 1970.
fn time(ms: u64) -> String {
    let time = i64::try_from(ms / 1000).ok();
    let time = time.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
pub mod tests;
