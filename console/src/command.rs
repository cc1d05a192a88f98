//! The console's one grammar: what can be typed after `vm`, and at its prompt.
//!
//! Parsing, help, the manual pages that `help COMMAND` prints and the completion at the prompt all
//! come from the definitions below. A word that stands for something in the machine is checked for
//! its form here, before any daemon is asked; whether it exists only the daemon knows.

mod help;
mod map;
mod policy;

use crate::{failure::UsageError, signal_name};
use clap::{Args, CommandFactory, Parser, Subcommand};
use help::*;
pub use map::Map;
pub use policy::{Interval, RecoverArg, policy};
use policy::{interval, mtbf, suspended_for};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};
use vm_store::CheckpointId;
use vm_wire::{
    MachineId, Tid,
    id::TidError,
    limits::{CHECKPOINTS_KEPT_MAX, SPAWN_COUNT_MAX},
    task::{Place, Spawn},
};

/// How `add` starts a daemon unless told otherwise.
pub const DEFAULT_LAUNCHER: &str =
    "ssh {host} vmd --detach --join {join} --name {name} --secret-stdin";

/// Console of the virtual parallel machine.
///
/// Without a command it reads commands interactively, or, when its standard input is no terminal,
/// line by line until one fails. If no daemon runs on this host, the prompt, `run`, `spawn` and
/// `add` start one, and say so.
#[derive(Debug, Parser)]
#[command(name = "vm", version, after_long_help = TOP_HELP, disable_help_subcommand = true)]
pub struct Cli {
    /// How and where.
    #[command(flatten)]
    pub format: Format,

    /// The folder of the daemon to talk to.
    ///
    /// Without it: $VM_DIR, else $XDG_RUNTIME_DIR/vm, else /tmp/vm-UID.
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// What to do; interactive if absent.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// One line at the prompt: the same commands, without the program's name before them.
#[derive(Debug, Parser)]
#[command(name = "vm", no_binary_name = true, disable_help_subcommand = true)]
#[command(override_usage = "COMMAND [OPTIONS]")]
pub struct Line {
    /// How.
    #[command(flatten)]
    pub format: Format,

    /// What to do.
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

/// What a user can ask for. The order is that of the help.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program as the master of a new application, as if it were started here.
    #[command(after_long_help = RUN_HELP)]
    #[command(override_usage = "vm run [OPTIONS] PROGRAM [ARGUMENT]...")]
    Run(Run),

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

    /// Say whether a task could be moved to another host, and if not, why.
    #[command(after_long_help = CHECK_HELP)]
    Check {
        /// The task.
        #[arg(value_name = "TID")]
        tid: TidArg,
    },

    /// Move a task to another host, while it and all others run.
    #[command(after_long_help = MOVE_HELP)]
    Move {
        /// The task.
        #[arg(value_name = "TID")]
        tid: TidArg,
        /// Where to: a name or number that `conf` shows; else the machine chooses.
        #[arg(value_name = "HOST")]
        host: Option<String>,
        /// Send all of its memory while it stands still: the shortest move, the longest freeze.
        #[arg(long)]
        no_precopy: bool,
        /// Compress what is sent, where that makes it smaller: for slow links.
        #[arg(long)]
        compress: bool,
    },

    /// Save all tasks of an application together, while it stands still for a moment.
    #[command(after_long_help = CHECKPOINT_HELP)]
    Checkpoint {
        /// Not now, but again and again from now on, after so long each: 90s, 5m, 1h; 0s: no more; auto:
        /// with --mtbf.
        #[arg(long, visible_alias = "interval", value_name = "TIME", value_parser = interval)]
        every: Option<Interval>,
        /// The mean time between failures of hosts: 12h, 30d. Of it and of what a checkpoint costs the
        /// best interval follows.
        #[arg(long, value_name = "TIME", requires = "every", value_parser = mtbf)]
        mtbf: Option<Duration>,
        /// How many of these are kept; otherwise three.
        #[arg(long, value_name = "COUNT", requires = "every")]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(CHECKPOINTS_KEPT_MAX)))]
        keep: Option<u32>,
        /// When the application goes back to the last one by itself; otherwise when a host is lost.
        #[arg(long, value_name = "WHEN", requires = "every")]
        recover: Option<RecoverArg>,
        /// Compress what is stored of the application from now on, also when it is asked for by hand.
        #[arg(long, requires = "every")]
        compress: bool,
        /// Have tasks stand while they are written into memory from now on, and no copies of them write.
        #[arg(long, requires = "every")]
        blocking: bool,
        /// The application: its master, or any task of it.
        #[arg(value_name = "TID")]
        tid: TidArg,
    },

