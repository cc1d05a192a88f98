//! `run`: a program at this terminal, or, with `--resume-or-start`, the application of an earlier run
//! from its last checkpoint.

use super::{
    console::{Console, current_dir, report},
    restart::Stored,
};
use crate::{
    bucket,
    checkpoints::{self, Folder},
    command::RunArgs,
    exit, failure,
    render::Audience,
    run::{self, Program},
    terminal,
};
use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal as _},
    path::Path,
};
use vm_wire::{Tid, task};

impl Console {
    /// Runs a program. A failure is shown here, because a run has exit codes of its own for failures.
    pub(super) fn run(&mut self, args: &RunArgs) -> anyhow::Result<u8> {
        let name = args.program_name();
        let cwd = current_dir()?;
        let mut is_restart = false;
        let outcome = self.run_or_restart(args, &cwd, &name, &mut is_restart);
        match outcome {
            Ok(exit::DONE) if args.resume_or_start => {
                let folder = Folder::of(&self.conf()?);
                for app in checkpoints::of_program(&folder, &name)? {
                    self.remove_checkpoints(&folder, app)?;
                }
                Ok(exit::DONE)
            }
            Ok(code) => Ok(code),
            Err(error) => {
                if !failure::is_broken_pipe(&error) {
                    report(&mut self.renderer, &error)?;
                }
                Ok(exit::of_failed_run(&error, is_restart))
            }
        }
    }

    /// Restarts the application that `--resume-or-start` finds, and sets `is_restart`; otherwise starts
    /// the program.
    fn run_or_restart(
        &mut self,
        args: &RunArgs,
        cwd: &Path,
        name: &str,
        is_restart: &mut bool,
    ) -> anyhow::Result<u8> {
        let mut spawn = args.program.spawn(1, task::Place::Any, cwd);
        spawn.env = environment(env::vars_os(), &args.program.env);
        let is_for_people = self.renderer.audience() == Audience::People;
        let terminal =
            is_for_people && !args.no_terminal && terminal::is_ours() && io::stdin().is_terminal();
        let is_read = terminal || !self.commands_on_stdin();
        self.client_or_start()?;
        if args.resume_or_start
            && let Some(app) = self.last_of_program(name)?
        {
            *is_restart = true;
            return self.restart_stored(&Stored {
                app,
                from: None,
                attach: true,
                keep_files: args.keep_files,
                policy: args.policy(),
            });
        }
        let (dir, interrupt) = (self.dir().to_owned(), self.interrupt());
        // A run has a connection of its own, so that the daemon sees its end even if this console
        // runs on.
        let program = Program {
            spawn,
            policy: args.policy(),
            with_terminal: terminal,
            input: is_read.then(rustix::stdio::stdin),
        };
        run::run(&dir, &interrupt, program, &mut self.renderer)
    }

    /// The application with the last checkpoint of a program of that name: in the store, else in its
    /// bucket.
    fn last_of_program(&mut self, name: &str) -> anyhow::Result<Option<Tid>> {
        let folder = Folder::of(&self.conf()?);
        let here = checkpoints::of_program(&folder, name)?.pop();
        if here.is_some() || !bucket::has(&folder) {
            return Ok(here);
        }
        match bucket::mirror(&folder.root, None)? {
            Some(mirror) => Ok(mirror.of_program(name)?),
            None => Ok(None),
        }
    }
}

/// The environment of a program that runs here: this console's, then the variables that the user set.
/// Left out are those that make this console a task itself, and those that are not text.
fn environment(
    ours: impl Iterator<Item = (OsString, OsString)>,
    set: &[(String, String)],
) -> Vec<(String, String)> {
    ours.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name != task::ENV_SOCKET && name != task::ENV_TOKEN)
        .chain(set.iter().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_the_environment_without_the_variables_of_a_task() {
        let ours = [("A", "1"), ("VM_TOKEN", "7"), ("VM_SOCKET", "/s")]
            .map(|(name, value)| (name.into(), value.into()));
        let set = [("B".to_owned(), "2".to_owned())];
        let pairs = environment(ours.into_iter(), &set);
        let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["A", "B"]);
    }
}
