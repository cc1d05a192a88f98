//! The arguments of the commands that have several.

use super::{
    policy::{self, Interval, RecoverArg, interval, mtbf},
    words::{AppArg, TidArg, checkpoint_id, launch_host, not_elsewhere, stored_app, variable},
};
use clap::Args;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use vm_store::CheckpointId;
use vm_wire::{
    Tid,
    checkpoint::Policy,
    limits::{CHECKPOINTS_KEPT_MAX, SPAWN_COUNT_MAX},
    task::{Place, Spawn},
};

/// How `add` starts a daemon unless told otherwise.
pub const DEFAULT_LAUNCHER: &str =
    "ssh {host} vmd --detach --join {join} --name {name} --secret-stdin";

/// The arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Do not give the program a terminal, even if the console has one.
    #[arg(long)]
    pub no_terminal: bool,
    /// If the store has checkpoints of a program of that name, restart from the last one instead; when
    /// the application has ended with code 0, remove them.
    #[arg(long)]
    pub resume_or_start: bool,
    /// On a restart: do not roll back the files that its tasks had open for writing.
    #[arg(long, requires = "resume_or_start")]
    pub keep_files: bool,
    /// Make checkpoints of the application, each so long after the last: 90s, 5m, 1h; auto: with
    /// --mtbf.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub checkpoint_every: Option<Interval>,
    /// The mean time between failures of hosts: 12h, 30d. The best interval follows from it and from
    /// the cost of a checkpoint.
    #[arg(long, value_name = "TIME", requires = "checkpoint_every", value_parser = mtbf)]
    pub mtbf: Option<Duration>,
    /// How many of these checkpoints are kept; otherwise three.
    #[arg(long, value_name = "COUNT", requires = "checkpoint_every")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(CHECKPOINTS_KEPT_MAX)))]
    pub keep: Option<u32>,
    /// When the application is restarted from its last checkpoint automatically; otherwise when a host
    /// is lost.
    #[arg(long, value_name = "WHEN")]
    pub recover: Option<RecoverArg>,
    /// Compress its checkpoints, also those by `checkpoint`: for slow or small disks.
    #[arg(long)]
    pub compress: bool,
    /// Freeze tasks while their images are written into memory, instead of having copies of them write:
    /// half the processor time, for programs that keep writing to all of their memory.
    #[arg(long)]
    pub blocking: bool,
    /// Refused with a hint at `spawn --on`.
    #[arg(long = "on", hide = true, value_name = "HOST", value_parser = not_elsewhere)]
    _on: Option<String>,
    /// The program.
    #[command(flatten)]
    pub program: Program,
}

/// The arguments of `spawn`.
#[derive(Debug, Args)]
pub struct SpawnArgs {
    /// How many to start, each the master of an application of its own.
    #[arg(long, short = 'n', default_value_t = 1, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SPAWN_COUNT_MAX)))]
    pub count: u32,
    /// Where: one host, or several in turn, separated by commas; otherwise by free cores.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub on: Vec<String>,
    /// The program.
    #[command(flatten)]
    pub program: Program,
}

/// A program, its arguments and its environment.
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
pub struct AddArgs {
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
    /// A relative path of the program starts from the console's folder, whatever the program's own
    /// working directory is.
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
    /// The placement that the user wants.
    pub fn place(&self) -> Place {
        match self.on.as_slice() {
            [] => Place::Any,
            [host] => Place::Host(host.clone()),
            hosts => Place::Hosts(hosts.to_vec()),
        }
    }
}

/// The arguments of `move`.
#[derive(Debug, Args)]
pub struct MoveArgs {
    /// The task.
    #[arg(value_name = "TID")]
    pub tid: TidArg,
    /// Where to: a name or number that `conf` shows; else the machine chooses.
    #[arg(value_name = "HOST")]
    pub host: Option<String>,
    /// Send all memory while the task is frozen: the shortest move, the longest freeze time.
    #[arg(long)]
    pub no_precopy: bool,
    /// Compress the memory that is sent, where that makes it smaller: for slow links.
    #[arg(long)]
    pub compress: bool,
}

