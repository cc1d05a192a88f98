//! Multiplies two matrices on all hosts of the machine.
//!
//! Run it with `vm run matmul`. Each worker has some rows of the left factor and of the product
//! ([`vm_examples::matrix`]). The rows of the right factor are passed around a ring: each worker
//! uses the rows that it has, sends them on, and receives the next ones. At the end each worker
//! verifies its rows of the product.

use anyhow::{Result, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Instant;
use vm_examples::{
    matrix::{Band, vector},
    workers,
};
use vmlib::{Task, Tid};

/// To a worker: its order.
const ORDER: i32 = 1;
/// Around the ring: rows of the right factor.
const ROWS: i32 = 2;
/// Around the ring: the product of these rows and the vector.
const TIMES: i32 = 3;
/// To the master: one turn is done.
const TURN: i32 = 4;
/// To the master: the sum of the worker's verified rows of the product.
const SUM: i32 = 5;

/// Multiply two matrices on all hosts of the machine
#[derive(Debug, Parser)]
#[command(name = "matmul", version)]
struct Arguments {
    /// Rows and columns
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    size: u32,
    /// How many times the product is computed
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// Print a line after each round
    #[arg(long)]
    log: bool,
    #[command(flatten)]
    count: workers::Count,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The order of a worker.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    size: usize,
    rounds: u64,
    workers: Vec<Tid>,
}

fn main() -> Result<()> {
    workers::run(master, worker)
}

fn master(vm: &Task, arguments: &Arguments) -> Result<()> {
    let size = arguments.size as usize;
    let workers = workers::start(vm, &vm.hosts()?, arguments.count.workers)?;
    let count = workers.len() as u64;
    ensure!(count <= size as u64, "{count} workers have not a row each");
    let order = Order {
        size,
        rounds: arguments.rounds,
        workers: workers.clone(),
    };
    let begin = Instant::now();
    vm.multicast(&workers, ORDER, &order)?;
    let style = ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {percent:>3} %")?;
    let turns = count * count;
    let bar = ProgressBar::new(arguments.rounds * turns);
    let bar = bar.with_style(style.progress_chars("=> "));
    for round in 1..=arguments.rounds {
        for _ in 0..turns {
            workers::next(vm, TURN)?;
            bar.inc(1);
        }
        if arguments.log {
            bar.suspend(|| println!("round {round}"));
        }
    }
    bar.finish_and_clear();
    let mut sum = 0.0;
    for _ in &workers {
        let part: f64 = workers::next(vm, SUM)?.value()?;
        sum += part;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let operations = 2.0 * (size as f64).powi(3) * arguments.rounds as f64;
    let rate = operations / seconds / 1e9;
    if arguments.json {
        let report = json!({
            "size": size, "rounds": arguments.rounds, "workers": count, "sum": sum,
            "seconds": seconds, "gflops": rate, "verified": true,
        });
        println!("{report}");
    } else {
        println!(
            "{size} x {size}, {} rounds: {seconds:.2} s with {count} workers, {rate:.2} GFLOP/s; \
             the elements' sum is {sum}, verified",
            arguments.rounds,
        );
    }
    Ok(())
}

fn worker(vm: &Task, master: Tid) -> Result<()> {
    let order: Order = vm.recv(master, ORDER)?.value()?;
    let (me, count, size) = (vm.index() as usize, order.workers.len(), order.size);
    let rows = |index: usize| workers::share(size, count, index);
    let left = Band::of_factor(0, rows(me), size);
    let mut right = Band::of_factor(1, rows(me), size);
    let vector = vector(size);
    let mut times = right.times(&vector);
    let mut product = Band::zeros(rows(me), size);
    for _ in 0..order.rounds {
        product.cells.fill(0.0);
        // The left factor times the product of the right factor and the vector.
        let mut expected = vec![0.0; product.rows.len()];
        for turn in 0..count {
            product.add_product(&left, &right);
            for (sum, row) in expected.iter_mut().zip(left.cells.chunks_exact(size)) {
                let factors = &row[right.rows.clone()];
                *sum += factors
                    .iter()
                    .zip(&times)
                    .map(|(one, other)| one * other)
                    .sum::<f64>();
            }
            vm.send(master, TURN, &())?;
            let next = rows((me + turn + 1) % count);
            (right, times) = pass_on(vm, &order.workers, me, next, &right, &times)?;
        }
        let verified = product.times(&vector) == expected;
        ensure!(verified, "the product of worker {me} is wrong");
    }
    vm.send(master, SUM, &product.cells.iter().sum::<f64>())?;
    Ok(())
}

/// Sends rows of the right factor to the worker before this one, and receives those of the next
/// worker. A send may block until the other end receives, so the sends are only started before.
fn pass_on(
    vm: &Task,
    ring: &[Tid],
    me: usize,
    next: std::ops::Range<usize>,
    right: &Band,
    times: &[f64],
) -> Result<(Band, Vec<f64>)> {
    let size = right.width();
    let to = ring[(me + ring.len() - 1) % ring.len()];
    let from = ring[(me + 1) % ring.len()];
    if to == vm.tid() {
        return Ok((right.clone(), times.to_vec()));
    }
    let mut sends = [
        vm.start_send_slice(to, ROWS, &right.cells)?,
        vm.start_send_slice(to, TIMES, times)?,
    ];
    let mut rows = Band::zeros(next, size);
    vm.recv_slice_into(from, ROWS, &mut rows.cells)?;
    let mut vector = vec![0.0; rows.rows.len()];
    vm.recv_slice_into(from, TIMES, &mut vector)?;
    vm.wait_all(&mut sends)?;
    Ok((rows, vector))
}
