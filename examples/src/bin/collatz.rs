//! Looks for the longest Collatz chain that begins below a number, with portable tasks, which can
//! be restarted on hosts of any architecture.
//!
//! Run it with `vm run collatz`. Make a checkpoint with `vm checkpoint`, or stop it with `vm stop
//! --checkpoint` and restart it with `vm restart`, even on other hosts. The master gives out
//! pieces. A worker may be saved before it has received a piece, or within one.

use anyhow::Result;
use clap::Parser;
use serde::{Deserialize, Serialize};
use vm_examples::workers;
use vmlib::{ANY, Spawn, Task, Tid};

const PIECE: i32 = 1;
const RESULT: i32 = 2;
/// Pieces that each worker gets at first, so that no worker waits for the master.
const AHEAD: u32 = 2;
/// Numbers between two safe points: less than a millisecond of work.
const BETWEEN: u64 = 4_096;

/// Find the longest Collatz chain below a number, with portable tasks
#[derive(Debug, Parser)]
#[command(name = "collatz", version)]
struct Arguments {
    /// Chains begin below this number
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(2..1 << 40))]
    below: u64,
    /// Pieces into which the numbers are divided
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pieces: u64,
    /// Number of workers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,
    /// Save the master as an image; only its workers are portable
    #[arg(long)]
    image: bool,
}

/// A chain, by its first number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Chain {
    steps: u32,
    first: u64,
}

impl Chain {
    fn longer(self, other: Chain) -> Chain {
        match (self.steps, other.first) >= (other.steps, self.first) {
            true => self,
            false => other,
        }
    }
}

/// The state of the master at a safe point.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Master {
    workers: Vec<Tid>,
    given: u64,
    done: u64,
    longest: Chain,
}

/// The state of a worker at a safe point.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Worker {
    /// The rest of its piece; none before the first piece.
    piece: Option<(u64, u64)>,
    longest: Chain,
}

fn main() -> Result<()> {
    workers::run(master, worker)
}

fn master(vm: &Task, arguments: &Arguments) -> Result<()> {
    let mut state = match arguments.image {
        true => Master::default(),
        false => vm.portable(Master::default)?.state,
    };
    if state.workers.is_empty() {
        let names = vm.hosts()?.into_iter().map(|host| host.facts.name);
        let program = std::env::current_exe()?.display().to_string();
        let workers = Spawn::new(program).count(arguments.workers);
        state.workers = vm.spawn(&workers.on_each(names))?;
        for worker in state.workers.clone() {
            for _ in 0..AHEAD {
                give(vm, arguments, &mut state, worker)?;
            }
        }
    }
    while state.done < arguments.pieces {
        let result = vm.recv_at(&state, ANY, RESULT)?;
        state.longest = state.longest.longer(result.value()?);
        state.done += 1;
        give(vm, arguments, &mut state, result.from())?;
        println!("{} of {} pieces", state.done, arguments.pieces);
    }
    let Chain { steps, first } = state.longest;
    println!(
        "the chain of {first} has {steps} steps, and none below {} has more",
        arguments.below
    );
    Ok(())
}

/// Gives a worker its next piece, or ends it.
fn give(vm: &Task, arguments: &Arguments, state: &mut Master, worker: Tid) -> Result<()> {
    let bound = |piece: u64| 1 + (arguments.below - 1) * piece / arguments.pieces;
    let piece =
        (state.given < arguments.pieces).then(|| (bound(state.given), bound(state.given + 1)));
    state.given += 1;
    Ok(vm.send(worker, PIECE, &piece)?)
}

fn worker(vm: &Task, master: Tid) -> Result<()> {
    let mut state = vm.portable(Worker::default)?.state;
    loop {
        let (first, end) = match state.piece {
            Some(piece) => piece,
            None => match vm.recv_at(&state, master, PIECE)?.value()? {
                Some(piece) => piece,
                None => return Ok(()),
            },
        };
        let mut from = first;
        while from < end {
            let to = end.min(from + BETWEEN);
            let longest = (from..to).map(chain).fold(state.longest, Chain::longer);
            (state.piece, state.longest) = (Some((to, end)), longest);
            vm.safe_point(&state)?;
            from = to;
        }
        vm.send(master, RESULT, &state.longest)?;
        state = Worker::default();
    }
}

/// The chain of a number: an even number is halved, an odd one becomes three times itself plus one,
/// until it is 1.
fn chain(first: u64) -> Chain {
    let (mut number, mut steps) = (first, 0);
    while number != 1 {
        number = match number % 2 {
            0 => number / 2,
            _ => 3 * number + 1,
        };
        steps += 1;
    }
    Chain { steps, first }
}
