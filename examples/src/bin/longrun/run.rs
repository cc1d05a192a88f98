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

/// The pace at which the machine is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long no task may be there before the application counts as ended.
const EMPTY: Duration = Duration::from_secs(60);
/// The pace at which its tasks are counted. Each time a console is started for it.
const COUNT: Duration = Duration::from_secs(5);
/// How long the machine may take to be whole again after the last loss.
const WHOLE: Duration = Duration::from_secs(90);
/// Steps after which the workers and their master look at each other.
const STEPS: u64 = 100;
/// The first one of this many parts of a run tells how long the whole takes.
const PART: u64 = 5;
/// Steps of a first run, for nothing but to know how long they take.
const TRIED: u64 = 10 * STEPS;
/// How long these may take, and the first part of the run.
const CALIBRATED: Duration = Duration::from_secs(1800);
/// Cells in each direction of the plate of a short run.
pub const SIZE: usize = 512;

/// The plate, and who computes it.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Plate {
    /// Cells in each direction.
    pub size: usize,
    /// Steps that are computed.
    pub steps: u64,
    /// The workers; the master comes on top.
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

    /// Seconds that a machine takes for it without faults and checkpoints.
    ///
    /// # Errors
    /// When it does not end, or stops before the last step.
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

    /// A plate with as many steps as take so long on a machine, which still changes in the last one:
    /// a long run computes a larger one.
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

    /// A plate of so many cells in each direction, with as many steps as take so long on a machine.
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
        // The first run warms up; the second one takes long enough to be believed.
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

    /// After more steps than it has cells the plate may not change any more, and heat stops: it was
    /// seen to after 1.8 times as many.
    pub fn steps_max(&self) -> u64 {
        (self.size * self.size) as u64
    }

    /// Seconds that it takes without faults, by those of its first part.
    ///
    /// # Errors
    /// As [`Plate::without_faults`].
    pub fn estimated(&self, cluster: &Cluster, interrupt: &Interrupt) -> Result<f64> {
        let steps = (self.steps / PART).next_multiple_of(STEPS);
        let part = Plate { steps, ..*self };
        let seconds = part.without_faults(cluster, CALIBRATED, interrupt)?;
        Ok(seconds * self.steps as f64 / steps as f64)
    }

    /// The fingerprint, as one process computes it.
    ///
    /// # Errors
    /// When it is interrupted.
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
    /// The checkpoints that were made: how long tasks stood still, and how long each took.
    pub checkpoints: Vec<(f64, f64)>,
    /// Why others were not.
    pub no_checkpoints: Vec<String>,
    /// So many were in the store at the end.
    pub stored: usize,
    /// The damage that was found in checkpoints.
    pub damaged: Vec<String>,
    /// The losses of hosts.
    pub losses: Vec<Loss>,
    /// How often the application went back.
    pub recoveries: Vec<Recovery>,
    /// The fingerprint of the plate that heat reports.
    pub fingerprint: String,
}

/// The application went back to a checkpoint.
#[derive(Debug, Clone, Serialize)]
pub struct Recovery {
    /// Because of that host.
    pub host: String,
    /// From the loss until all tasks ran again, as far as it was seen.
    pub outage_s: f64,
    /// From the moment in which the loss was noticed.
    pub restart_s: f64,
    /// The work since the checkpoint, which is repeated. Seconds.
    pub work_s: f64,
}

/// How a run with faults is watched.
pub struct Watch<'a> {
    /// The interrupt that ends the run.
    pub interrupt: &'a Interrupt,
    /// The progress bar of the run.
    pub bar: &'a ProgressBar,
    /// How long it may take.
    pub patience: Duration,
}

/// Starts heat on the machine without a console and has checkpoints made of it; with the first one the
/// faults begin. Waits for its result, and until all hosts are back.
///
/// # Errors
/// When it fails, or takes too long, or a host does not come back.
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

/// Before it there is nothing to go back to. How long the tasks stood still, and how long it took.
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
        // All are there, but some may not be as far as to be saved.
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
                // Of the checkpoint's age, this part passed after the loss.
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
