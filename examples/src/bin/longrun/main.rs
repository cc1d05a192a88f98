//! `cargo longrun`: a computation that takes minutes, on hosts that are lost and return at random.
//!
//! The program builds what it needs and starts a machine of some daemons on this computer, which
//! share a store. The machine computes a plate of the example heat, large enough to take the
//! requested time. The faults begin with the first checkpoint ([`faults`]): any host may be lost,
//! even that of the master and the leader. A console would be lost with its host, so there is none,
//! and the events are read from the daemons' logs ([`news`]). When the result has come and all
//! hosts have returned, the program stops the machine in order and checks that no process is left
//! over. It then computes the plate in one process and compares every bit of the result, and the
//! time with a model ([`report`]).
//!
//! | module | is |
//! |---|---|
//! | [`schedule`] | when which host is lost, from one seed |
//! | [`faults`] | hosts that are lost and come back |
//! | [`news`] | what the daemons' logs say |
//! | [`run`] | heat, with and without faults |
//! | [`report`] | the model, and what is shown |
//!
//! Exit status 0: all is well; 1: the result is wrong, a process is left over, the model is missed, or
//! something failed before.

mod faults;
mod news;
mod report;
mod run;
mod schedule;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use faults::{Faults, NAMES};
use indicatif::{ProgressBar, ProgressStyle};
use report::{Report, Terms};
use run::{Happened, Plate, Watch};
use schedule::Schedule;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use vm_examples::cluster::{Cluster, Interrupt, Programs, family};

/// Bound on the time for which processes may outlive the machine.
const LINGER: Duration = Duration::from_secs(5);
/// Interval between looks at these processes.
const LOOK: Duration = Duration::from_millis(20);

/// Compute for minutes on hosts that are lost and return at random, and compare the result and the
/// time
#[derive(Debug, Parser)]
#[command(name = "longrun", bin_name = "cargo longrun", version)]
struct Arguments {
    /// Length of the computation without faults
    #[arg(long, default_value_t = 5.0, value_name = "MINUTES", value_parser = positive)]
    minutes: f64,
    /// The seed of the faults [default: a random one]
    #[arg(long)]
    seed: Option<u64>,
    /// The mean time from one loss of a host to the next
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = positive)]
    mean: f64,
    /// Least time for which a lost host is away
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = positive)]
    back: f64,
    /// Bound on the number of losses [default: no bound]
    #[arg(long, value_name = "COUNT")]
    losses: Option<u32>,
    /// Number of hosts of the machine. With five or more, two may be away at once, otherwise one
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = hosts)]
    hosts: usize,
    /// Number of workers, in turn over the hosts
    #[arg(long, default_value_t = 16, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    tasks: u32,
    /// Cells of the plate in each direction [default: 512, and more for a long computation]
    #[arg(long, value_parser = clap::value_parser!(u32).range(256..=32_768))]
    size: Option<u32>,
    /// Time from the end of a checkpoint to the next
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = positive)]
    checkpoint_every: f64,
    /// Measure the time without faults by one whole run before, instead of short ones before and
    /// after
    #[arg(long)]
    calibrate: bool,
    /// Do not compare the time with the model, for a computer that does other work
    #[arg(long)]
    untimed: bool,
    /// Copy the daemons' logs to this folder
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|it| *it > 0.0 && *it <= 1e5);
    number.ok_or_else(|| "it is a number above 0".to_owned())
}

