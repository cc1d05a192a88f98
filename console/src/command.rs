//! The console's one grammar: what can be typed after `vm`, and at its prompt.
//!
//! Parsing, help, the manual pages that `help COMMAND` prints and the completion at the prompt all
//! come from these definitions. A word that stands for something in the machine is checked for its
//! form here, before any request; only the daemon knows whether the thing exists.

mod actions;
mod args;
mod help;
mod map;
mod policy;
mod words;

use crate::{failure::UsageError, signal_name};
pub use actions::{Between, ImageAction, StoreAction};
pub use args::{
    AddArgs, CheckpointArgs, CheckpointsArgs, DrainArgs, MoveArgs, RestartArgs, RunArgs, SpawnArgs,
};
use clap::{Args, CommandFactory, Parser, Subcommand};
use help::*;
pub use map::Map;
use policy::suspended_for;
use std::{ffi::OsStr, path::PathBuf, time::Duration};
pub use words::{AppArg, TidArg};

/// Console of the virtual parallel machine.
///
/// Without a command it reads commands interactively, or, when its standard input is no terminal,
/// line by line until one fails. If no daemon runs on this host, the prompt, `run`, `spawn` and
/// `add` start one, and say so.
#[derive(Debug, Parser)]
#[command(name = "vm", version, after_long_help = TOP_HELP, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub format: Format,

    /// The folder of the daemon to talk to.
    ///
    /// Without it: $VM_DIR, else $XDG_RUNTIME_DIR/vm, else /tmp/vm-UID.
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// The command; the prompt if absent.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// One line at the prompt: the same commands, without the program's name before them.
#[derive(Debug, Parser)]
#[command(name = "vm", no_binary_name = true, disable_help_subcommand = true)]
#[command(override_usage = "COMMAND [OPTIONS]")]
pub struct Line {
    /// Options of every command.
    #[command(flatten)]
    pub format: Format,

    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Copy, Args)]
pub struct Format {
    /// Print JSON for programs: one value a line.
    #[arg(long, global = true)]
    pub json: bool,
}