    /// End an application so that `restart` can bring it back.
    #[command(after_long_help = STOP_HELP)]
    Stop {
        /// Save it: required, since without that it would be `kill`.
        #[arg(long, required = true)]
        checkpoint: bool,
        /// The application: its master, or any task of it.
        #[arg(value_name = "TID")]
        tid: TidArg,
    },

    /// End an application with a checkpoint for a while: the machine remembers it, and `resume` brings
    /// it back.
    #[command(after_long_help = SUSPEND_HELP)]
    Suspend {
        /// After so long it has ended, as with `stop --checkpoint`: 90s, 5m, 2h. Otherwise it waits until
        /// it is resumed.
        #[arg(long = "for", value_name = "TIME", value_parser = suspended_for)]
        time: Option<Duration>,
        /// The application: its master. Another task is suspended alone.
        #[arg(value_name = "TID")]
        app: TidArg,
    },

    /// Bring an application or a task back that is suspended.
    #[command(after_long_help = RESUME_HELP)]
    Resume {
        /// The application: its master, as `ps` shows it; or a task that is suspended alone.
        #[arg(value_name = "TID")]
        app: TidArg,
        /// Where a single task goes on; otherwise on the host that it is on, unless that drains.
        #[arg(value_name = "HOST")]
        host: Option<String>,
    },

    /// Bring an application back from a checkpoint, on whatever hosts there are.
    #[command(after_long_help = RESTART_HELP)]
    Restart {
        /// Its master, or its name in the store; otherwise the only one that is there.
        #[arg(value_name = "APPLICATION")]
        app: Option<AppArg>,
        /// Which of its checkpoints; otherwise the last one that is undamaged.
        #[arg(long, value_name = "CHECKPOINT", value_parser = checkpoint_id)]
        from: Option<CheckpointId>,
        /// Do not wait for its end.
        #[arg(long)]
        detach: bool,
        /// Do not roll back the files that its tasks had open for writing: use them as they are.
        #[arg(long)]
        keep_files: bool,
    },

    /// List the checkpoints that are in the store.
    #[command(after_long_help = CHECKPOINTS_HELP)]
    Checkpoints {
        /// The folder of the store; otherwise that of the daemon here.
        #[arg(long, value_name = "DIR")]
        store: Option<PathBuf>,
        /// Read all of each, to see whether it is undamaged.
        #[arg(long)]
        verify: bool,
        /// Remove all of that application, as they are called here: it cannot be restarted any more.
        #[arg(long, value_name = "APPLICATION", value_parser = stored_app)]
        remove: Option<Tid>,
    },

    /// Copy checkpoints between the store and its bucket in an object store, or list what is there.
    #[command(after_long_help = STORE_HELP, disable_help_subcommand = true)]
    Store {
        /// What to do.
        #[command(subcommand)]
        action: StoreAction,
    },

    /// Have all tasks of a host leave for other hosts; it takes no more.
    #[command(after_long_help = DRAIN_HELP)]
    Drain {
        /// The host takes tasks again. Those that have left do not come back.
        #[arg(long)]
        undo: bool,
        /// First save each application that has a task there. If one cannot be saved, nothing is begun.
        #[arg(long, conflicts_with = "undo")]
        checkpoint: bool,
        /// Suspend the application of each task that cannot leave; it is resumed when there is room.
        #[arg(long, conflicts_with = "undo")]
        suspend: bool,
        /// Its name or number, as `conf` shows them.
        #[arg(value_name = "HOST")]
        host: String,
    },

    /// Show the machine: its hosts, who leads, who votes.
    #[command(after_long_help = CONF_HELP)]
    Conf {
        /// Also hosts that have left or were lost.
        #[arg(long)]
        all: bool,
    },

    /// Add hosts: start a daemon on each, and wait until it is in the machine.
    #[command(after_long_help = ADD_HELP)]
    Add(Add),

    /// Take hosts out of the machine: their tasks end, then their daemons.
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

