//! The example heat, with and without faults.

use crate::{
    faults::{Faults, Loss},
    news::{Logs, News},
};
use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;
use std::{
    thread,
    time::{Duration, Instant},
};
use vm_examples::{
    cluster::{Cluster, Interrupt, Watched},
    heat::whole,
};

/// Interval at which the machine is checked.
const LOOK: Duration = Duration::from_millis(50);
/// How long there may be no task before the application counts as ended.
const EMPTY: Duration = Duration::from_secs(60);
/// Interval at which the tasks are counted. Each count starts a console.
const COUNT: Duration = Duration::from_secs(5);
/// Bound on the time until all hosts have returned after the last loss.
const WHOLE: Duration = Duration::from_secs(90);
/// Steps after which the workers and their master exchange reports.
const STEPS: u64 = 100;
/// The first one of this number of parts of a run shows the speed of the whole run.
const PART: u64 = 5;
/// Steps of a first run, whose only result is its speed.
const TRIED: u64 = 10 * STEPS;
/// Bound on the time of such a first run, and of the first part of the run.
const CALIBRATED: Duration = Duration::from_secs(1800);
/// Cells in each direction of the plate of a short run.
pub const SIZE: usize = 512;

/// The plate, and the number of its workers.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Plate {
    /// Cells in each direction.
    pub size: usize,
    /// Steps that are computed.
    pub steps: u64,
    /// Number of workers; the master is one more task.
    pub tasks: u32,
}

impl Plate {
    fn words(&self) -> Vec<String> {
        let words = ["heat", "--json", "--until", "0", "--size"];
        let mut words: Vec<String> = words.map(str::to_owned).into();
        words.extend([self.size.to_string(), "--steps".to_owned()]);
        words.extend([self.steps.to_string(), "--workers".to_owned()]);
        words.push(self.tasks.to_string());
        words
    }

    /// Seconds that a machine takes for the plate without faults and checkpoints.
    ///
    /// # Errors
    /// When the run does not end, or stops before the last step.
    pub fn without_faults(
        &self,
        cluster: &Cluster,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<f64> {
        let mut run = cluster.console();
        run.args(["run", "--no-terminal"]).args(self.words());
        let mut console = Watched::start(run, interrupt)?;
        let (_, line) = console.line("\"seconds\"", patience)?;
        let (status, said) = console.end(patience)?;
        ensure!(status.success(), "heat: {said}");
        let report: Value = serde_json::from_str(&line)?;
        ensure!(
            report["steps"] == self.steps,
            "heat has stopped early: {line}"
        );
        report["seconds"].as_f64().context("heat's seconds")
    }

    /// A plate whose computation takes `length` on a machine, and which still changes in the last
    /// step: a longer run computes a larger plate.
    ///
    /// # Errors
    /// As [`Plate::without_faults`].
    pub fn of_length(
        length: Duration,
        tasks: u32,
        cluster: &Cluster,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let mut size = SIZE;
        loop {
            let plate = Plate::of_size(size, length, tasks, cluster, interrupt)?;
            if plate.steps <= plate.steps_max() {
                return Ok(plate);
            }
            size += size / 4;
        }
    }

    /// A plate with `size` cells in each direction, with as many steps as take `length` on a
    /// machine.
    ///
    /// # Errors
    /// As [`Plate::without_faults`].
    pub fn of_size(
        size: usize,
        length: Duration,
        tasks: u32,
        cluster: &Cluster,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let with = |steps: f64| Plate {
            size,
            steps: (steps as u64).next_multiple_of(STEPS).max(STEPS),
            tasks,
        };
        let length = length.as_secs_f64();
        // The first run warms up; the second one is long enough for a reliable speed.
        let mut plate = with(TRIED as f64);
        for part in [PART, 1] {
            let seconds = plate.without_faults(cluster, CALIBRATED, interrupt)?;
            let whole = with(plate.steps as f64 * length / seconds);
            if whole.steps > whole.steps_max() {
                return Ok(whole);
            }
            plate = with((whole.steps / part) as f64);
        }
        Ok(plate)
    }

    /// Bound on the steps. After more steps than the plate has cells it may not change any more,
    /// and heat stops: it was seen to stop after 1.8 times as many.
    pub fn steps_max(&self) -> u64 {
        (self.size * self.size) as u64
    }

    /// Seconds that the plate takes without faults, estimated from those of its first part.
    ///
    /// # Errors
    /// As [`Plate::without_faults`].
    pub fn estimated(&self, cluster: &Cluster, interrupt: &Interrupt) -> Result<f64> {
        let steps = (self.steps / PART).next_multiple_of(STEPS);
        let part = Plate { steps, ..*self };
        let seconds = part.without_faults(cluster, CALIBRATED, interrupt)?;
        Ok(seconds * self.steps as f64 / steps as f64)
    }

    /// The fingerprint, computed in one process.
    ///
    /// # Errors
    /// When the program is interrupted.
    pub fn in_one_process(&self, bar: &ProgressBar, interrupt: &Interrupt) -> Result<String> {
        bar.set_length(self.steps);
        let threads = thread::available_parallelism()?.get();
        let print = whole(self.size, self.steps, threads, |done| {
            bar.set_position(done);
            !interrupt.is_set()
        });
        Ok(format!("{:016x}", print.context("interrupted")?))
    }
}

/// Events of a run with faults. Times in seconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Happened {
    /// From the start to the result.
    pub total_s: f64,
    /// The checkpoints that were made: the freeze time and the duration of each.
    pub checkpoints: Vec<(f64, f64)>,
    /// The reasons why other checkpoints were not made.
    pub no_checkpoints: Vec<String>,
    /// Number of checkpoints in the store at the end.
    pub stored: usize,
    /// The damage that was found in checkpoints.
    pub damaged: Vec<String>,
    /// The losses of hosts.
    pub losses: Vec<Loss>,
    /// The recoveries of the application.
    pub recoveries: Vec<Recovery>,
    /// The fingerprint of the plate that heat reports.
    pub fingerprint: String,
}

