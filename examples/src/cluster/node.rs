//! One host: its daemon, as a child of this process, and its files.

use super::{
    family,
    pace::{LOOK, PATIENCE},
};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, OpenOptions},
    io,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Bound on the time for which the processes of a host may outlive its daemon.
const LINGER: Duration = Duration::from_secs(5);

/// A host: its daemon, and its folder.
#[derive(Debug)]
pub(super) struct Node {
    pub name: String,
    pub dir: PathBuf,
    /// None while the host is lost.
    process: Option<Child>,
    /// Whether the daemon was in the machine since it was started.
    came: bool,
}

impl Node {
    /// A host whose daemon is not started yet.
    pub fn new(name: &str, dir: PathBuf) -> Self {
        Node {
            name: name.to_owned(),
            dir,
            process: None,
            came: false,
        }
    }

    /// Starts the daemon. The command has all arguments except those of this host.
    pub fn start(&mut self, mut command: Command) -> Result<()> {
        // The address file of an earlier daemon says nothing about this daemon.
        match fs::remove_file(self.address_file()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())?;
        command
            .args(["--name", &self.name, "--listen", "127.0.0.1:0", "--dir"])
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let process = command.spawn();
        self.process = Some(process.with_context(|| format!("starting {}", self.name))?);
        self.came = false;
        Ok(())
    }

    /// Whether the daemon is in the machine: the daemon writes its address then.
    pub fn has_come(&mut self) -> Result<bool> {
        self.look_after()?;
        self.came |= fs::read_to_string(self.address_file()).is_ok_and(|text| text.ends_with('\n'));
        Ok(self.came)
    }

    /// Whether the daemon was in the machine at the last check, and is not lost.
    pub fn is_there(&self) -> bool {
        self.process.is_some() && self.came
    }

    /// The address at which the daemon can be joined.
    pub fn address(&self) -> Result<String> {
        Ok(fs::read_to_string(self.address_file())?.trim().to_owned())
    }

    fn address_file(&self) -> PathBuf {
        self.dir.join("address")
    }

    /// The daemon's log file.
    pub fn log_file(&self) -> PathBuf {
        self.dir.with_extension("log")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Fails when the daemon has ended by itself. Its host is lost then.
    pub fn look_after(&mut self) -> Result<()> {
        if let Some(process) = &mut self.process
            && let Some(status) = process.try_wait()?
        {
            self.process = None;
            bail!("{} has ended with {status}:\n{}", self.name, self.log());
        }
        Ok(())
    }

    /// Kills the daemon and waits for the end of its processes. Returns the moment before the kill.
    pub fn lose(&mut self) -> Result<Instant> {
        let process = self.process.take();
        let mut process = process.with_context(|| format!("{} is lost already", self.name))?;
        let family = family::of(process.id())?;
        let begin = Instant::now();
        process.kill()?;
        process.wait()?;
        while let Some(left) = family.iter().find(|one| !family::has_ended(**one)) {
            ensure!(
                begin.elapsed() < LINGER,
                "process {left} of {} lives on after its daemon was killed",
                self.name
            );
            thread::park_timeout(LOOK);
        }
        Ok(begin)
    }

    /// Tells the daemon to leave.
    pub fn terminate(&mut self) {
        if let Some(process) = &mut self.process
            && matches!(process.try_wait(), Ok(None))
        {
            // The signal fails only for a process that has just ended, which needs no signal.
            let _ = kill_process(Pid::from_child(process), Signal::TERM);
        }
    }

    /// Whether the daemon has ended within [`PATIENCE`] of `begin`; waits for it.
    pub fn has_ended(&mut self, begin: Instant) -> bool {
        let Some(process) = &mut self.process else {
            return true;
        };
        loop {
            match process.try_wait() {
                Ok(None) if begin.elapsed() < PATIENCE => thread::park_timeout(LOOK),
                Ok(None) | Err(_) => return false,
                Ok(Some(_)) => return true,
            }
        }
    }

    /// Ends the daemon at once.
    pub fn kill(&mut self) {
        if let Some(process) = &mut self.process {
            // Both calls fail only if the process has ended and was waited for.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
