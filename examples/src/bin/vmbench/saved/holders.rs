//! An application whose tasks hold memory and rewrite some of it. They report to their master when
//! they have started, and after each restart. The master prints a line when all have reported.

use crate::tags::ANSWER;
use anyhow::{Context, Result};
use std::{
    env,
    time::{Duration, Instant},
};
use vm_examples::{
    cluster::{Cluster, Interrupt, Watched},
    workers,
};
use vmlib::Spawn;

/// The part of its memory that a task rewrites in each second. Percent.
const REWRITTEN: &str = "1";
/// The line of the master when all its tasks compute.
const ALL_COMPUTE: &str = "all compute";
/// Bound on the time in which the tasks start, or are restarted.
const PATIENCE: Duration = Duration::from_secs(60);

/// The work of the master. It does not end by itself.
pub fn master(bytes: usize, count: u32) -> Result<()> {
    let vm = vmlib::init()?;
    let program = env::current_exe()?;
    let program = program.to_str().context("this program's path")?;
    let hosts = vm.hosts()?.into_iter().map(|host| host.facts.name);
    let spawn = Spawn::new(program).args(["churner", &bytes.to_string(), REWRITTEN, "--tells"]);
    let tasks = vm.spawn(&spawn.count(count).on_each(hosts))?;
    for task in &tasks {
        vm.watch_task(*task)?;
    }
    loop {
        for _ in &tasks {
            workers::next(&vm, ANSWER)?;
        }
        println!("{} {ALL_COMPUTE}", vm.tid());
    }
}

/// The application, with a console.
pub struct Holders {
    /// Its master, in the form that a console takes.
    pub tid: String,
    console: Watched,
}

impl Holders {
    /// Starts the application, and waits until all tasks have started.
    pub fn start(
        cluster: &Cluster,
        bytes: usize,
        count: usize,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let mut run = cluster.console();
        run.args(["run", "--no-terminal", "vmbench", "holders"]);
        run.args([bytes.to_string(), count.to_string()]);
        let mut console = Watched::start(run, interrupt)?;
        let (_, line) = console.line(ALL_COMPUTE, PATIENCE)?;
        let tid = line.split_whitespace().next().context("a tid")?.to_owned();
        Ok(Holders { tid, console })
    }

    /// Continues with a console that restarts the application. Returns that console's reply, once
    /// all tasks compute again.
    pub fn follow(&mut self, mut console: Watched) -> Result<serde_json::Value> {
        let (_, answer) = console.line("\"restarted\"", PATIENCE)?;
        console.line(ALL_COMPUTE, PATIENCE)?;
        self.console = console;
        Ok(serde_json::from_str(&answer)?)
    }

    /// The moment at which the console prints this text.
    pub fn says(&mut self, text: &str) -> Result<Instant> {
        Ok(self.console.line(text, PATIENCE)?.0)
    }

    /// The moment at which all tasks compute again.
    pub fn compute_again(&mut self) -> Result<Instant> {
        self.says(ALL_COMPUTE)
    }

    /// Ends the application, and waits for its console.
    pub fn end(self, cluster: &Cluster, interrupt: &Interrupt) -> Result<()> {
        cluster.ask(&["kill", &self.tid], interrupt)?;
        self.console.end(PATIENCE)?;
        Ok(())
    }
}