/// A recovery of the application from a checkpoint.
#[derive(Debug, Clone, Serialize)]
pub struct Recovery {
    /// The host whose loss caused it.
    pub host: String,
    /// Time from the loss until all tasks ran again, as far as it was seen.
    pub outage_s: f64,
    /// Time from the moment at which the loss was noticed.
    pub restart_s: f64,
    /// The work since the checkpoint, which is repeated. Seconds.
    pub work_s: f64,
}

/// The conditions under which a run with faults is watched.
pub struct Watch<'a> {
    /// The interrupt that ends the run.
    pub interrupt: &'a Interrupt,
    /// The progress bar of the run.
    pub bar: &'a ProgressBar,
    /// Bound on the time of the run.
    pub patience: Duration,
}

/// Starts heat on the machine without a console, and has checkpoints made of it. The faults begin
/// with the first checkpoint. Waits for the result, and until all hosts have returned.
///
/// # Errors
/// When the run fails or takes too long, or a host does not return.
pub fn with_faults<'a>(
    plate: &Plate,
    every: Duration,
    cluster: &mut Cluster,
    faults: impl FnOnce() -> Faults<'a>,
    watch: &Watch<'_>,
) -> Result<Happened> {
    let words = plate.words();
    let mut spawn = vec!["spawn"];
    spawn.extend(words.iter().map(String::as_str));
    let mut logs = Logs::new(cluster.logs());
    logs.read()?;
    let begin = Instant::now();
    let answer = cluster.ask(&spawn, watch.interrupt)?;
    let tid = answer["started"][0].as_str().context("a task")?.to_owned();
    let mut happened = Happened::default();
    let first = first_checkpoint(plate, cluster, &tid, watch.interrupt)?;
    happened.checkpoints.push(first);
    let every = format!("{}ms", every.as_millis());
    let policy = ["checkpoint", "--every", &every, "--recover", "host", &tid];
    cluster.ask(&policy, watch.interrupt)?;
    let mut faults = faults();
    let (mut counted, mut seen) = (Instant::now(), Instant::now());
    while happened.fingerprint.is_empty() {
        ensure!(!watch.interrupt.is_set(), "interrupted");
        let took = begin.elapsed();
        ensure!(took < watch.patience, "no result after {took:.0?}");
        cluster.look_after()?;
        faults.turn(cluster)?;
        for news in logs.read()? {
            happened.learn(news, &mut faults, plate)?;
        }
        if counted.elapsed() > COUNT {
            counted = Instant::now();
            let tasks = cluster.ask(&["ps"], watch.interrupt)?;
            if tasks["tasks"].as_array().is_some_and(|it| !it.is_empty()) {
                seen = counted;
            }
            ensure!(seen.elapsed() < EMPTY, "it has ended without a result");
        }
        happened.total_s = begin.elapsed().as_secs_f64();
        watch.bar.set_position(took.as_millis() as u64);
        watch.bar.set_message(happened.shown(&faults));
        thread::park_timeout(LOOK);
    }
    faults.end();
    let ended = Instant::now();
    while faults.away() > 0 {
        ensure!(!watch.interrupt.is_set(), "interrupted");
        ensure!(ended.elapsed() < WHOLE, "a host does not come back");
        cluster.look_after()?;
        faults.turn(cluster)?;
        thread::park_timeout(LOOK);
    }
    happened.losses = faults.losses().to_vec();
    let store = cluster.ask(&["checkpoints", "--verify"], watch.interrupt)?;
    let stored = store["checkpoints"].as_array().context("checkpoints")?;
    happened.stored = stored.len();
    let damaged = stored.iter().filter_map(|row| row["damaged"].as_str());
    happened.damaged = damaged.map(str::to_owned).collect();
    Ok(happened)
}

