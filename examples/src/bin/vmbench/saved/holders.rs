//! An application whose tasks hold memory and rewrite some of it. They tell their master when they are
//! there, and each time that they were brought back; and it says so when all have.

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

/// Of its memory, what a task rewrites in each second. Percent.
const REWRITTEN: &str = "1";
/// The line of the master when all its tasks compute.
const ALL_COMPUTE: &str = "all compute";
/// How long they may take to start, or to be brought back.
const PATIENCE: Duration = Duration::from_secs(60);

/// The master. It does not end by itself.
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

/// The application, at a console.
pub struct Holders {
    /// Its master, as a console takes it.
    pub tid: String,
    console: Watched,
}

impl Holders {
    /// Starts it; all tasks are there then.
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

    /// Goes on with a console that brings it back. The answer of that, once all compute again.
    pub fn follow(&mut self, mut console: Watched) -> Result<serde_json::Value> {
        let (_, answer) = console.line("\"restarted\"", PATIENCE)?;
        console.line(ALL_COMPUTE, PATIENCE)?;
        self.console = console;
        Ok(serde_json::from_str(&answer)?)
    }

    /// When its console says this.
    pub fn says(&mut self, text: &str) -> Result<Instant> {
        Ok(self.console.line(text, PATIENCE)?.0)
    }

    /// When all of its tasks compute again.
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
