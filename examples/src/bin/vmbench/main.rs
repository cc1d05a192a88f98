//! Measures the machine and the limits of this computer, in one run.
//!
//! Each row compares three ways between two processes: *ours*, two tasks that use vmlib; a *relay*,
//! the same hops with bare processes that forward bytes with epoll in the place of the daemons; and
//! *raw*, one socket from end to end. The three ways take turns within a row (ours, relay, raw,
//! ours, ...), so that other work of the computer affects all of them, and each figure is the
//! median of its turns. No process is pinned to a processor, except in the rows of [`others`].
//!
//! A move is compared with the transfer of its bytes alone ([`sealed`]); a checkpoint and a restart
//! with files of the same size ([`disk`](saved::disk)); and stretches of a run with checkpoints
//! with stretches without ([`policies`](saved::policies)). Messages and groups are also compared with
//! other message-passing systems, if there are some on this computer ([`peers`]).
//!
//! | module | is |
//! |---|---|
//! | [`plans`] | which rows there are, and their goals |
//! | [`rows`] | what was measured, and how it is shown |
//! | [`measure`] | the program that runs the rows, as the master of an application |
//! | `arguments` | the words of the command line |
//! | `tags` | the tags of messages to and from partners |
//! | [`ours`] | the machine's side: partners that are tasks |
//! | [`bare`] | the other side: partners that are bare processes |
//! | [`relay`] | the process between those |
//! | [`sealed`] | memory that goes to another process, encrypted |
//! | [`waiting`] | processor time of tasks that wait, and memory that tasks share |
//! | [`others`] | what moves cost those that have no part in them |
//! | [`saved`] | checkpoints, restarts and recovery, of machines of their own |
//! | [`peers`] | the same works with vmlib and with installations of MPI |
//!
//! The program that a person starts builds what is needed, starts a machine of four daemons on this
//! computer and runs itself in it. It measures the rows of [`saved`] itself, from a console, as a
//! person would: a task that is saved with its application could not measure that. The exit status
//! is 1 if a row misses its goal.

mod arguments;
mod bare;
mod measure;
mod others;
mod ours;
mod peers;
mod plans;
mod relay;
mod rows;
mod saved;
mod sealed;
mod tags;
mod waiting;

use anyhow::{Context, Result, bail, ensure};
use arguments::{Arguments, Role};
use clap::Parser;
use peers::{
    Choice,
    measured::{self, Measured},
};
use plans::{Plan, What};
use rows::{Figures, Row};
use std::{fs, process::ExitCode};
use vm_examples::cluster::{Cluster, Interrupt, Programs};

/// The hosts of the machine.
const NAMES: [&str; 4] = ["nodeA", "nodeB", "nodeC", "nodeD"];

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    match &arguments.role {
        None => return start(&arguments),
        Some(Role::Measure { plain }) => measure::run(&arguments, *plain)?,
        Some(Role::Partner) => ours::partner()?,
        Some(Role::Greeter) => ours::greeter()?,
        Some(Role::Churner {
            bytes,
            percent,
            tells,
        }) => ours::churner(*bytes, *percent, *tells)?,
        Some(Role::Holders { bytes, count }) => saved::holders::master(*bytes, *count)?,
        Some(Role::Waiter { reach, goes_on }) => waiting::waiter(*reach, *goes_on)?,
        Some(Role::Pinger) => others::pinger()?,
        Some(Role::Ponger) => others::ponger()?,
        Some(Role::Work {
            kind,
            bytes,
            count,
            tasks,
        }) => peers::tasks::master(*kind, *bytes, *count, *tasks)?,
        Some(Role::Member { kind, bytes, count }) => peers::tasks::member(*kind, *bytes, *count)?,
        Some(Role::BareFill { bytes }) => sealed::fill(*bytes)?,
        Some(Role::BareMemory { bytes }) => sealed::fill_memory(*bytes),
        Some(Role::BareRead { files }) => saved::disk::read_here(files)?,
        Some(Role::BarePartner) => bare::partner()?,
        Some(Role::BareGreeter) => bare::greet()?,
        Some(Role::Relay) => relay::run()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures the rows, and shows them.
fn start(arguments: &Arguments) -> Result<ExitCode> {
    let interrupt = Interrupt::catch()?;
    let (plans, choice) = (
        plans::chosen(&arguments.only),
        Choice::find(arguments, &interrupt)?,
    );
    if choice.lacks_peers {
        eprintln!("{}", peers::HOW_TO_GET);
    }
    ensure!(
        !plans.is_empty() || !choice.is_empty() || choice.lacks_peers,
        "--only {}: no row has such a name",
        arguments.only
    );
    if plans.is_empty() && choice.is_empty() {
        return tell(arguments, Vec::new(), Vec::new());
    }
    let programs = Programs::build()?;
    let (inside, outside): (Vec<Plan>, Vec<Plan>) = plans.into_iter().partition(Plan::is_inside);
    let mut rows = Vec::new();
    let (plain, sealed): (Vec<Plan>, Vec<Plan>) = inside.into_iter().partition(Plan::is_plain);
    for inside in [sealed, plain] {
        if inside.is_empty() {
            continue;
        }
        match measure_inside(arguments, &inside, &programs, &interrupt)? {
            Ok(measured) => rows.extend(measured),
            Err(code) => return Ok(code),
        }
    }
    rows.extend(measure_outside(arguments, &outside, &programs, &interrupt)?);
    let measured = peers::measure(&choice, &programs, arguments.turns, &interrupt)?;
    let beside = Vec::from_iter(measured.iter().flat_map(Measured::rows));
    if let Some(file) = &arguments.plot {
        let plot = measured::plot(&measured)?;
        fs::write(file, plot).with_context(|| format!("writing {}", file.display()))?;
    }
    tell(arguments, rows, beside)
}

/// Shows the rows, and those beside peers. Returns the exit code.
fn tell(arguments: &Arguments, mut rows: Vec<Row>, beside: Vec<Row>) -> Result<ExitCode> {
    if !arguments.json {
        if !rows.is_empty() {
            println!("{}", rows::show(&rows));
        }
        if !beside.is_empty() {
            println!("{}", rows::show_peers(&beside));
        }
    }
    rows.extend(beside);
    if arguments.json {
        println!("{}", serde_json::to_string(&rows)?);
    }
    Ok(match rows.iter().all(|row| row.ok) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Starts a machine and runs this program in it, for rows that are all of a machine with or without
/// encrypted links. Returns the exit code if that fails.
fn measure_inside(
    arguments: &Arguments,
    plans: &[Plan],
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Result<Vec<Row>, ExitCode>> {
    let is_plain = plans.iter().any(Plan::is_plain);
    let options: &[&str] = if is_plain {
        &["--unencrypted-links"]
    } else {
        &[]
    };
    let mut cluster = Cluster::start_with(programs, &NAMES, options, interrupt)?;
    let out = cluster.folder().join("rows");
    let mut run = cluster.console();
    run.args(["run", "vmbench", "measure", "--only", &arguments.only]);
    if is_plain {
        run.arg("--plain");
    }
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

/// Measures the rows that need machines of their own.
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
