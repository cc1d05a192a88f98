//! What policies of checkpoints cost an application that computes all the time.
//!
//! Two runs of the same program differ by more than that without any cause in it. So the ways take
//! turns within a run: it is cut into stretches of as many lines of the program's log as come in
//! [`STRETCH`], with checkpoints and without, in turn; a stretch with them is compared with the mean of
//! the one before and the one after it, so that a run which becomes slower harms nobody.

use crate::{
    plans::{Program, Way},
    rows::median,
    sealed,
};
use anyhow::{Context, Result};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use vm_examples::cluster::{Cluster, Interrupt, Watched};

/// Memory of the programs.
const BYTES: usize = 1 << 30;
/// How long a stretch is, at most: in each with checkpoints one is made.
const STRETCH: Duration = Duration::from_secs(10);
/// The policy of such a stretch, in which no other one is made by itself.
const EVERY: &str = "100s";
/// Lines before it is looked at how fast they come, and of how many that is told.
const WARM: usize = 2;
const TRIED: usize = 4;
/// Runs at most: each is of seven minutes.
const RUNS: u32 = 2;
/// Checkpoints that are made first and do not count, at most: half a stretch apart, until one that is
/// stored in full tells that increments are not worth it for an application that rewrites all of its
/// memory, which is tried again at one of sixteen. By then it is known, too, that copies cost its tasks
/// more than to write into memory, and that memory is there. From then on images are written and stored
/// as in most of a long run.
const BEGUN_MAX: usize = 12;
/// Stretches of a run that are compared.
const COMPARED: usize = 20;
/// How long a line may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The times of stretches.
#[derive(Debug, Default)]
pub struct Costs {
    /// Stretches without checkpoints. Microseconds.
    never: Vec<f64>,
    /// With them, to those without beside it.
    ratios: BTreeMap<Way, Vec<f64>>,
}

impl Costs {
    /// Microseconds of a stretch without checkpoints, and of the same one with them.
    pub fn of(&self, way: Way) -> (f64, f64) {
        let never = median(self.never.clone());
        (never, never * median(self.ratios[&way].clone()))
    }
}

/// Where the runs of a program are measured, and how many.
pub struct Runs<'a> {
    /// A machine for these runs alone.
    pub cluster: Cluster,
    /// Ends the runs.
    pub interrupt: &'a Interrupt,
    /// Runs, of which at most [`RUNS`] are made.
    pub turns: u32,
}

/// All these ways, in turn.
pub fn measure(runs: Runs, program: Program, ways: &[Way], tasks: usize) -> Result<Costs> {
    let mut costs = Costs::default();
    for _ in 0..runs.turns.min(RUNS) {
        let mut app = App::start(runs.interrupt, &runs.cluster, program, tasks)?;
        if ways.contains(&Way::Often) {
            app.begin()?;
        }
        // The first one does not count: by now lines may come faster than at the beginning.
        let first = app.stretch(None)?;
        app.lines = lines_of(first / app.lines as f64);
        let mut before = app.stretch(None)?;
        for way in ways.iter().cycle().take(COMPARED) {
            let with = app.stretch(Some(*way))?;
            let after = app.stretch(None)?;
            let ratio = with / (before + after) * 2.0;
            costs.ratios.entry(*way).or_default().push(ratio);
            costs.never.push(after);
            before = after;
        }
        app.end()?;
    }
    runs.cluster.halt()?;
    Ok(costs)
}

/// Lines of a stretch, if one takes so many microseconds.
fn lines_of(line: f64) -> usize {
    ((1e6 * STRETCH.as_secs_f64() / line) as usize).max(1)
}

/// The application, at a console.
struct App<'a> {
    cluster: &'a Cluster,
    interrupt: &'a Interrupt,
    console: Watched,
    /// Its master, as a console takes it.
    tid: String,
    mark: &'static str,
    /// When the last line came.
    last: Instant,
    /// The number of lines of a stretch.
    lines: usize,
}

impl<'a> App<'a> {
    fn start(
        interrupt: &'a Interrupt,
        cluster: &'a Cluster,
        program: Program,
        tasks: usize,
    ) -> Result<Self> {
        sealed::find_memory(2 * BYTES)?;
        let (words, mark): (&[&str], _) = match program {
            // Two plates of 8 bytes for each of 8192 x 8192 cells: 1 GiB.
            Program::Heat => (
                &[
                    "heat", "--size", "8192", "--until", "0", "--look", "10", "--steps",
                ],
                "step ",
            ),
            Program::Matmul => (&["matmul", "--rounds"], "round "),
        };
        let mut run = cluster.console();
        run.args(["run", "--no-terminal"]).args(words);
        // More than it comes to: it is killed.
        run.args(["1000000000", "--log", "--workers"]);
        run.arg(tasks.to_string());
        let mut app = App {
            cluster,
            interrupt,
            console: Watched::start(run, interrupt)?,
            tid: String::new(),
            mark,
            last: Instant::now(),
            lines: 0,
        };
        app.follow(WARM)?;
        let tried = app.follow(TRIED)? / TRIED as f64;
        app.lines = lines_of(tried);
        let tasks = cluster.ask(&["ps"], interrupt)?;
        let tid = tasks["tasks"][0]["tid"].as_str().context("a task")?;
        app.tid = tid.to_owned();
        Ok(app)
    }

    /// Microseconds until so many more lines have come.
    fn follow(&mut self, lines: usize) -> Result<f64> {
        let begin = self.last;
        for _ in 0..lines {
            (self.last, _) = self.console.line(self.mark, PATIENCE)?;
        }
        Ok(1e6 * (self.last - begin).as_secs_f64())
    }

    /// Microseconds of a stretch.
    fn stretch(&mut self, way: Option<Way>) -> Result<f64> {
        self.policy(match way {
            None => "0s",
            Some(Way::Idle) => "1h",
            Some(Way::Often) => EVERY,
        })?;
        if way == Some(Way::Often) {
            self.checkpoint()?;
        }
        self.follow(self.lines)
    }

    fn policy(&self, every: &str) -> Result<()> {
        let command = ["checkpoint", &self.tid, "--every", every];
        self.cluster.ask(&command, self.interrupt).map(drop)
    }

    /// Makes one. Whether it is stored in full.
    fn checkpoint(&self) -> Result<bool> {
        let made = self
            .cluster
            .ask(&["checkpoint", &self.tid], self.interrupt)?;
        Ok(made["stored"] == made["bytes"])
    }

    /// Makes those that do not count.
    fn begin(&mut self) -> Result<()> {
        self.policy(EVERY)?;
        // The first one is full in any case.
        self.checkpoint()?;
        for _ in 1..BEGUN_MAX {
            self.follow(self.lines / 2)?;
            if self.checkpoint()? {
                break;
            }
        }
        Ok(())
    }

    /// Ends it, and empties the store.
    fn end(self) -> Result<()> {
        self.cluster.ask(&["kill", &self.tid], self.interrupt)?;
        self.console.end(PATIENCE)?;
        let answer = self.cluster.ask(&["checkpoints"], self.interrupt)?;
        let made = answer["checkpoints"].as_array().context("checkpoints")?;
        if let Some(app) = made.first().and_then(|one| one["application"].as_str()) {
            self.cluster
                .ask(&["checkpoints", "--remove", app], self.interrupt)?;
        }
        Ok(())
    }
}
