//! Lets heat spread over a plate, on all hosts of the machine, and paints it.
//!
//! Run it with `vm run heat`. Each worker computes some rows of the plate ([`vm_examples::heat`]).
//! In every step it starts to send its first and its last row to its neighbours, and to receive theirs.
//! It computes the rows in between while these messages travel, and then its first and last row. After
//! a number of steps the workers find the largest change of all in a group, so that all of them
//! continue or stop. The first member of the group reports it to the master.

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{fs::File, io::BufWriter, num::NonZero, path::PathBuf, thread, time::Instant};
use vm_examples::{
    heat::{Strip, whole, write_picture},
    workers,
};
use vmlib::{Completed, Op, Task, Tid};

/// To a worker: its order.
const ORDER: i32 = 1;
/// From the neighbour above: its last row.
const ABOVE: i32 = 2;
/// From the neighbour below: its first row.
const BELOW: i32 = 3;
/// To the master: the number of steps, and the largest change of a cell in the last one.
const CHANGE: i32 = 4;
/// To the master: the fingerprint of the plate.
const PRINT: i32 = 5;
/// To the master: a worker's rows of the picture.
const PICTURE: i32 = 6;

/// Let heat spread over a plate with three heaters, on all hosts of the machine
#[derive(Debug, Parser)]
#[command(name = "heat", version)]
struct Arguments {
    /// Cells of the plate in each direction
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(8..=32_768))]
    size: u32,
    /// Bound on the number of steps
    #[arg(long, default_value_t = 10_000)]
    steps: u64,
    /// Stop when no cell changes by more than this in a step
    #[arg(long, default_value_t = 1e-7)]
    until: f64,
    /// Steps between two checks of the changes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    look: u64,
    /// Print a line at each check
    #[arg(long)]
    log: bool,
    #[command(flatten)]
    count: workers::Count,
    /// Write a picture of the plate (PNG)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also compute the plate in one process, and compare every bit
    #[arg(long)]
    verify: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The order of a worker.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    size: usize,
    steps: u64,
    until: f64,
    look: u64,
    picture: bool,
    workers: Vec<Tid>,
}

fn main() -> Result<()> {
    workers::run(master, worker)
}

fn master(vm: &Task, arguments: &Arguments) -> Result<()> {
    let size = arguments.size as usize;
    let hosts = vm.hosts()?;
    let workers = workers::start(vm, &hosts, arguments.count.workers)?;
    ensure!(
        workers.len() <= size,
        "{} workers have not a row each",
        workers.len()
    );
    let order = Order {
        size,
        steps: arguments.steps,
        until: arguments.until,
        look: arguments.look,
        picture: arguments.out.is_some(),
        workers: workers.clone(),
    };
    let begin = Instant::now();
    vm.multicast(&workers, ORDER, &order)?;
    let (steps, change) = follow(vm, arguments)?;
    let print: u64 = workers::next(vm, PRINT)?.value()?;
    if let Some(path) = &arguments.out {
        let mut picture = Vec::new();
        for worker in &workers {
            picture.extend_from_slice(vm.recv(*worker, PICTURE)?.bytes());
        }
        let file = File::create(path).with_context(|| format!("making {}", path.display()))?;
        write_picture(BufWriter::new(file), size, &picture)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    if arguments.verify && whole(size, steps, cores(), |_| true) != Some(print) {
        bail!("one process computes another plate");
    }
    if arguments.json {
        let report = json!({
            "size": size, "steps": steps, "change": change, "fingerprint": format!("{print:016x}"),
            "seconds": seconds, "workers": workers.len(), "verified": arguments.verify,
        });
        println!("{report}");
        return Ok(());
    }
    let cells = (size * size) as f64 * steps as f64;
    println!(
        "{size} x {size} cells, {steps} steps, the last one changed a cell by {change:.1e} at most",
    );
    println!(
        "{seconds:.2} s with {} workers, {:.2} Gcells/s; fingerprint {print:016x}{}",
        workers.len(),
        cells / seconds / 1e9,
        if arguments.verify { ", verified" } else { "" },
    );
    Ok(())
}

/// The number of processors of this computer.
fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Shows the progress of the workers. Returns the number of steps, and the change in the last one.
fn follow(vm: &Task, arguments: &Arguments) -> Result<(u64, f64)> {
    let style = ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] step {pos}, {msg}")?;
    let bar = ProgressBar::new(arguments.steps).with_style(style.progress_chars("=> "));
    let (mut steps, mut change) = (0, 0.0);
    while goes_on(steps, change, arguments.steps, arguments.until) {
        (steps, change) = workers::next(vm, CHANGE)?.value()?;
        bar.set_position(steps);
        bar.set_message(format!("change {change:.1e}"));
        if arguments.log {
            bar.suspend(|| println!("step {steps}: change {change:.1e}"));
        }
    }
    bar.finish_and_clear();
    Ok((steps, change))
}

/// Whether there is another step after one with that change.
fn goes_on(step: u64, change: f64, steps: u64, until: f64) -> bool {
    step == 0 && steps > 0 || step < steps && change > until
}

fn worker(vm: &Task, master: Tid) -> Result<()> {
    let order: Order = vm.recv(master, ORDER)?.value()?;
    let me = vm.index() as usize;
    let rows = workers::share(order.size, order.workers.len(), me);
    let above = me.checked_sub(1).map(|other| order.workers[other]);
    let below = order.workers.get(me + 1).copied();
    // Groups are those of the whole machine, on which this program may run more than once.
    let mut group = vm.join(&format!("heat {}", vm.app()))?;
    vm.await_members(&mut group, order.workers.len())?;
    let mut strip = Strip::new(order.size, rows);
    for step in 1..=order.steps {
        let [first, last] = strip.edges();
        let mut requests = Vec::new();
        if let Some(above) = above {
            requests.push(vm.start_recv(above, ABOVE)?);
            requests.push(vm.start_send_slice(above, BELOW, first)?);
        }
        if let Some(below) = below {
            requests.push(vm.start_recv(below, BELOW)?);
            requests.push(vm.start_send_slice(below, ABOVE, last)?);
        }
        strip.step_inside();
        let completed = vm.wait_all(&mut requests)?.into_iter();
        for row in completed.filter_map(Completed::message) {
            let [over, under] = strip.beyond();
            row.read_into(if row.tag() == ABOVE { over } else { under })?;
        }
        strip.step_edges();
        if step % order.look == 0 || step == order.steps {
            let change = vm.allreduce(&group, Op::Max, &[strip.change()])?[0];
            if group.instance() == 0 {
                vm.send(master, CHANGE, &(step, change))?;
            }
            if !goes_on(step, change, order.steps, order.until) {
                break;
            }
        }
    }
    if let Some(print) = vm.reduce(&group, 0, Op::Sum, &[strip.fingerprint()])? {
        vm.send(master, PRINT, &print[0])?;
    }
    if order.picture {
        vm.send_bytes(master, PICTURE, strip.picture())?;
    }
    Ok(())
}
