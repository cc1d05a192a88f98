//! A machine of several daemons on this computer, for `demo`, `vmbench` and `longrun`.
//!
//! A [`Cluster`] owns what it starts. Its hosts can be lost, as if they were switched off, and can
//! return. Each daemon is a child in a process group of its own, so that Ctrl-C at the terminal
//! does not reach it: the machine is to be stopped in order. Dropping the cluster ends the daemons
//! and their tasks, and removes its folder.

pub mod family;
mod interrupt;
mod node;
mod pace;
mod programs;
mod running;
mod watched;

pub use interrupt::Interrupt;
use node::Node;
use pace::{LOOK, PATIENCE};
pub use programs::{Programs, cargo, executables};
use running::Running;
pub use watched::Watched;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long a console may run on after an interrupt.
const GRACE: Duration = Duration::from_secs(3);
/// Number of lines of a daemon's log that an error shows.
const LAST_WORDS: usize = 20;

/// A machine of real daemons on the loopback address.
#[derive(Debug)]
pub struct Cluster {
    console: PathBuf,
    nodes: Vec<Node>,
    folder: TempDir,
    /// Options of all daemons.
    options: Vec<String>,
}

impl Cluster {
    /// Starts a daemon for each name, all in one machine. An interrupt ends the wait.
    ///
    /// # Errors
    /// When a daemon does not start; its log is in the error.
    pub fn start(programs: &Programs, names: &[&str], interrupt: &Interrupt) -> Result<Self> {
        Self::start_with(programs, names, &[], interrupt)
    }