/// The arguments of `checkpoint`.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// Not now, but from now on, each so long after the last: 90s, 5m, 1h; 0s: no more; auto: with
    /// --mtbf.
    #[arg(long, visible_alias = "interval", value_name = "TIME", value_parser = interval)]
    pub every: Option<Interval>,
    /// The mean time between failures of hosts: 12h, 30d. Of it and of what a checkpoint costs the
    /// best interval follows.
    #[arg(long, value_name = "TIME", requires = "every", value_parser = mtbf)]
    pub mtbf: Option<Duration>,
    /// How many of these checkpoints are kept; otherwise three.
    #[arg(long, value_name = "COUNT", requires = "every")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(CHECKPOINTS_KEPT_MAX)))]
    pub keep: Option<u32>,
    /// When the application is restarted from the last one automatically; otherwise when a host is
    /// lost.
    #[arg(long, value_name = "WHEN", requires = "every")]
    pub recover: Option<RecoverArg>,
    /// Compress checkpoints of the application from now on, also those made by hand.
    #[arg(long, requires = "every")]
    pub compress: bool,
    /// Freeze tasks while their images are written into memory, instead of having copies of them write.
    #[arg(long, requires = "every")]
    pub blocking: bool,
    /// The application: its master, or any task of it.
    #[arg(value_name = "TID")]
    pub tid: TidArg,
}

/// The arguments of `restart`.
#[derive(Debug, Args)]
pub struct RestartArgs {
    /// The application: its master, or its name in the store; otherwise the only one in the store.
    #[arg(value_name = "APPLICATION")]
    pub app: Option<AppArg>,
    /// Which of its checkpoints; otherwise the last one that is undamaged.
    #[arg(long, value_name = "CHECKPOINT", value_parser = checkpoint_id)]
    pub from: Option<CheckpointId>,
    /// Do not wait for its end.
    #[arg(long)]
    pub detach: bool,
    /// Do not roll back the files that its tasks had open for writing: use them as they are.
    #[arg(long)]
    pub keep_files: bool,
}

/// The arguments of `checkpoints`.
#[derive(Debug, Args)]
pub struct CheckpointsArgs {
    /// The folder of the store; otherwise that of the daemon here.
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Read all checkpoints, to see whether they are undamaged.
    #[arg(long)]
    pub verify: bool,
    /// Remove all checkpoints of that application, named as in this list: it cannot be restarted any
    /// more.
    #[arg(long, value_name = "APPLICATION", value_parser = stored_app)]
    pub remove: Option<Tid>,
}

/// The arguments of `drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The host takes tasks again. Tasks that have left do not move back.
    #[arg(long)]
    pub undo: bool,
    /// First make a checkpoint of each application with a task there. If one fails, the drain is refused.
    #[arg(long, conflicts_with = "undo")]
    pub checkpoint: bool,
    /// Suspend the application of each task that cannot be moved; it is resumed when there is room.
    #[arg(long, conflicts_with = "undo")]
    pub suspend: bool,
    /// The host: a name or number, as `conf` shows them.
    #[arg(value_name = "HOST")]
    pub host: String,
}

impl RunArgs {
    /// The checkpoint policy that the options state; none if they state nothing.
    pub fn policy(&self) -> Option<Policy> {
        let policy = Policy {
            compress: self.compress,
            blocking: self.blocking,
            ..policy::policy(self.checkpoint_every, self.mtbf, self.keep, self.recover)
        };
        (policy != Policy::default()).then_some(policy)
    }

    /// The name of the program, without its folder.
    pub fn program_name(&self) -> String {
        let program = self.program.words.first().map(Path::new);
        let name = program.and_then(Path::file_name);
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}

impl CheckpointArgs {
    /// The checkpoint policy that the options state; none if a checkpoint is to be made now.
    pub fn policy(&self) -> Option<Policy> {
        self.every.map(|every| Policy {
            compress: self.compress,
            blocking: self.blocking,
            ..policy::policy(Some(every), self.mtbf, self.keep, self.recover)
        })
    }
}