/// Makes the first checkpoint: before it, a recovery is impossible. Returns its freeze time and its
/// duration.
fn first_checkpoint(
    plate: &Plate,
    cluster: &Cluster,
    tid: &str,
    interrupt: &Interrupt,
) -> Result<(f64, f64)> {
    let begin = Instant::now();
    loop {
        let rows = cluster.ask(&["ps"], interrupt)?;
        let count = rows["tasks"].as_array().map_or(0, Vec::len);
        // All tasks exist, but some may not have enrolled, so that the checkpoint fails.
        if count > plate.tasks as usize {
            match cluster.ask(&["checkpoint", tid], interrupt) {
                Ok(made) => {
                    let seconds = |key: &str| made[key].as_f64().map(|micros| micros / 1e6);
                    let times = seconds("freeze_us").zip(seconds("total_us"));
                    return times.context("the times of a checkpoint");
                }
                Err(error) if begin.elapsed() > WHOLE => return Err(error),
                Err(_) => {}
            }
        }
        ensure!(begin.elapsed() < WHOLE, "the workers do not start");
        thread::park_timeout(LOOK);
    }
}

impl Happened {
    fn learn(&mut self, news: News, faults: &mut Faults<'_>, plate: &Plate) -> Result<()> {
        match news {
            News::Checkpoint { freeze, total } => {
                let times = (freeze.as_secs_f64(), total.as_secs_f64());
                self.checkpoints.push(times);
            }
            News::NoCheckpoint(why) => self.no_checkpoints.push(why),
            News::Back { host, after, age } => {
                let outage_s = faults.over(&host);
                let outage_s = outage_s.with_context(|| format!("{host} was not lost"))?;
                // The part of the checkpoint's age that passed after the loss.
                let unnoticed_s = outage_s - after.as_secs_f64();
                self.recoveries.push(Recovery {
                    host,
                    outage_s,
                    restart_s: after.as_secs_f64(),
                    work_s: (age.as_secs_f64() - unnoticed_s).max(0.0),
                });
            }
            News::Result(report) => {
                ensure!(
                    report["steps"] == plate.steps,
                    "heat has stopped early: {report}"
                );
                let print = report["fingerprint"].as_str();
                self.fingerprint = print.context("a fingerprint")?.to_owned();
            }
            News::Failed(why) => bail!("the application has failed: {why}"),
        }
        Ok(())
    }

    fn shown(&self, faults: &Faults<'_>) -> String {
        format!(
            "{} hosts lost, {} away; {} times back, {} checkpoints",
            faults.losses().len(),
            faults.away(),
            self.recoveries.len(),
            self.checkpoints.len(),
        )
    }
}