fn hosts(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|it| (3..=NAMES.len()).contains(it));
    number.ok_or_else(|| format!("from 3 to {}", NAMES.len()))
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let interrupt = Interrupt::catch()?;
    // Orphans of a killed daemon become children of this program, and are found at the end.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let programs = Programs::build()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let seed = arguments.seed.unwrap_or(now.as_millis() as u64 % 1_000_000);
    eprintln!("seed {seed}: repeat these losses with --seed {seed}");
    let names = &NAMES[..arguments.hosts];
    let mut cluster = Cluster::start(&programs, names, &interrupt)?;
    let result = compute(&arguments, seed, &programs, &mut cluster, &interrupt);
    if let Some(folder) = &arguments.logs {
        keep(cluster.logs(), folder)?;
    }
    let (plate, quiet_s, happened) = result?;
    cluster.halt()?;
    let left_over = left_over()?;
    let bar = bar("in one process")?;
    let expected = plate.in_one_process(&bar, &interrupt)?;
    bar.finish_and_clear();
    let terms = Terms::new(&happened, quiet_s, arguments.checkpoint_every);
    let report = Report {
        seed,
        hosts: arguments.hosts,
        plate,
        quiet_s,
        terms,
        model_s: terms.total_s(),
        ratio: happened.total_s / terms.total_s(),
        timed: !arguments.untimed,
        happened,
        expected,
        left_over,
    };
    match arguments.json {
        true => println!("{}", serde_json::to_string(&report)?),
        false => println!("{}", report.show()),
    }
    Ok(match report.is_well() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The plate, the seconds that it takes without faults, before and after, and the events of the run
/// with faults.
fn compute(
    arguments: &Arguments,
    seed: u64,
    programs: &Programs,
    cluster: &mut Cluster,
    interrupt: &Interrupt,
) -> Result<(Plate, [f64; 2], Happened)> {
    let length = Duration::from_secs_f64(60.0 * arguments.minutes);
    let tasks = arguments.tasks;
    eprintln!("looking how many steps take {length:?}");
    let plate = match arguments.size {
        Some(size) => Plate::of_size(size as usize, length, tasks, cluster, interrupt)?,
        None => Plate::of_length(length, tasks, cluster, interrupt)?,
    };
    ensure!(
        plate.steps <= plate.steps_max(),
        "a plate of {} cells in each direction is at rest before {length:?} have passed: use a larger --size",
        plate.size
    );
    let mut before_s = length.as_secs_f64();
    if arguments.calibrate {
        eprintln!("{} steps without faults", plate.steps);
        before_s = plate.without_faults(cluster, 10 * length, interrupt)?;
    }
    eprintln!(
        "{} steps of {} cells squared with faults",
        plate.steps, plate.size
    );
    let seconds = Duration::from_secs_f64;
    let schedule = Schedule::new(seed, seconds(arguments.mean), arguments.hosts);
    let bar = bar("with faults")?;
    bar.set_length((1e3 * before_s) as u64);
    let watch = Watch {
        interrupt,
        bar: &bar,
        patience: 5 * length + Duration::from_secs(300),
    };
    let faults = || {
        Faults::new(
            programs,
            interrupt,
            schedule,
            arguments.hosts,
            seconds(arguments.back),
            arguments.losses.unwrap_or(u32::MAX),
        )
    };
    let every = seconds(arguments.checkpoint_every);
    let happened = run::with_faults(&plate, every, cluster, faults, &watch)?;
    bar.finish_and_clear();
    let after_s = match arguments.untimed {
        true => before_s,
        false => plate.estimated(cluster, interrupt)?,
    };
    Ok((plate, [before_s, after_s], happened))
}

/// Descendants of this program that are left after the machine was stopped.
fn left_over() -> Result<Vec<String>> {
    let begin = Instant::now();
    loop {
        let mut left = family::of(std::process::id())?;
        left.retain(|pid| !family::has_ended(*pid));
        if left.is_empty() || begin.elapsed() > LINGER {
            let show = |pid: u32| format!("{pid} {}", family::command(pid));
            return Ok(left.into_iter().map(show).collect());
        }
        thread::park_timeout(LOOK);
    }
}

fn bar(what: &'static str) -> Result<ProgressBar> {
    let template = "{elapsed_precise} [{wide_bar}] {prefix} {msg}";
    let style = ProgressStyle::with_template(template)?.progress_chars("=> ");
    Ok(ProgressBar::new(1).with_style(style).with_prefix(what))
}

/// Copies the daemons' logs into `folder`.
fn keep(logs: impl Iterator<Item = PathBuf>, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    for log in logs {
        let name = log.file_name().context("the name of a log")?;
        fs::copy(&log, folder.join(name)).with_context(|| format!("copying {}", log.display()))?;
    }
    Ok(())
}
