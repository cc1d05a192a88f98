//! Measures the machine beside the limits of this computer, in one run.
//!
//! Each row compares three ways between two processes: *ours*, two tasks that use vmlib; a *relay*,
//! the same hops with bare processes that forward bytes with epoll in place of the daemons; and
//! *raw*, one socket from end to end. The three take turns within a row (ours, relay, raw, ours,
//! ...), so that what else the computer does meets all of them, and each figure is the median of
//! its turns. Nothing is pinned to a processor, neither ours nor the others, but in the rows of
//! [`others`].
//!
//! A move is compared with its bytes alone ([`sealed`]); a checkpoint and a restart with files of as
//! many bytes ([`disk`](saved::disk)), and stretches of a run with checkpoints with those without
//! ([`policies`](saved::policies)).
//!
//! | module | is |
//! |---|---|
//! | [`plans`] | which rows there are, and their goals |
//! | [`rows`] | what was measured, and how it is shown |
//! | [`measure`] | the program that runs the rows, as the master of an application |
//! | [`ours`] | the machine's side: partners that are tasks |
//! | [`bare`] | the other side: partners that are bare processes |
//! | [`relay`] | the process between those |
//! | [`sealed`] | memory that goes to another process, encrypted |
//! | [`others`] | what moves cost those that have no part in them |
//! | [`saved`] | checkpoints, restarts and recovery, of machines of their own |
//!
//! The program that a person starts builds what is needed, starts a machine of four daemons on this
//! computer and runs itself in it. The rows of [`saved`] it measures itself, as a person at a console
//! would: a task that saves its own application could not look on. Its exit status is 1 when a row
//! misses its goal.

mod bare;
mod measure;
mod others;
mod ours;
mod plans;
mod relay;
mod rows;
mod saved;
mod sealed;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use plans::{Plan, What};
use rows::{Figures, Row};
use std::{fs, path::PathBuf, process::ExitCode};
use vm_examples::cluster::{Cluster, Interrupt, Programs};

/// The hosts of the machine.
const NAMES: [&str; 4] = ["nodeA", "nodeB", "nodeC", "nodeD"];

