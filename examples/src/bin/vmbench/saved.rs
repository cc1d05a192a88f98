//! Checkpoints, restarts and recovery, measured from a console as a person uses it, on machines of
//! three hosts whose store is a folder on the disk of this computer. The tasks check themselves.
//! The figures come from the machine's own reports, or from the times of a console's lines.

pub mod disk;
pub mod holders;
pub mod policies;

use crate::{
    plans::{Plan, Program, Saved, What},
    rows::{Row, median},
    sealed,
};
use anyhow::{Context, Result};
use holders::Holders;
use serde_json::Value;
use vm_examples::cluster::{Cluster, Interrupt, Programs, Watched};

/// The hosts of such a machine.
const HOSTS: [&str; 3] = ["nodeA", "nodeB", "nodeC"];
/// Bound on the turns of a recovery: each takes a machine of its own.
const RECOVERIES: u32 = 3;

/// The state that the rows about checkpoints share.
pub struct Bench<'a> {
    programs: &'a Programs,
    interrupt: &'a Interrupt,
    turns: u32,
    /// The recovery, measured once for all rows about it.
    recovery: Option<Recovery>,
    /// The costs of policies for the last program, measured once.
    costs: Option<(Program, policies::Costs)>,
}

/// Medians of the times after the kill of a host, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Recovery {
    /// Until the host is declared lost.
    detected: f64,
    /// Until all tasks compute again.
    whole: f64,
}

impl<'a> Bench<'a> {
    /// A bench without measurements.
    pub fn new(programs: &'a Programs, interrupt: &'a Interrupt, turns: u32) -> Self {
        Bench {
            programs,
            interrupt,
            turns,
            recovery: None,
            costs: None,
        }
    }

    /// Measures a row; `plans` are all rows that are measured in this run.
    pub fn row(&mut self, plan: &Plan, saved: Saved, plans: &[Plan]) -> Result<Row> {
        Ok(match saved {
            Saved::Freeze => self.freeze(plan)?,
            Saved::Restart => self.restart(plan)?,
            Saved::Recovery => Row::new(plan, self.recovery(plan)?.whole, None, None),
            Saved::Detection => Row::new(plan, self.recovery(plan)?.detected, None, None),
            Saved::Policy(program, way) => {
                let costs = match self.costs.take().filter(|(of, _)| *of == program) {
                    Some((_, costs)) => costs,
                    None => {
                        let ways = plans.iter().filter_map(|plan| match plan.what {
                            What::Saved(Saved::Policy(of, way)) if of == program => Some(way),
                            _ => None,
                        });
                        let runs = policies::Runs {
                            cluster: self.cluster()?,
                            interrupt: self.interrupt,
                            turns: self.turns,
                        };
                        policies::measure(runs, program, &Vec::from_iter(ways), plan.count)?
                    }
                };
                let (never, with) = costs.of(way);
                self.costs = Some((program, costs));
                Row::new(plan, with, None, Some(never))
            }
        })
    }

    fn cluster(&self) -> Result<Cluster> {
        Cluster::start(self.programs, &HOSTS, self.interrupt)
    }

    /// Measures the freeze time of the slowest task, and the time to write as many bytes. The first
    /// of each does not count.
    fn freeze(&self, plan: &Plan) -> Result<Row> {
        let cluster = self.cluster()?;
        let app = Holders::start(&cluster, plan.size, plan.count, self.interrupt)?;
        let memory = vec![1; plan.size];
        let (mut frozen, mut written) = (Vec::new(), Vec::new());
        for turn in 0..=self.turns {
            sealed::find_memory(plan.size * plan.count)?;
            let report = cluster.ask(&["checkpoint", &app.tid], self.interrupt)?;
            let plain = disk::write(cluster.folder(), &memory, plan.count)?;
            if turn > 0 {
                frozen.push(micros(&report, "freeze_us")?);
                written.push(plain);
            }
        }
        app.end(&cluster, self.interrupt)?;
        cluster.halt()?;
        Ok(Row::new(plan, median(frozen), None, Some(median(written))))
    }

    /// Measures the duration of a restart, and the time to read the same files. Before each, the
    /// kernel's cache of the files is dropped, if that is possible.
    fn restart(&self, plan: &Plan) -> Result<Row> {
        let cluster = self.cluster()?;
        let mut app = Holders::start(&cluster, plan.size, plan.count, self.interrupt)?;
        // Memory for the tasks, and for the kernel's cache of the files.
        let memory = 2 * plan.size * plan.count;
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for turn in 0..=self.turns {
            cluster.ask(&["stop", "--checkpoint", &app.tid], self.interrupt)?;
            sealed::find_memory(memory)?;
            disk::forget()?;
            let mut restart = cluster.console();
            restart.args(["--json", "restart", &app.tid]);
            let answer = app.follow(Watched::start(restart, self.interrupt)?)?;
            let checkpoint = answer["checkpoint"].as_str().context("its name")?;
            let images = disk::images(&cluster.store(), checkpoint)?;
            sealed::find_memory(memory)?;
            disk::forget()?;
            let read = disk::read(&images)?;
            if turn > 0 {
                ours.push(micros(&answer, "total_us")?);
                plain.push(read);
            }
        }
        app.end(&cluster, self.interrupt)?;
        cluster.halt()?;
        let how = if disk::can_forget() { "cold" } else { "cached" };
        let mut row = Row::new(plan, median(ours), None, Some(median(plain)));
        row.name = format!("{}, {how}", row.name);
        Ok(row)
    }

    /// The times of a recovery, measured once.
    fn recovery(&mut self, plan: &Plan) -> Result<Recovery> {
        if let Some(recovery) = self.recovery {
            return Ok(recovery);
        }
        let (mut detected, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..self.turns.min(RECOVERIES) {
            let recovery = self.recover(plan)?;
            detected.push(recovery.detected);
            whole.push(recovery.whole);
        }
        let recovery = Recovery {
            detected: median(detected),
            whole: median(whole),
        };
        Ok(*self.recovery.insert(recovery))
    }

    /// Measures one recovery, after the kill of a host that is not the console's.
    fn recover(&self, plan: &Plan) -> Result<Recovery> {
        let mut cluster = self.cluster()?;
        let mut app = Holders::start(&cluster, plan.size, plan.count, self.interrupt)?;
        cluster.ask(&["checkpoint", &app.tid], self.interrupt)?;
        sealed::find_memory(plan.size * plan.count)?;
        let killed = cluster.lose(HOSTS.len() - 1)?;
        let since = |moment: std::time::Instant| 1e6 * (moment - killed).as_secs_f64();
        let detected = since(app.says("restarts from its last checkpoint")?);
        let whole = since(app.compute_again()?);
        app.end(&cluster, self.interrupt)?;
        cluster.halt()?;
        Ok(Recovery { detected, whole })
    }
}

/// A time in the reply of a console. Microseconds.
fn micros(answer: &Value, key: &str) -> Result<f64> {
    let micros = answer[key].as_f64();
    micros.with_context(|| format!("the console has answered without {key}: {answer}"))
}
