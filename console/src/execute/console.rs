//! The state that all commands share: the connection, the renderer, and requests that several commands
//! need.

use crate::{
    ask::{self, Ask},
    client::Client,
    command::{self, TidArg},
    event::Event,
    exit,
    failure::{self, ClientError},
    hosts,
    interrupt::Interrupt,
    launch,
    render::Renderer,
};
use anyhow::Context as _;
use std::{
    env, io,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};
use vm_wire::{
    MachineId, Tid,
    console::{Conf, SuspendedRow, TaskRow},
};

/// How long the console waits for a daemon that was told to end.
const END_TIME: Duration = Duration::from_secs(10);
/// How long a reply for the completion at the prompt may take.
const COMPLETION_TIME: Duration = Duration::from_millis(1500);

/// Everything that a command works with.
pub struct Console {
    dir: PathBuf,
    interrupt: Rc<Interrupt>,
    /// Shows the results of commands.
    pub renderer: Renderer,
    /// Whether commands come from standard input, which then is not a program's to read.
    commands_on_stdin: bool,
    /// The connection, once a command needed it.
    client: Option<Client>,
}

impl Console {
    /// A console for the daemon in `dir`; nothing is connected yet.
    pub fn new(
        dir: PathBuf,
        interrupt: Rc<Interrupt>,
        renderer: Renderer,
        commands_on_stdin: bool,
    ) -> Self {
        Console {
            dir,
            interrupt,
            renderer,
            commands_on_stdin,
            client: None,
        }
    }

    /// The daemon's folder.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reports to waits that the user interrupts them.
    pub(super) fn interrupt(&self) -> Rc<Interrupt> {
        self.interrupt.clone()
    }

    /// Whether commands come from standard input.
    pub(super) fn commands_on_stdin(&self) -> bool {
        self.commands_on_stdin
    }

    /// The connection; made if there is none.
    pub(super) fn client(&mut self) -> Result<&mut Client, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let client = Client::connect(&self.dir, self.interrupt.clone())?;
                self.renderer.set_machine(client.daemon().machine);
                client
            }
        };
        Ok(self.client.insert(client))
    }

    /// As [`Console::client`]; if no daemon runs, starts one first, and says so.
    ///
    /// # Errors
    /// If no daemon can be started.
    pub fn client_or_start(&mut self) -> anyhow::Result<&mut Client> {
        match self.client() {
            Ok(_) => {}
            Err(ClientError::NoDaemon { .. }) => {
                launch::start_local(&self.dir)?;
                let machine = self.machine()?;
                let dir = self.dir.display();
                let text = format!("no daemon ran in {dir}: started one, a new machine {machine}");
                self.renderer.announce("DaemonStarted", &text)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(self.client()?)
    }

    /// Drops the connection: the next command makes a new one.
    pub(super) fn disconnect(&mut self) {
        self.client = None;
    }

    /// Waits until the daemon, which replied that it would end, has done so.
    pub(super) fn await_end(&mut self) -> Result<(), ClientError> {
        match self.client.take() {
            Some(client) => client.await_end(END_TIME),
            None => Ok(()),
        }
    }

    /// Has `work` use connection, folder and renderer together.
    pub(super) fn with_client<R>(
        &mut self,
        work: impl FnOnce(&mut Client, &Path, &mut Renderer) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        self.client()?;
        // The line before has connected.
        let client = self.client.as_mut().ok_or(ClientError::Lost(None))?;
        work(client, &self.dir, &mut self.renderer)
    }

    /// Sends a request and waits for its reply.
    pub(super) fn ask<R>(&mut self, ask: Ask<R>) -> Result<R, ClientError> {
        self.client()?.ask(ask)
    }

    pub(super) fn machine(&mut self) -> Result<MachineId, ClientError> {
        Ok(self.client()?.daemon().machine)
    }

    pub(super) fn resolve(&mut self, tid: &TidArg) -> anyhow::Result<Tid> {
        Ok(tid.resolve(self.machine()?)?)
    }

    pub(super) fn conf(&mut self) -> Result<Conf, ClientError> {
        self.ask(ask::conf())
    }

    pub(super) fn task_rows(&mut self, app: Option<Tid>) -> Result<Vec<TaskRow>, ClientError> {
        self.ask(ask::tasks(app))
    }

    pub(super) fn suspended_rows(&mut self) -> Result<Vec<SuspendedRow>, ClientError> {
        self.ask(ask::suspended())
    }

    /// Shows an event; returns the exit code of success.
    pub(super) fn done(&mut self, event: &Event) -> anyhow::Result<u8> {
        self.renderer.show(event)?;
        Ok(exit::DONE)
    }

    /// Shows an error of one of several tasks or hosts; returns its exit code.
    pub(super) fn failed(&mut self, error: &ClientError) -> io::Result<u8> {
        self.renderer.failure(&error.kind(), &error.to_string())?;
        Ok(exit::of_client_error(error))
    }

    /// Shows the manual page of a command, given word by word.
    pub(super) fn help<'a>(
        &mut self,
        command: impl IntoIterator<Item = &'a str>,
    ) -> anyhow::Result<u8> {
        let command: Vec<&str> = command.into_iter().collect();
        let text = command::help(&command)?;
        self.done(&Event::Help(&text))
    }

    /// The names of the hosts, for completion: quick, and empty rather than an error.
    pub fn host_names(&mut self) -> Vec<String> {
        let conf = self
            .client()
            .and_then(|it| it.ask_within(ask::conf(), COMPLETION_TIME));
        let Ok(conf) = conf else {
            return Vec::new();
        };
        conf.hosts
            .into_iter()
            .filter(hosts::is_present)
            .map(|row| row.facts.name)
            .collect()
    }

    /// The tids of all tasks, for completion: quick, and empty rather than an error.
    pub fn task_names(&mut self) -> Vec<String> {
        let rows = self
            .client()
            .and_then(|it| it.ask_within(ask::tasks(None), COMPLETION_TIME));
        let (Ok(rows), Ok(machine)) = (rows, self.machine()) else {
            return Vec::new();
        };
        rows.iter().map(|row| row.tid.show(machine)).collect()
    }
}

/// Shows the error of a command.
///
/// # Errors
/// The error of writing.
pub fn report(renderer: &mut Renderer, error: &anyhow::Error) -> io::Result<()> {
    renderer.failure(&failure::kind(error), &format!("{error:#}"))
}

/// The working directory of this console.
pub(super) fn current_dir() -> anyhow::Result<PathBuf> {
    env::current_dir().context("cannot find the working directory")
}

/// The exit code of a command that shows damage, or finds none.
pub(super) fn code_of(is_good: bool) -> u8 {
    match is_good {
        true => exit::DONE,
        false => exit::FAILED,
    }
}