/// Measure the machine beside the limits of this computer
#[derive(Debug, Parser)]
#[command(name = "vmbench", version)]
struct Arguments {
    /// Print one line of JSON instead of a table
    #[arg(long, global = true)]
    json: bool,
    /// Turns of each way in a row; more are steadier
    #[arg(long, global = true, default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
    /// Only rows whose name contains this; those of heat, which take minutes, only so
    #[arg(long, global = true, value_name = "TEXT", default_value = "")]
    only: String,
    /// The processes of the daemons, for the rows that pin them.
    #[arg(long, global = true, hide = true)]
    daemons: Vec<u32>,
    /// Where the master is to write its rows.
    #[arg(long, global = true, hide = true)]
    out: Option<PathBuf>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What a process of the benchmark is. A person needs none of these.
#[derive(Debug, Clone, Subcommand)]
enum Role {
    /// Runs the rows, as the master of an application.
    #[command(hide = true)]
    Measure,
    /// A task that answers.
    #[command(hide = true)]
    Partner,
    /// A task that says that it is there, and ends.
    #[command(hide = true)]
    Greeter,
    /// A task that rewrites its memory, and is moved.
    #[command(hide = true)]
    Churner {
        /// Of its memory.
        bytes: usize,
        /// Of it, in each second.
        percent: u64,
        /// It tells when it has been brought back.
        #[arg(long)]
        tells: bool,
    },
    /// The master of tasks that rewrite their memory, and are saved.
    #[command(hide = true)]
    Holders {
        /// Of each.
        bytes: usize,
        /// How many.
        count: u32,
    },
    /// A task that exchanges small messages with another, and measures.
    #[command(hide = true)]
    Pinger,
    /// The other.
    #[command(hide = true)]
    Ponger,
    /// A bare process that fills its memory from its standard input.
    #[command(hide = true)]
    BareFill {
        /// Of its memory.
        bytes: usize,
    },
    /// A bare process that uses memory, and ends.
    #[command(hide = true)]
    BareMemory {
        /// So much.
        bytes: usize,
    },
    /// A bare process that reads files into its memory, and says how long it took.
    #[command(hide = true)]
    BareRead {
        /// Which.
        files: Vec<PathBuf>,
    },
    /// A bare process that answers on its standard input, a socket.
    #[command(hide = true)]
    BarePartner,
    /// A bare process that says that it is there, and ends.
    #[command(hide = true)]
    BareGreeter,
    /// A bare process that forwards between its standard input and output, both sockets.
    #[command(hide = true)]
    Relay,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    match &arguments.role {
        None => return start(&arguments),
        Some(Role::Measure) => measure::run(&arguments)?,
        Some(Role::Partner) => ours::partner()?,
        Some(Role::Greeter) => ours::greeter()?,
        Some(Role::Churner {
            bytes,
            percent,
            tells,
        }) => ours::churner(*bytes, *percent, *tells)?,
        Some(Role::Holders { bytes, count }) => saved::holders::master(*bytes, *count)?,
        Some(Role::Pinger) => others::pinger()?,
        Some(Role::Ponger) => others::ponger()?,
        Some(Role::BareFill { bytes }) => sealed::fill(*bytes)?,
        Some(Role::BareMemory { bytes }) => sealed::fill_memory(*bytes),
        Some(Role::BareRead { files }) => saved::disk::read_here(files)?,
        Some(Role::BarePartner) => bare::partner()?,
        Some(Role::BareGreeter) => bare::greet()?,
        Some(Role::Relay) => relay::run()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures, and shows it.
fn start(arguments: &Arguments) -> Result<ExitCode> {
    let interrupt = Interrupt::catch()?;
    let plans = plans::chosen(&arguments.only)?;
    let programs = Programs::build()?;
    let (inside, outside): (Vec<Plan>, Vec<Plan>) = plans.into_iter().partition(Plan::is_inside);
    let mut rows = Vec::new();
    if !inside.is_empty() {
        match measure_inside(arguments, &inside, &programs, &interrupt)? {
            Ok(measured) => rows.extend(measured),
            Err(code) => return Ok(code),
        }
    }
    rows.extend(measure_outside(arguments, &outside, &programs, &interrupt)?);
    if arguments.json {
        println!("{}", serde_json::to_string(&rows)?);
    } else {
        println!("{}", rows::show(&rows));
    }
    let all_good = rows.iter().all(|row| row.ok);
    Ok(if all_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Starts a machine and runs this program in it; the exit code, if that fails.
fn measure_inside(
    arguments: &Arguments,
    plans: &[Plan],
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Result<Vec<Row>, ExitCode>> {
    let mut cluster = Cluster::start(programs, &NAMES, interrupt)?;
    let out = cluster.folder().join("rows");
    let mut run = cluster.console();
    run.args(["run", "vmbench", "measure", "--only", &arguments.only]);
    run.args(["--turns", &arguments.turns.to_string()]);
    for daemon in cluster.daemons() {
        run.args(["--daemons", &daemon.to_string()]);
    }
    run.arg("--out").arg(&out);
    let code = cluster.run(run, interrupt)?;
    if code != ExitCode::SUCCESS {
        eprint!("{}", cluster.last_words());
        cluster.look_after()?;
        return Ok(Err(code));
    }
    let figures: Vec<Figures> = serde_json::from_str(&fs::read_to_string(out)?)?;
    cluster.halt()?;
    let rows = plans.iter().zip(figures);
    Ok(Ok(rows.map(|(plan, figures)| figures.row(plan)).collect()))
}

/// Measures what needs machines of its own.
fn measure_outside(
    arguments: &Arguments,
    plans: &[Plan],
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Vec<Row>> {
    let bar = measure::bar(plans.len())?;
    let mut bench = saved::Bench::new(programs, interrupt, arguments.turns);
    let mut rows = Vec::new();
    for plan in plans {
        bar.set_message(plan.name.clone());
        let What::Saved(saved) = plan.what else {
            bail!("{} is measured by a task", plan.name);
        };
        let row = bench.row(plan, saved, plans);
        rows.push(row.with_context(|| plan.name.clone())?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}