    /// Save a running process to a file, look into such an image, verify it, or bring its process back.
    #[command(after_long_help = IMAGE_HELP, disable_help_subcommand = true)]
    Image {
        /// What to do with it.
        #[command(subcommand)]
        action: Image,
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

/// What can be done with a bucket.
#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// Copy to the bucket what is in the folder and not yet there; return when all of it is.
    Push {
        /// Between which.
        #[command(flatten)]
        between: Between,
    },
    /// Bring the last checkpoint of an application, or that one, into the folder, and verify it.
    Pull {
        /// Its master, or its name in the store.
        #[arg(value_name = "APPLICATION")]
        app: AppArg,
        /// Which of its checkpoints; otherwise the last one that is undamaged.
        #[arg(long, value_name = "CHECKPOINT", value_parser = checkpoint_id)]
        from: Option<CheckpointId>,
        /// Between which.
        #[command(flatten)]
        between: Between,
    },
    /// List the checkpoints that are in the bucket.
    List {
        /// Between which.
        #[command(flatten)]
        between: Between,
    },
    /// Show the manual page of one of these, or the list of them.
    Help {
        /// Which.
        #[arg(value_name = "ACTION")]
        action: Option<String>,
    },
}

/// A folder and a bucket.
#[derive(Debug, Args)]
pub struct Between {
    /// The folder of the store; otherwise that of the daemon here.
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// The bucket, as s3://BUCKET/PREFIX; otherwise that of the folder (vmd --store-bucket).
    #[arg(long, value_name = "URL")]
    pub bucket: Option<String>,
    /// Who is asked for it, as https://HOST:PORT; otherwise the service of Amazon.
    #[arg(long, value_name = "URL", requires = "bucket")]
    pub endpoint: Option<String>,
}

/// What can be done with an image. None of it needs a daemon.
#[derive(Debug, Subcommand)]
pub enum Image {
    /// Have a running process save itself to a file. It was started with the library in it.
    Save {
        /// Most is written while it runs; it stands still for what is left.
        #[arg(long)]
        rounds: bool,
        /// A copy of it writes, or writes what is left, while it goes on.
        #[arg(long)]
        forked: bool,
        /// It ends when the image is whole and has its name.
        #[arg(long)]
        exit: bool,
        /// The image has the content of the files that it has open.
        #[arg(long)]
        carry: bool,
        /// Its process id.
        #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
        pid: i32,
        /// Where the image goes. What has this name is replaced when the image is whole.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show what is in an image, which hosts it is good for, and whether this one is among them.
    Info {
        /// The image; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Read all of an image: it is whole, and what it needs of a host, or where it is damaged.
    Verify {
        /// The image; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Verify an image, then become its process: with this terminal, its signals, its exit code.
    Run {
        /// Files that it had open for writing become what they were at the save.
        #[arg(long)]
        roll_back_files: bool,
        /// Files and the working folder below OLD are looked for below NEW; may be given again.
        #[arg(long, value_name = "OLD=NEW")]
        map: Vec<Map>,
        /// The image; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show the manual page of one of these, or the list of them.
    Help {
        /// Which.
        #[arg(value_name = "ACTION")]
        action: Option<String>,
    },
}

impl Image {
    /// The image, if one is to be read.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Image::Info { file } | Image::Verify { file } | Image::Run { file, .. } => Some(file),
            Image::Save { .. } | Image::Help { .. } => None,
        }
    }
}

/// The arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Do not give the program a terminal, even if the console has one.
    #[arg(long)]
    pub no_terminal: bool,
    /// If there are checkpoints of a program of that name in the store, go on from the last one instead;
    /// when the application has ended well, remove them.
    #[arg(long)]
    pub resume_or_start: bool,
    /// If it goes on: do not roll back the files that its tasks had open for writing.
    #[arg(long, requires = "resume_or_start")]
    pub keep_files: bool,
    /// Make a checkpoint of the application again and again, after so long each: 90s, 5m, 1h; auto: with
    /// --mtbf.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub checkpoint_every: Option<Interval>,
    /// The mean time between failures of hosts: 12h, 30d. Of it and of what a checkpoint costs the best
    /// interval follows.
    #[arg(long, value_name = "TIME", requires = "checkpoint_every", value_parser = mtbf)]
    pub mtbf: Option<Duration>,
    /// How many of these checkpoints are kept; otherwise three.
    #[arg(long, value_name = "COUNT", requires = "checkpoint_every")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(CHECKPOINTS_KEPT_MAX)))]
    pub keep: Option<u32>,
    /// When the application goes back to its last checkpoint by itself; otherwise when a host is lost.
    #[arg(long, value_name = "WHEN")]
    pub recover: Option<RecoverArg>,
    /// Compress what its checkpoints store, also those that are asked for by hand: for slow or small disks.
    #[arg(long)]
    pub compress: bool,
    /// Have tasks stand while they are written into memory, and no copies of them write: half the
    /// processor time, for programs that write to all of their memory again and again.
    #[arg(long)]
    pub blocking: bool,
    /// Refused, with a word on what to do instead.
    #[arg(long = "on", hide = true, value_name = "HOST", value_parser = not_elsewhere)]
    _on: Option<String>,
    /// What to run.
    #[command(flatten)]
    pub program: Program,
}

/// The arguments of `spawn`.
#[derive(Debug, Args)]
pub struct SpawnArgs {
    /// How many, each the master of an application of its own.
    #[arg(long, short = 'n', default_value_t = 1, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SPAWN_COUNT_MAX)))]
    pub count: u32,
    /// Where: one host, or several in turn, separated by commas. Otherwise by free cores.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub on: Vec<String>,
    /// What to run.
    #[command(flatten)]
    pub program: Program,
}

/// A program and what it gets.
#[derive(Debug, Args)]
pub struct Program {
    /// Set a variable of its environment. May be repeated.
    #[arg(long = "env", short, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Its working directory; otherwise the console's.
    #[arg(long, value_name = "PATH")]
    pub cwd: Option<PathBuf>,
    /// A path, or a name to look up in the daemon's program path; then its arguments. Everything
    /// after the program is its own, options too.
    // One list, because options between a program and its first argument would be taken for ours.
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub words: Vec<String>,
}

/// The arguments of `add`.
#[derive(Debug, Args)]
pub struct Add {
    /// How to start a daemon elsewhere; see below.
    #[arg(long, env = "VM_LAUNCHER", value_name = "TEMPLATE")]
    #[arg(default_value = DEFAULT_LAUNCHER)]
    pub launcher: String,
    /// The address that the new daemons join; otherwise that of this host's daemon.
    #[arg(long, value_name = "HOST:PORT")]
    pub join: Option<String>,
    /// File with the machine's secret; otherwise the one in the daemon's folder.
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// How long to wait for a host to join. Seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub timeout: u64,
    /// The hosts, as the launcher knows them: node1, user@node1.
    #[arg(required = true, value_name = "HOST", value_parser = launch_host)]
    pub hosts: Vec<String>,
}

impl Program {
    /// The request for `count` of this program at `place`, started from the folder `cwd`.
    ///
    /// A program given by a relative path is meant from the console's folder, whatever the
    /// program's own working directory is.
    pub fn spawn(&self, count: u32, place: Place, cwd: &Path) -> Spawn {
        let (program, args) = match self.words.split_first() {
            Some((program, args)) => (program.clone(), args.to_vec()),
            None => (String::new(), Vec::new()),
        };
        let program = if program.contains('/') {
            let path: PathBuf = cwd.join(&program).components().collect();
            path.to_string_lossy().into_owned()
        } else {
            program
        };
        let dir = match &self.cwd {
            Some(dir) => cwd.join(dir),
            None => cwd.to_owned(),
        };
        Spawn {
            program,
            args,
            env: self.env.clone(),
            dir: Some(dir.to_string_lossy().into_owned()),
            count,
            place,
        }
    }
}

impl SpawnArgs {
    /// Where the user wants the tasks.
    pub fn place(&self) -> Place {
        match self.on.as_slice() {
            [] => Place::Any,
            [host] => Place::Host(host.clone()),
            hosts => Place::Hosts(hosts.to_vec()),
        }
    }
}

/// A tid as typed: well formed, but of a machine that is known only once a daemon has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TidArg(String);

impl TidArg {
    /// The task, as seen from a console of `machine`.
    pub fn resolve(&self, machine: MachineId) -> Result<Tid, TidError> {
        Tid::parse(&self.0, machine)
    }
}

impl FromStr for TidArg {
    type Err = TidError;

