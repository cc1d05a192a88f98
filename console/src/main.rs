//! `vm`, the console of the virtual parallel machine.
//!
//! A command, typed at the prompt or given on the command line, becomes requests to the daemon of
//! this host. The replies become events, which are shown to people or, with `--json`, to programs.
//! The console keeps no state of the machine: it can be killed at any time, also while it prints,
//! and any number of consoles can be connected to one daemon.
//!
//! Modules in reading order; the imports have no circles.
//!
//! | module | concern |
//! |---|---|
//! | [`command`] | the grammar: parsing, help, the words that are checked before a daemon is asked |
//! | [`execute`] | what each command does |
//! | [`ask`], [`client`], [`connection`] | requests with the types of their replies; waits for them; bytes |
//! | [`launch`] | daemons are started: here, and on the hosts that `add` names |
//! | [`run`] | a program at this terminal |
//! | [`image`] | images of processes, which need no daemon |
//! | [`checkpoints`], [`bucket`] | the store, and its copy in an object store |
//! | [`event`], [`render`] | what is shown, and how |
//! | [`progress`] | bars on a terminal while hosts, moves and drains are awaited |
//! | [`repl`] | the prompt, and files of commands |
//! | [`hosts`], [`signal_name`], [`terminal`], [`interrupt`] | rows of hosts, names of signals, the terminal, Ctrl-C |
//! | [`failure`], [`exit`] | errors, and the exit codes that say so |

mod ask;
mod bucket;
mod checkpoints;
mod client;
mod command;
mod connection;
mod event;
mod execute;
mod exit;
mod failure;
mod hosts;
mod image;
mod interrupt;
mod launch;
mod progress;
mod render;
mod repl;
mod run;
mod signal_name;
mod terminal;

#[cfg(test)]
#[path = "../tests/fake/mod.rs"]
mod fake;

use clap::Parser;
use command::{Cli, Command};
use execute::Console;
use failure::UsageError;
use interrupt::Interrupt;
use render::{Audience, Renderer};
use rustix::process::geteuid;
use std::{
    env,
    io::{self, IsTerminal},
    process::ExitCode,
    rc::Rc,
};
use vm_wire::place;

fn main() -> ExitCode {
    env_logger::init();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error),
    };
    let audience = if cli.format.json {
        Audience::Programs
    } else {
        Audience::People
    };
    match console(&cli, renderer(audience)) {
        Ok(code) => ExitCode::from(code),
        // The reader of the output has gone.
        Err(error) if failure::is_broken_pipe(&error) => ExitCode::from(exit::DONE),
        Err(error) => {
            // Fails only if standard error is closed.
            let _ = execute::report(&mut renderer(audience), &error);
            ExitCode::from(exit::of_error(&error))
        }
    }
}

/// Shows an error of the command line, or the help that the command line requests.
fn not_understood(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && command::ask_for_json(env::args_os()) {
        let error = UsageError::of_parser(error).into();
        // Fails only if standard error is closed.
        let _ = execute::report(&mut renderer(Audience::Programs), &error);
        return ExitCode::from(exit::USAGE);
    }
    // The parser knows whether this is help or an error, and colours it.
    error.exit()
}

fn renderer(audience: Audience) -> Renderer {
    let mut renderer = Renderer::new(audience, Box::new(io::stdout()), Box::new(io::stderr()));
    renderer.set_to_terminal(io::stdout().is_terminal());
    renderer
}

fn console(cli: &Cli, renderer: Renderer) -> anyhow::Result<u8> {
    let dir = cli.dir.clone().unwrap_or_else(|| {
        place::default_dir(
            env::var_os(place::ENV_DIR),
            env::var_os(place::ENV_RUNTIME_DIR),
            geteuid().as_raw(),
        )
    });
    let commands_on_stdin = cli.command.is_none();
    let interrupt = Rc::new(Interrupt::install(!commands_on_stdin)?);
    let mut console = Console::new(dir, interrupt, renderer, commands_on_stdin);
    match &cli.command {
        Some(Command::Source { file }) => repl::file(console, file),
        Some(command) => console.execute(command),
        None if io::stdin().is_terminal() => repl::interactive(console),
        None => repl::script(console, io::stdin().lock()),
    }
}
