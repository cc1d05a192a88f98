//! `cargo simulate`: runs the worlds of many seeds and reports their coverage and failures.
//!
//! ```text
//! cargo simulate --seeds 10000            # seeds 0 to 9999, on all cores
//! cargo simulate --first 4711 --seeds 1   # one seed
//! cargo simulate --trace 4711             # one seed, every event printed on standard error
//! ```
//!
//! Exit status 0: no rule was broken; 1: a rule was broken in at least one seed.

use clap::Parser;
use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use vm_integration::sim::{
    self, Coverage, Failure, Options, Outcome, Turns, pipe::DirectCounts, ring_memory::RingCounts,
};

/// Simulate whole machines, from seeds, with faults.
#[derive(Parser)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
    /// Run that seed alone and print everything that happens.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "first"])]
    trace: Option<u64>,
    /// Threads; by default one per core.
    #[arg(long)]
    threads: Option<usize>,
}

/// Sums over all seeds.
#[derive(Default)]
struct Total {
    seeds: u64,
    events: u64,
    messages: u64,
    rings: RingCounts,
    directs: DirectCounts,
    tasks: u64,
    ended: u64,
    events_least: Option<u64>,
    faults_least: Option<u64>,
    coverage: Coverage,
    turns: Turns,
    failures: Vec<(u64, Failure)>,
}

impl Total {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        self.messages += outcome.messages;
        self.rings += outcome.rings;
        self.directs += outcome.directs;
        self.tasks += outcome.tasks;
        self.ended += outcome.ended;
        if let Some(failure) = outcome.failure {
            report(seed, &failure);
            self.failures.push((seed, failure));
        } else {
            let least = |so_far: Option<u64>, new| Some(so_far.map_or(new, |old| old.min(new)));
            self.events_least = least(self.events_least, outcome.events);
            self.faults_least = least(self.faults_least, outcome.coverage.total());
        }
        self.coverage.add(&outcome.coverage);
        self.turns.add(&outcome.turns);
    }
}

fn report(seed: u64, failure: &Failure) {
    eprintln!(
        "seed {seed} at {:.6} s: {}\n    repeat it with: cargo simulate --trace {seed}",
        failure.at as f64 / 1e6,
        failure.what
    );
}

fn main() -> ExitCode {
    let args = Args::parse();
    // A panic is reported with its seed; a trace of the seed shows its origin.
    if args.trace.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let options = Options {
        trace: args.trace.is_some(),
        ..Options::default()
    };
    let (first, seeds) = args
        .trace
        .map_or((args.first, args.seeds), |seed| (seed, 1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let start = Instant::now();
    let threads = args.threads.unwrap_or(cores);
    let total = run_all(first, seeds, threads, options);
    let us_per_event =
        start.elapsed().as_secs_f64() * 1e6 * threads as f64 / total.events.max(1) as f64;
    if args.json {
        print_json(&total, start.elapsed(), us_per_event);
    } else {
        print_text(&total, start.elapsed(), us_per_event);
    }
    match total.failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs the seeds on several threads. Each thread takes the next seed that no thread has taken.
fn run_all(first: u64, seeds: u64, threads: usize, options: Options) -> Total {
    let next = AtomicU64::new(0);
    let total = Mutex::new(Total::default());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds {
                        return;
                    }
                    let outcome = sim::run(first + number, options);
                    let Ok(mut total) = total.lock() else {
                        return;
                    };
                    total.add(first + number, outcome);
                    if total.seeds.is_multiple_of(500) {
                        eprintln!(
                            "{} of {seeds} seeds, {} failed, {:.0} s",
                            total.seeds,
                            total.failures.len(),
                            start.elapsed().as_secs_f64()
                        );
                    }
                }
            });
        }
    });
    total.into_inner().unwrap_or_default()
}

/// `us_per_event` is the time of one event on one thread, in microseconds.
fn print_text(total: &Total, elapsed: Duration, us_per_event: f64) {
    println!("{}\n\n{}\n", total.coverage, total.turns);
    println!(
        "{} seeds in {:.1} s: {} events ({} to a seed at least, {:.2} us each), \
         {} faults ({} to a seed at least), {} tasks, {} messages, \
         {} rings with {} sends and {} chunks kept by a freeze, {} given up, \
         {} direct connections with {} sends, {} broken, {} given up, {} interruptions that sent, \
         {} machines ended for want of a majority",
        total.seeds,
        elapsed.as_secs_f64(),
        total.events,
        total.events_least.unwrap_or(0),
        us_per_event,
        total.coverage.total(),
        total.faults_least.unwrap_or(0),
        total.tasks,
        total.messages,
        total.rings.opened,
        total.rings.sends,
        total.rings.kept,
        total.rings.given_up,
        total.directs.opened,
        total.directs.sends,
        total.directs.broken,
        total.directs.given_up,
        total.directs.nudges,
        total.ended,
    );
    match total.failures.len() {
        0 => println!("no rule was broken"),
        failed => println!("{failed} SEEDS BROKE A RULE"),
    }
}

fn print_json(total: &Total, elapsed: Duration, us_per_event: f64) {
    use sim::coverage::{Fault, Phase, Turn};
    let coverage: serde_json::Map<String, serde_json::Value> = Fault::ALL
        .iter()
        .map(|&fault| {
            let phases = Phase::ALL.iter().map(|&phase| {
                (
                    phase.name().to_owned(),
                    total.coverage.cell(phase, fault).into(),
                )
            });
            let row = phases.chain([("all".to_owned(), total.coverage.count(fault).into())]);
            (
                fault.name().to_owned(),
                serde_json::Value::Object(row.collect()),
            )
        })
        .collect();
    let moves: serde_json::Map<String, serde_json::Value> = Turn::ALL
        .iter()
        .map(|&turn| (turn.name().to_owned(), total.turns.count(turn).into()))
        .collect();
    let failures: Vec<serde_json::Value> = total
        .failures
        .iter()
        .map(|(seed, failure)| {
            serde_json::json!({ "seed": seed, "at_us": failure.at, "what": failure.what })
        })
        .collect();
    let result = serde_json::json!({
        "seeds": total.seeds,
        "seconds": elapsed.as_secs_f64(),
        "events": total.events,
        "events_least": total.events_least,
        "us_per_event": us_per_event,
        "faults": total.coverage.total(),
        "faults_least": total.faults_least,
        "tasks": total.tasks,
        "messages": total.messages,
        "rings": total.rings.opened,
        "ring_sends": total.rings.sends,
        "ring_chunks_kept": total.rings.kept,
        "rings_given_up": total.rings.given_up,
        "directs": total.directs.opened,
        "direct_sends": total.directs.sends,
        "directs_broken": total.directs.broken,
        "directs_given_up": total.directs.given_up,
        "direct_interruptions": total.directs.nudges,
        "machines_ended": total.ended,
        "coverage": coverage,
        "moves": moves,
        "failures": failures,
    });
    println!("{result:#}");
}