    fn from_str(text: &str) -> Result<Self, TidError> {
        Tid::parse(text, MachineId::from_bits(0)).map(|_| TidArg(text.to_owned()))
    }
}

/// An application: by its master, or as it is called in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppArg {
    /// Its master.
    Master(TidArg),
    /// It, as known from its name.
    Named(Tid),
}

impl FromStr for AppArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match vm_store::name::parse_app(text) {
            Some(app) => Ok(AppArg::Named(app)),
            None => text.parse().map(AppArg::Master).map_err(|_: TidError| {
                "an application is called by its master, as t1.1, or as `vm checkpoints` shows it"
                    .to_owned()
            }),
        }
    }
}

fn stored_app(text: &str) -> Result<Tid, String> {
    vm_store::name::parse_app(text)
        .ok_or_else(|| "write the application as `vm checkpoints` shows it".to_owned())
}

fn checkpoint_id(text: &str) -> Result<CheckpointId, String> {
    CheckpointId::parse(text).ok_or_else(|| "a checkpoint is called like g0-e2".to_owned())
}

/// Whether the words, which could not be parsed, ask for JSON. The option may stand after what is
/// wrong with them.
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

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

fn not_elsewhere(host: &str) -> Result<String, String> {
    Err(format!(
        "run starts a program where its console is; use 'vm spawn --on {host}', or run 'vm' there"
    ))
}

