//! Measures the machine beside the limits of this computer, in one run.
//!
//! Each row compares three ways between two processes: *ours*, two tasks that use vmlib; a *relay*,
//! the same hops with bare processes that forward bytes with epoll in place of the daemons; and
//! *raw*, one socket from end to end. The three take turns within a row (ours, relay, raw, ours,
//! ...), so that what else the computer does meets all of them, and each figure is the median of
//! its turns. Nothing is pinned to a processor, neither ours nor the others, but in the rows of
//! [`others`].
//!
//! A move is compared with its bytes alone ([`sealed`]).
//!
//! | module | is |
//! |---|---|
//! | [`rows`] | which rows there are, their goals, how they are shown |
//! | [`measure`] | the program that runs the rows, as the master of an application |
//! | [`ours`] | the machine's side: partners that are tasks |
//! | [`bare`] | the other side: partners that are bare processes |
//! | [`relay`] | the process between those |
//! | [`sealed`] | memory that goes to another process, encrypted |
//! | [`others`] | what moves cost those that have no part in them |
//!
//! The program that a person starts builds what is needed, starts a machine of four daemons on this
//! computer and runs itself in it. Its exit status is 1 when a row misses its goal.

mod bare;
mod measure;
mod others;
mod ours;
mod relay;
mod rows;
mod sealed;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;
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
    /// Only rows whose name contains this
    #[arg(long, global = true, value_name = "TEXT", default_value = "")]
    only: String,
    /// The processes of the daemons, for the rows that pin them.
    #[arg(long, global = true, hide = true)]
    daemons: Vec<u32>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What a process of the benchmark is. A person needs none of these.
#[derive(Debug, Clone, Copy, Subcommand)]
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
    match arguments.role {
        None => return start(&arguments),
        Some(Role::Measure) => return measure::run(&arguments),
        Some(Role::Partner) => ours::partner()?,
        Some(Role::Greeter) => ours::greeter()?,
        Some(Role::Churner { bytes, percent }) => ours::churner(bytes, percent)?,
        Some(Role::Pinger) => others::pinger()?,
        Some(Role::Ponger) => others::ponger()?,
        Some(Role::BareFill { bytes }) => sealed::fill(bytes)?,
        Some(Role::BareMemory { bytes }) => sealed::use_memory(bytes),
        Some(Role::BarePartner) => bare::partner()?,
        Some(Role::BareGreeter) => bare::greet()?,
        Some(Role::Relay) => relay::run()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts a machine and runs this program in it.
fn start(arguments: &Arguments) -> Result<ExitCode> {
    let interrupt = Interrupt::catch()?;
    let programs = Programs::build()?;
    let cluster = Cluster::start(&programs, &NAMES, &interrupt)?;
    let mut run = cluster.console();
    run.args(["run", "vmbench", "measure", "--only", &arguments.only]);
    run.args(["--turns", &arguments.turns.to_string()]);
    for daemon in cluster.daemons() {
        run.args(["--daemons", &daemon.to_string()]);
    }
    if arguments.json {
        run.arg("--json");
    }
    let code = cluster.run(run, &interrupt)?;
    cluster.halt()?;
    Ok(code)
}
