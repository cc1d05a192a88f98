//! The work of each command: requests to the daemon, and events for the renderer.
//!
//! [`Console::execute`] hands each command to the function that carries it out, in the file of its
//! kind. These functions share [`Console`], which holds the connection and the renderer.

mod checkpoints;
mod console;
mod drain;
mod hosts;
mod image;
mod moves;
mod restart;
mod run;
mod store;
mod suspend;
mod tasks;
mod version;

use crate::{
    command::Command,
    event::Event,
    exit,
    failure::{ClientError, UsageError},
};
pub use console::{Console, report};

impl Console {
    /// Carries out a command; returns the exit code.
    ///
    /// # Errors
    /// The reason why the command failed. If only some of several tasks or hosts failed, their
    /// errors are shown, and the exit code reports the failure.
    pub fn execute(&mut self, command: &Command) -> anyhow::Result<u8> {
        let result = self.dispatch(command);
        if let Err(error) = &result
            && let Some(error) = error.downcast_ref::<ClientError>()
            && !matches!(error, ClientError::Refused(_) | ClientError::Late(_))
        {
            // The next command connects again.
            self.disconnect();
        }
        result
    }

    fn dispatch(&mut self, command: &Command) -> anyhow::Result<u8> {
        match command {
            Command::Run(args) => self.run(args),
            Command::Spawn(args) => self.spawn(args),
            Command::Ps { app } => self.ps(app.as_ref()),
            Command::Kill { tids } => self.signal(libc::SIGKILL, tids),
            Command::Sig { signal, tids } => self.signal(*signal, tids),
            Command::Check { tid } => self.check(tid),
            Command::Move(args) => self.move_task(args),
            Command::Checkpoint(args) => self.checkpoint(args),
            Command::Stop { tid, .. } => self.stop(tid),
            Command::Suspend { time, app } => self.suspend(app, *time),
            Command::Resume { app, host } => self.resume(app, host.as_deref()),
            Command::Restart(args) => self.restart(args),
            Command::Checkpoints(args) => self.checkpoints(args),
            Command::Store { action } => self.store(action),
            Command::Drain(args) if args.undo => self.undrain(&args.host),
            Command::Drain(args) => self.drain(args),
            Command::Conf { all } => self.show_conf(*all),
            Command::Add(args) => self.add(args),
            Command::Delete { hosts } => self.delete(hosts),
            Command::Halt { yes } => self.halt(*yes),
            Command::Image { action } => self.image(action),
            Command::Echo { words } => self.done(&Event::Echo(words)),
            Command::Source { .. } | Command::Alias { .. } | Command::Unalias { .. } => {
                let text =
                    "an alias holds until its prompt or file ends: set it there, or in ~/.vmrc";
                Err(UsageError(text.to_owned()).into())
            }
            Command::Version => self.version(),
            Command::Help { command } => self.help(command.iter().map(String::as_str)),
            Command::Quit => Ok(exit::DONE),
        }
    }
}
