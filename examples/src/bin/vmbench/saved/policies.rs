//! The cost of checkpoint policies for an application that computes all the time.
//!
//! Two runs of the same program differ by more than that cost for other reasons. So the ways take
//! turns within one run. The run is cut into stretches of as many lines of the program's log as
//! come in [`STRETCH`], in turn with checkpoints and without. A stretch with checkpoints is
//! compared with the mean of the stretches before and after it, so that a run which becomes slower
//! does not distort the result.

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

/// Memory of the programs. Bytes.
const BYTES: usize = 1 << 30;
/// Bound on the length of a stretch. One checkpoint is made in each stretch with checkpoints.
const STRETCH: Duration = Duration::from_secs(10);
/// The policy of such a stretch, under which no other checkpoint is made automatically.
const EVERY: &str = "100s";
/// Lines before the pace of lines is measured, and lines of that measurement.
const WARM: usize = 2;
const TRIED: usize = 4;
/// Bound on the runs: each takes seven minutes.
const RUNS: u32 = 2;
/// Bound on the checkpoints at the beginning, which do not count. They are half a stretch apart,
/// until one is stored in full: that shows that the store has found increments not worth their
/// cost, because the application rewrites all of its memory (it tries increments again at one
/// checkpoint of sixteen). By then the daemon also knows that copies cost the tasks more than
/// writing into memory, and the memory is allocated. From then on images are written and stored as
/// in most of a long run.
const BEGUN_MAX: usize = 12;
/// Number of stretches of a run that are compared.
const COMPARED: usize = 20;
/// Bound on the time between two lines.
const PATIENCE: Duration = Duration::from_secs(120);

/// The times of stretches.
#[derive(Debug, Default)]
pub struct Costs {
    /// Stretches without checkpoints. Microseconds.
    never: Vec<f64>,
    /// For each way, ratios of stretches with checkpoints to the stretches without next to them.
    ratios: BTreeMap<Way, Vec<f64>>,
}

impl Costs {
    /// Microseconds of a stretch without checkpoints, and of the same stretch with them.
    pub fn of(&self, way: Way) -> (f64, f64) {
        let never = median(self.never.clone());
        (never, never * median(self.ratios[&way].clone()))
    }
}

/// The place and the number of the runs of a program.
pub struct Runs<'a> {
    /// A machine for these runs alone.
    pub cluster: Cluster,
    /// Interrupts the runs.
    pub interrupt: &'a Interrupt,
    /// Number of requested runs, of which at most [`RUNS`] are made.
    pub turns: u32,
}

/// Measures all these ways, in turn.
pub fn measure(runs: Runs, program: Program, ways: &[Way], tasks: usize) -> Result<Costs> {
    let mut costs = Costs::default();
    for _ in 0..runs.turns.min(RUNS) {
        let mut app = App::start(runs.interrupt, &runs.cluster, program, tasks)?;
        if ways.contains(&Way::Often) {
            app.begin()?;
        }
        // The first stretch does not count: the pace of lines may have changed since the beginning.
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

/// Number of lines of a stretch, if one line takes `line` microseconds.
fn lines_of(line: f64) -> usize {
    ((1e6 * STRETCH.as_secs_f64() / line) as usize).max(1)
}

/// The application, with a console.
struct App<'a> {
    cluster: &'a Cluster,
    interrupt: &'a Interrupt,
    console: Watched,
    /// Its master, in the form that a console takes.
    tid: String,
    mark: &'static str,
    /// The time of the last line.
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
        // The program is killed before it has made this number of steps.
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

    /// Microseconds until `lines` more lines have come.
    fn follow(&mut self, lines: usize) -> Result<f64> {
        let begin = self.last;
        for _ in 0..lines {
            (self.last, _) = self.console.line(self.mark, PATIENCE)?;
        }
        Ok(1e6 * (self.last - begin).as_secs_f64())
    }

    /// Microseconds of one stretch.
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

    /// Makes a checkpoint. Returns whether it is stored in full.
    fn checkpoint(&self) -> Result<bool> {
        let made = self
            .cluster
            .ask(&["checkpoint", &self.tid], self.interrupt)?;
        Ok(made["stored"] == made["bytes"])
    }

    /// Makes the checkpoints at the beginning, which do not count.
    fn begin(&mut self) -> Result<()> {
        self.policy(EVERY)?;
        // The first checkpoint is full in any case.
        self.checkpoint()?;
        for _ in 1..BEGUN_MAX {
            self.follow(self.lines / 2)?;
            if self.checkpoint()? {
                break;
            }
        }
        Ok(())
    }

    /// Ends the application, and empties the store.
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