/// A host that begins with a dash would reach the launcher as one of its options.
fn launch_host(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('-') || text.contains(char::is_whitespace) {
        return Err("a host's name is not empty, has no blanks and no dash before it".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(shell_words::split(&format!("vm {line}")).unwrap())
    }

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
        Line::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_summary_and_an_example() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name}");
            let help = command.get_after_long_help().expect(name).to_string();
            assert!(help.contains("Example:\n"), "{name}");
            assert!(help.lines().all(|line| line.len() <= 80), "{name}");
        }
    }

    #[test]
    fn files_are_kept_only_where_something_is_brought_back() {
        let keeps = |line| match parse(line).map(|cli| cli.command) {
            Ok(Some(Command::Restart { keep_files, .. })) => Some(keep_files),
            Ok(Some(Command::Run(run))) => Some(run.keep_files),
            _ => None,
        };
        assert_eq!(keeps("restart"), Some(false));
        assert_eq!(keeps("restart t1.1 --keep-files --detach"), Some(true));
        assert_eq!(keeps("run --resume-or-start --keep-files prog"), Some(true));
        assert_eq!(
            keeps("run --resume-or-start prog --keep-files"),
            Some(false)
        );
        assert_eq!(keeps("run --keep-files prog"), None);
    }

    #[test]
    fn what_follows_the_program_is_its_own() {
        let cli = parse("run --env A=b ./prog --json -n 3 --env X=y").unwrap();
        assert!(!cli.format.json);
        let Some(Command::Run(run)) = cli.command else {
            panic!("not a run")
        };
        assert_eq!(run.program.env, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(
            run.program.words,
            ["./prog", "--json", "-n", "3", "--env", "X=y"]
        );
    }

    #[test]
    fn options_of_every_command_stand_before_or_after_it() {
        for line in ["--json ps", "ps --json"] {
            assert!(parse(line).unwrap().format.json, "{line}");
        }
        let cli = parse("conf --dir /x").unwrap();
        assert_eq!(cli.dir, Some("/x".into()));
    }

    #[test]
    fn wrong_words_are_refused_before_a_daemon_is_asked() {
        for line in [
            "kill",
            "kill 3.17",
            "sig NOSUCH t1.1",
            "sig 0 t1.1",
            "sig TERM",
            "spawn -n 0 prog",
            "spawn -n 4097 prog",
            "run --env =x prog",
            "add -- -oProxyCommand=x",
            "image",
            "image info",
            "image copy a.img",
            "frobnicate",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn who_wants_to_run_elsewhere_is_told_how() {
        let error = parse("run --on beta prog").unwrap_err().to_string();
        assert!(error.contains("'vm spawn --on beta'"), "{error}");
        assert!(!error.contains("tip:"), "{error}");
    }

    #[test]
    fn a_relative_program_is_meant_from_the_consoles_folder() {
        let spawn = |line: &str| match parse(line).unwrap().command {
            Some(Command::Spawn(args)) => {
                args.program
                    .spawn(args.count, args.place(), "/home/u".as_ref())
            }
            _ => panic!("not a spawn"),
        };
        let one = spawn("spawn -n 2 --on a,b --cwd work ./bin/prog x");
        assert_eq!(one.program, "/home/u/bin/prog");
        assert_eq!(one.dir.as_deref(), Some("/home/u/work"));
        assert_eq!(one.place, Place::Hosts(vec!["a".into(), "b".into()]));
        assert_eq!((one.count, one.args), (2, vec!["x".to_owned()]));
        let two = spawn("spawn --on a prog");
        assert_eq!(
            (two.program.as_str(), two.place),
            ("prog", Place::Host("a".into()))
        );
    }

    #[test]
    fn help_has_a_page_for_each_command_and_none_for_others() {
        let help = |line: &str| help(&line.split_whitespace().collect::<Vec<_>>());
        assert!(help("").unwrap().contains("Exit codes:"));
        assert!(help("run").unwrap().contains("Usage: vm run"));
        assert!(help("image").unwrap().contains("Usage: vm image"));
        assert!(help("image run").unwrap().contains("Usage: vm image run"));
        for unknown in ["frobnicate", "image frobnicate", "run run"] {
            let none = help(unknown).unwrap_err();
            assert!(none.to_string().contains(unknown), "{none}");
        }
    }
}
