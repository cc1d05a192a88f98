//! Lets heat spread over a plate, on all hosts of the machine, and paints it.
//!
//! Run it with `vm run heat`. Each worker computes some rows of the plate ([`vm_examples::heat`]).
//! In every step it sends its first and its last row to its neighbours, and receives theirs. After
//! a number of steps all workers report their largest change to the master, which tells them to
//! continue or to stop.

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
use vmlib::{Task, Tid};

/// To a worker: its order.
const ORDER: i32 = 1;
/// From the neighbour above: its last row.
const ABOVE: i32 = 2;
/// From the neighbour below: its first row.
const BELOW: i32 = 3;
/// To the master: the largest change of a cell.
const CHANGE: i32 = 4;
/// To the workers: whether to continue.
const GO_ON: i32 = 5;
/// To the master: the fingerprint of the worker's rows.
const PRINT: i32 = 6;
/// To the master: its rows of the picture.
const PICTURE: i32 = 7;

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
        look: arguments.look,
        picture: arguments.out.is_some(),
        workers: workers.clone(),
    };
    let begin = Instant::now();
    vm.multicast(&workers, ORDER, &order)?;
    let (steps, change) = follow(vm, arguments, &workers)?;
    let mut print = 0u64;
    for _ in &workers {
        let part: u64 = workers::next(vm, PRINT)?.value()?;
        print = print.wrapping_add(part);
    }
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

/// Tells the workers when to stop. Returns the number of steps, and the change in the last one.
fn follow(vm: &Task, arguments: &Arguments, workers: &[Tid]) -> Result<(u64, f64)> {
    let style = ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] step {pos}, {msg}")?;
    let bar = ProgressBar::new(arguments.steps).with_style(style.progress_chars("=> "));
    let (mut steps, mut change) = (0, 0.0f64);
    while steps < arguments.steps {
        steps = (steps + arguments.look).min(arguments.steps);
        change = 0.0;
        for _ in workers {
            let part: f64 = workers::next(vm, CHANGE)?.value()?;
            change = change.max(part);
        }
        bar.set_position(steps);
        bar.set_message(format!("change {change:.1e}"));
        if arguments.log {
            bar.suspend(|| println!("step {steps}: change {change:.1e}"));
        }
        let go_on = steps < arguments.steps && change > arguments.until;
        vm.multicast(workers, GO_ON, &go_on)?;
        if !go_on {
            break;
        }
    }
    bar.finish_and_clear();
    Ok((steps, change))
}

fn worker(vm: &Task, master: Tid) -> Result<()> {
    let order: Order = vm.recv(master, ORDER)?.value()?;
    let me = vm.index() as usize;
    let rows = workers::share(order.size, order.workers.len(), me);
    let above = me.checked_sub(1).map(|other| order.workers[other]);
    let below = order.workers.get(me + 1).copied();
    let mut strip = Strip::new(order.size, rows);
    for step in 1..=order.steps {
        let [first, last] = strip.edges();
        if let Some(above) = above {
            vm.send_slice(above, BELOW, first)?;
        }
        if let Some(below) = below {
            vm.send_slice(below, ABOVE, last)?;
        }
        let [over, under] = strip.beyond();
        if let Some(above) = above {
            vm.recv(above, ABOVE)?.read_into(over)?;
        }
        if let Some(below) = below {
            vm.recv(below, BELOW)?.read_into(under)?;
        }
        strip.step();
        if step % order.look == 0 || step == order.steps {
            vm.send(master, CHANGE, &strip.change())?;
            let go_on: bool = vm.recv(master, GO_ON)?.value()?;
            if !go_on {
                break;
            }
        }
    }
    vm.send(master, PRINT, &strip.fingerprint())?;
    if order.picture {
        vm.send_bytes(master, PICTURE, strip.picture())?;
    }
    Ok(())
}
