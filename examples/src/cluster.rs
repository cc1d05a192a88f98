//! A machine of several daemons on this computer, for `demo` and `vmbench`.
//!
//! A [`Cluster`] owns what it starts. Each daemon is a child in a process group of its own, so that
//! Ctrl-C at the terminal does not reach it: the machine is to be stopped in order. Dropping the
//! cluster ends the daemons, and their tasks with them, and removes its folder.

mod interrupt;
mod programs;
mod watched;

pub use interrupt::Interrupt;
pub use programs::Programs;
pub use watched::Watched;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// What a daemon may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a console may run on after an interrupt.
const GRACE: Duration = Duration::from_secs(3);
/// The pace of looking whether something has happened that sends no event.
const LOOK: Duration = Duration::from_millis(5);

/// A machine of real daemons on the loopback address.
#[derive(Debug)]
pub struct Cluster {
    console: PathBuf,
    nodes: Vec<Node>,
    folder: TempDir,
}

#[derive(Debug)]
struct Node {
    name: String,
    dir: PathBuf,
    process: Child,
}

impl Node {
    fn log(&self) -> String {
        fs::read_to_string(self.dir.with_extension("log")).unwrap_or_default()
    }
}

impl Cluster {
    /// Starts a daemon for each name; they form one machine. An interrupt ends
    /// the wait for it.
    ///
    /// # Errors
    /// When a daemon does not start; its log is in the error.
    pub fn start(programs: &Programs, names: &[&str], interrupt: &Interrupt) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("vm")
            .tempdir()
            .context("a folder for the daemons")?;
        let mut cluster = Cluster {
            console: programs.binary("vm")?.to_owned(),
            nodes: Vec::new(),
            folder,
        };
        // The founder's address and secret are what the others join with.
        for (index, name) in names.iter().enumerate() {
            cluster.launch(programs, name)?;
            if index == 0 {
                cluster.address(0, interrupt)?;
            }
        }
        for index in 1..names.len() {
            cluster.address(index, interrupt)?;
        }
        Ok(cluster)
    }

    fn launch(&mut self, programs: &Programs, name: &str) -> Result<()> {
        let dir = self.folder.path().join(name);
        let log = File::create(dir.with_extension("log"))?;
        let mut command = Command::new(programs.binary("vmd")?);
        command
            .args(["--name", name, "--listen", "127.0.0.1:0", "--dir"])
            .arg(&dir)
            .arg("--path")
            .arg(programs.folder())
            .arg("--store")
            .arg(self.store())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0);
        if let Some(founder) = self.nodes.first() {
            let address = fs::read_to_string(founder.dir.join("address"))?;
            command.args(["--join", address.trim(), "--secret-file"]);
            command.arg(founder.dir.join("secret"));
        }
        let process = command
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        self.nodes.push(Node {
            name: name.to_owned(),
            dir,
            process,
        });
        Ok(())
    }

    /// Waits until a daemon has written its address, which it does once it is in the machine.
    fn address(&mut self, index: usize, interrupt: &Interrupt) -> Result<()> {
        let node = &mut self.nodes[index];
        let file = node.dir.join("address");
        let begin = Instant::now();
        while !fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')) {
            ensure!(!interrupt.is_set(), "interrupted");
            if let Some(status) = node.process.try_wait()? {
                bail!("{} ended with {status}:\n{}", node.name, node.log());
            }
            if begin.elapsed() > PATIENCE {
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

    /// What is removed with the cluster.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The store of checkpoints, which all daemons share.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Kills the last daemon, as a host that is switched off; the moment before.
    ///
    /// # Errors
    /// When there is no other, or it cannot be killed.
    pub fn lose_last(&mut self) -> Result<Instant> {
        ensure!(self.nodes.len() > 1, "the only daemon is not to be lost");
        let mut node = self.nodes.pop().context("no daemon")?;
        let begin = Instant::now();
        node.process.kill()?;
        node.process.wait()?;
        Ok(begin)
    }

    /// The processes of the daemons.
    pub fn daemons(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().map(|node| node.process.id())
    }

    /// A console of the first daemon; its command is to be added.
    pub fn console(&self) -> Command {
        let mut command = Command::new(&self.console);
        command.arg("--dir").arg(self.dir(0));
        command
    }

    /// Has a console do something that ends by itself, and returns what it answers in JSON.
    ///
    /// # Errors
    /// When it fails, and what it said.
    pub fn ask(&self, words: &[&str], interrupt: &Interrupt) -> Result<Value> {
        let mut console = self.console();
        console.arg("--json").args(words);
        let (status, said) = Watched::start(console, interrupt)?.end(PATIENCE)?;
        ensure!(status.success(), "vm {}: {said}", words.join(" "));
        serde_json::from_str(&said).with_context(|| format!("vm {}: {said}", words.join(" ")))
    }

    /// Runs a console that [`Cluster::console`] has made until it ends, and returns its exit code.
    /// After an interrupt, which it gets from the terminal itself, it may take a few seconds to end.
    ///
    /// # Errors
    /// When it cannot be run.
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
    /// When a daemon has ended before, and what it logged; when one runs on.
    pub fn halt(mut self) -> Result<()> {
        for node in &mut self.nodes {
            if let Some(status) = node.process.try_wait()? {
                bail!("{} has ended with {status}:\n{}", node.name, node.log());
            }
        }
        let mut halt = self.console();
        halt.args(["halt", "--yes"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // A second Ctrl-C is not to stop what the first one has begun.
        let status = halt
            .process_group(0)
            .status()
            .context("running the console")?;
        ensure!(status.success(), "the machine was not stopped: {status}");
        let begin = Instant::now();
        for node in &mut self.nodes {
            ensure!(ended(&mut node.process, begin), "{} did not end", node.name);
        }
        Ok(())
    }
}

/// A child that ends with this value.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended and been waited for, as it should.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the process has ended within [`PATIENCE`] of `begin`; waits for it.
fn ended(process: &mut Child, begin: Instant) -> bool {
    loop {
        match process.try_wait() {
            Ok(None) if begin.elapsed() < PATIENCE => thread::park_timeout(LOOK),
            Ok(None) | Err(_) => return false,
            Ok(Some(_)) => return true,
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let begin = Instant::now();
        for node in &mut self.nodes {
            if matches!(node.process.try_wait(), Ok(None)) {
                // It fails for one that has ended just now, which needs no signal.
                let _ = kill_process(Pid::from_child(&node.process), Signal::TERM);
            }
        }
        for node in &mut self.nodes {
            if !ended(&mut node.process, begin) {
                let _ = node.process.kill();
                let _ = node.process.wait();
            }
        }
    }
}