    /// As [`Cluster::start`], with further `options` for each daemon.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_with(
        programs: &Programs,
        names: &[&str],
        options: &[&str],
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("vm")
            .tempdir()
            .context("a folder for the daemons")?;
        let node = |name: &&str| Node::new(name, folder.path().join(name));
        let mut cluster = Cluster {
            console: programs.binary("vm")?.to_owned(),
            nodes: names.iter().map(node).collect(),
            folder,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        };
        // The other daemons join with the address and the secret of the founder.
        for index in 0..names.len() {
            cluster.bring(programs, index)?;
            if index == 0 {
                cluster.await_host(0, interrupt)?;
            }
        }
        for index in 1..names.len() {
            cluster.await_host(index, interrupt)?;
        }
        Ok(cluster)
    }

    /// Starts the daemon of a host. It joins through a host that is in the machine; if there is
    /// none, it founds the machine.
    ///
    /// # Errors
    /// When the daemon cannot be started.
    pub fn bring(&mut self, programs: &Programs, index: usize) -> Result<()> {
        // The daemon gets a session of its own, like on a host of its own: Linux divides the
        // processor by sessions.
        let mut command = Command::new("setsid");
        command.arg(programs.binary("vmd")?);
        command.arg("--path").arg(programs.folder());
        command.arg("--store").arg(self.store());
        let secret = self.folder().join("secret");
        command.arg("--secret-file").arg(secret);
        command.args(&self.options);
        if let Some(other) = self.nodes.iter().find(|node| node.is_there()) {
            command.args(["--join", &other.address()?]);
        }
        self.nodes[index].start(command)
    }

    /// Whether a host whose daemon was started is in the machine.
    ///
    /// # Errors
    /// When its daemon has ended; its log is in the error.
    pub fn has_come(&mut self, index: usize) -> Result<bool> {
        self.nodes[index].has_come()
    }

    fn await_host(&mut self, index: usize, interrupt: &Interrupt) -> Result<()> {
        let begin = Instant::now();
        while !self.has_come(index)? {
            ensure!(!interrupt.is_set(), "interrupted");
            if begin.elapsed() > PATIENCE {
                let node = &self.nodes[index];
                bail!(
                    "{} is not ready after {PATIENCE:?}:\n{}",
                    node.name,
                    node.log()
                );
            }
            thread::park_timeout(LOOK);
        }
        Ok(())
    }

    /// The folder of a daemon.
    pub fn dir(&self, index: usize) -> &Path {
        &self.nodes[index].dir
    }

    /// The folder of the daemons, which is removed with the cluster.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The store of checkpoints, which all daemons share.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// The log files of the daemons. A daemon that is started again appends to its own file.
    pub fn logs(&self) -> impl Iterator<Item = PathBuf> {
        self.nodes.iter().map(Node::log_file)
    }

    /// The last lines of the daemons' logs.
    pub fn last_words(&self) -> String {
        let said = self.nodes.iter().map(|node| {
            let log = node.log();
            let lines = Vec::from_iter(log.lines());
            let last = &lines[lines.len().saturating_sub(LAST_WORDS)..];
            format!("{} has logged last:\n{}\n", node.name, last.join("\n"))
        });
        said.collect()
    }

    /// Kills the daemon of a host, as if the host were switched off, and waits for the end of all
    /// its processes. Returns the moment before the kill.
    ///
    /// # Errors
    /// When the host is away, or its processes have not ended with the daemon.
    pub fn lose(&mut self, index: usize) -> Result<Instant> {
        self.nodes[index].lose()
    }

    /// The processes of the daemons.
    pub fn daemons(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().filter_map(Node::pid)
    }

    /// A console of the first daemon in the machine. The caller adds the command.
    pub fn console(&self) -> Command {
        let first = self.nodes.iter().find(|node| node.is_there());
        let dir = first.map_or(self.dir(0), |node| &node.dir);
        let mut command = Command::new(&self.console);
        command.arg("--dir").arg(dir);
        command
    }

    /// Runs a console command that ends by itself, and returns its reply in JSON.
    ///
    /// # Errors
    /// When the command fails; the error has its output.
    pub fn ask(&self, words: &[&str], interrupt: &Interrupt) -> Result<Value> {
        let mut console = self.console();
        console.arg("--json").args(words);
        let (status, said) = Watched::start(console, interrupt)?.end(PATIENCE)?;
        ensure!(status.success(), "vm {}: {said}", words.join(" "));
        serde_json::from_str(&said).with_context(|| format!("vm {}: {said}", words.join(" ")))
    }

    /// Runs a console that [`Cluster::console`] has made until it ends. Returns its exit code. The
    /// console also gets an interrupt from the terminal, and may then take a few seconds to end.
    ///
    /// # Errors
    /// When the console cannot be run.
    pub fn run(&self, mut console: Command, interrupt: &Interrupt) -> Result<ExitCode> {
        let mut console = Running(console.spawn().context("running the console")?);
        let mut interrupted: Option<Instant> = None;
        loop {
            if let Some(status) = console.0.try_wait()? {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
            }
            if interrupt.is_set() && interrupted.get_or_insert_with(Instant::now).elapsed() > GRACE
            {
                console.0.kill()?;
            }
            thread::park_timeout(LOOK);
        }
    }

    /// Stops the machine in order.
    ///
    /// # Errors
    /// When a daemon has ended before, with the end of its log; when a daemon does not end.
    pub fn halt(mut self) -> Result<()> {
        self.look_after()?;
        let mut halt = self.console();
        halt.args(["halt", "--yes"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // A second Ctrl-C must not stop the halt that the first one has begun.
        let status = halt
            .process_group(0)
            .status()
            .context("running the console")?;
        ensure!(status.success(), "the machine was not stopped: {status}");
        let begin = Instant::now();
        for node in &mut self.nodes {
            ensure!(node.has_ended(begin), "{} did not end", node.name);
        }
        Ok(())
    }

    /// Checks that the daemons of all hosts run that are not lost.
    ///
    /// # Errors
    /// When a daemon has ended by itself, with the end of its log.
    pub fn look_after(&mut self) -> Result<()> {
        self.nodes.iter_mut().try_for_each(Node::look_after)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let begin = Instant::now();
        self.nodes.iter_mut().for_each(Node::terminate);
        for node in &mut self.nodes {
            if !node.has_ended(begin) {
                node.kill();
            }
        }
    }
}