/// The commands, in the order of the help.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program as the master of a new application, as if it were started here.
    #[command(after_long_help = RUN_HELP)]
    #[command(override_usage = "vm run [OPTIONS] PROGRAM [ARGUMENT]...")]
    Run(RunArgs),

    /// Start programs as masters of their own, and do not wait for them.
    #[command(after_long_help = SPAWN_HELP)]
    #[command(override_usage = "vm spawn [OPTIONS] PROGRAM [ARGUMENT]...")]
    Spawn(SpawnArgs),

    /// List the tasks: children below their parents, with processor time, memory and state.
    #[command(after_long_help = PS_HELP)]
    Ps {
        /// Only the application of this task.
        #[arg(value_name = "TID")]
        app: Option<TidArg>,
    },

    /// End tasks at once (signal 9).
    #[command(after_long_help = KILL_HELP)]
    Kill {
        /// The tasks.
        #[arg(required = true, value_name = "TID")]
        tids: Vec<TidArg>,
    },

    /// Send a signal to tasks.
    #[command(after_long_help = SIG_HELP)]
    Sig {
        /// Name or number: TERM, SIGTERM or 15.
        #[arg(value_name = "SIGNAL", value_parser = signal_name::parse)]
        signal: i32,
        /// The tasks.
        #[arg(required = true, value_name = "TID")]
        tids: Vec<TidArg>,
    },

    /// Show whether a task can be moved to another host, and if not, why.
    #[command(after_long_help = CHECK_HELP)]
    Check {
        /// The task.
        #[arg(value_name = "TID")]
        tid: TidArg,
    },

    /// Move a task to another host, while it and all other tasks run.
    #[command(after_long_help = MOVE_HELP)]
    Move(MoveArgs),

    /// Make a checkpoint of an application, whose tasks are frozen for a moment.
    #[command(after_long_help = CHECKPOINT_HELP)]
    Checkpoint(CheckpointArgs),

    /// End an application with a checkpoint, for `restart`.
    #[command(after_long_help = STOP_HELP)]
    Stop {
        /// Make a checkpoint: required, since `stop` without it would be `kill`.
        #[arg(long, required = true)]
        checkpoint: bool,
        /// The application: its master, or any task of it.
        #[arg(value_name = "TID")]
        tid: TidArg,
    },

    /// Suspend an application: it ends with a checkpoint, and the machine keeps it for `resume`.
    #[command(after_long_help = SUSPEND_HELP)]
    Suspend {
        /// Time after which the suspended application ends for good, as with `stop --checkpoint`:
        /// 90s, 5m, 2h. Otherwise it waits until it is resumed.
        #[arg(long = "for", value_name = "TIME", value_parser = suspended_for)]
        time: Option<Duration>,
        /// The application: its master. Another task is suspended alone.
        #[arg(value_name = "TID")]
        app: TidArg,
    },

    /// Resume an application or a task that is suspended.
    #[command(after_long_help = RESUME_HELP)]
    Resume {
        /// The application: its master, as `ps` shows it; or a task that is suspended alone.
        #[arg(value_name = "TID")]
        app: TidArg,
        /// Where a single task resumes; otherwise on the host that has its image, unless that drains.
        #[arg(value_name = "HOST")]
        host: Option<String>,
    },

    /// Restart an application from a checkpoint, on whatever hosts there are.
    #[command(after_long_help = RESTART_HELP)]
    Restart(RestartArgs),

    /// List the checkpoints that are in the store.
    #[command(after_long_help = CHECKPOINTS_HELP)]
    Checkpoints(CheckpointsArgs),

    /// Copy checkpoints between the store and its bucket in an object store, or list the bucket.
    #[command(after_long_help = STORE_HELP, disable_help_subcommand = true)]
    Store {
        /// The command on the bucket.
        #[command(subcommand)]
        action: StoreAction,
    },

    /// Move all tasks off a host, and place no new task there.
    #[command(after_long_help = DRAIN_HELP)]
    Drain(DrainArgs),

    /// Show the machine: its hosts, the leader, the voters.
    #[command(after_long_help = CONF_HELP)]
    Conf {
        /// Also hosts that have left or were lost.
        #[arg(long)]
        all: bool,
    },

    /// Add hosts: start a daemon on each, and wait until it is in the machine.
    #[command(after_long_help = ADD_HELP)]
    Add(AddArgs),

    /// Remove hosts from the machine: their tasks end, then their daemons.
    #[command(after_long_help = DELETE_HELP)]
    Delete {
        /// Names or numbers, as `conf` shows them.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },

    /// End the machine: all tasks and all daemons.
    #[command(after_long_help = HALT_HELP)]
    Halt {
        /// Do not ask first. (Only a terminal is asked.)
        #[arg(long, short)]
        yes: bool,
    },

    /// Save a running process to an image, describe or verify an image, or restore its process.
    #[command(after_long_help = IMAGE_HELP, disable_help_subcommand = true)]
    Image {
        /// The command on an image.
        #[command(subcommand)]
        action: ImageAction,
    },

    /// Print words: in a file of commands, or before the result of another command.
    #[command(after_long_help = ECHO_HELP)]
    Echo {
        /// The words.
        #[arg(
            value_name = "WORD",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        words: Vec<String>,
    },

    /// Carry out the commands in a file, up to the first that fails.
    #[command(after_long_help = SOURCE_HELP)]
    Source {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },

    /// At the prompt, or in a file: let a name stand for a command, or list the names that do.
    #[command(after_long_help = ALIAS_HELP)]
    Alias {
        /// The name. Without words after it, its meaning is shown.
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// The command that it stands for, with its first arguments.
        #[arg(
            value_name = "WORD",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        words: Vec<String>,
    },

    /// Remove aliases.
    #[command(after_long_help = UNALIAS_HELP)]
    Unalias {
        /// Their names.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },

    /// Show the release and protocol of this console and of the daemon.
    #[command(after_long_help = VERSION_HELP)]
    Version,

    /// Show the manual page of a command, or the list of commands.
    #[command(after_long_help = HELP_HELP)]
    Help {
        /// The command, and which of its own.
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
    },

    /// Leave the console. The machine runs on.
    #[command(visible_alias = "exit", after_long_help = QUIT_HELP)]
    Quit,
}

/// Whether words that could not be parsed contain the option for JSON, before or after the error.
pub fn ask_for_json(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> bool {
    words
        .into_iter()
        .take_while(|word| word.as_ref() != "--")
        .any(|word| word.as_ref() == "--json")
}

/// The manual page of a command, given word by word, or the list of all.
pub fn help(command: &[&str]) -> Result<String, UsageError> {
    let mut grammar = Cli::command();
    grammar.build();
    let page = command.iter().try_fold(&mut grammar, |above, word| {
        above.find_subcommand_mut(word).ok_or_else(|| {
            let all = command.join(" ");
            UsageError(format!("no command '{all}': 'help' lists them"))
        })
    })?;
    Ok(page.render_long_help().to_string())
}

#[cfg(test)]
pub use args::DEFAULT_LAUNCHER;
#[cfg(test)]
mod tests;
