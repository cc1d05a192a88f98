//! What checkpoints cost a run: the example heat with and without them, in turn.

use super::Bench;
use crate::{rows::median, sealed};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use vm_examples::cluster::{Cluster, Watched};

/// Cells of the plate in each direction: two plates of 8 bytes each are a GiB.
const SIZE: usize = 8192;
const BYTES: usize = 2 * 8 * SIZE * SIZE;
/// How long a run without checkpoints is to take, and of how many steps the time of one is taken.
const LENGTH: Duration = Duration::from_secs(45);
const TRIED: u64 = 100;
/// Turns at most: each is a run of that length for every way.
const TURNS: u32 = 3;
/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// The seconds after which a checkpoint is made again, and whether tasks stand while it is written.
pub type Way = (u64, bool);
/// No checkpoint is made.
pub const NEVER: Way = (0, false);

/// Medians in microseconds.
pub type Times = BTreeMap<Way, f64>;

/// Runs of all these ways take turns.
pub fn measure(bench: &Bench, ways: &[Way], tasks: usize) -> Result<Times> {
    let cluster = bench.cluster()?;
    // The first run warms up, too.
    let tried = run(bench, &cluster, NEVER, tasks, TRIED)?;
    let steps = (LENGTH.as_secs_f64() * 1e6 / tried * TRIED as f64) as u64;
    // Whole looks at what still changes.
    let steps = steps.next_multiple_of(TRIED);
    let mut times: BTreeMap<Way, Vec<f64>> = BTreeMap::new();
    for _ in 0..bench.turns.min(TURNS) {
        for way in [NEVER].iter().chain(ways) {
            let time = run(bench, &cluster, *way, tasks, steps)?;
            times.entry(*way).or_default().push(time);
        }
    }
    cluster.halt()?;
    let medians = times.into_iter();
    Ok(medians.map(|(way, times)| (way, median(times))).collect())
}

/// Microseconds of one run.
fn run(bench: &Bench, cluster: &Cluster, way: Way, tasks: usize, steps: u64) -> Result<f64> {
    let (every, blocking) = way;
    sealed::find_memory(2 * BYTES)?;
    let mut run = cluster.console();
    run.args(["run", "--no-terminal"]);
    if way != NEVER {
        run.args(["--checkpoint-every", &format!("{every}s")]);
    }
    if blocking {
        run.arg("--blocking");
    }
    run.args(["heat", "--json", "--until", "0"]);
    run.args(["--size", &SIZE.to_string(), "--steps", &steps.to_string()]);
    run.args(["--workers", &tasks.to_string()]);
    let mut console = Watched::start(run, bench.interrupt)?;
    let (_, line) = console.line("\"seconds\"", PATIENCE)?;
    let (status, said) = console.end(PATIENCE)?;
    ensure!(status.success(), "heat: {said}");
    let report: Value = serde_json::from_str(&line)?;
    ensure!(report["steps"] == steps, "heat has stopped early: {line}");
    let seconds = report["seconds"].as_f64().context("heat's seconds")?;
    let made = remove_checkpoints(bench, cluster)?;
    // A run that has made none, or one though it was not to, would show nothing.
    ensure!(
        (made > 0) == (way != NEVER && (every as f64) < seconds),
        "{made} checkpoints of a run of {seconds} s are there, one every {every} s"
    );
    Ok(1e6 * seconds)
}

/// Empties the store. How many were in it.
fn remove_checkpoints(bench: &Bench, cluster: &Cluster) -> Result<usize> {
    let answer = cluster.ask(&["checkpoints"], bench.interrupt)?;
    let made = answer["checkpoints"].as_array().context("checkpoints")?;
    if let Some(app) = made.first().and_then(|one| one["application"].as_str()) {
        cluster.ask(&["checkpoints", "--remove", app], bench.interrupt)?;
    }
    Ok(made.len())
}
