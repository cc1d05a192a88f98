//! The command line.

use crate::peers::works::Kind;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Measure the machine and the limits of this computer
#[derive(Debug, Parser)]
#[command(name = "vmbench", version)]
pub struct Arguments {
    /// Print one line of JSON instead of a table
    #[arg(long, global = true)]
    pub json: bool,
    /// Turns of each way in a row; more turns give steadier figures
    #[arg(long, global = true, default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: u32,
    /// Measure only the rows whose name contains this text; the rows of heat, which take minutes,
    /// and of 500 tasks, which take much memory, are measured only if they are named
    #[arg(long, global = true, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Prefix of an MPI to compare with, which has bin/mpicc and bin/mpirun. Also found: prefixes in
    /// VMBENCH_MPI, separated by colons, and the mpicc in PATH
    #[arg(long, global = true, value_name = "DIR")]
    pub mpi: Vec<PathBuf>,
    /// Write a plot of the round trips beside those of the peers to this file, as SVG
    #[arg(long, global = true, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Process ids of the daemons, for the rows that pin them.
    #[arg(long, global = true, hide = true)]
    pub daemons: Vec<u32>,
    /// File to which the master writes its rows.
    #[arg(long, global = true, hide = true)]
    pub out: Option<PathBuf>,
    #[command(subcommand)]
    pub role: Option<Role>,
}

/// The role of a process of the benchmark. A person needs none of these.
#[derive(Debug, Clone, Subcommand)]
pub enum Role {
    /// Runs the rows, as the master of an application.
    #[command(hide = true)]
    Measure {
        /// Those of a machine whose links are not encrypted.
        #[arg(long)]
        plain: bool,
    },
    /// A task that replies to messages.
    #[command(hide = true)]
    Partner,
    /// A task that reports its start, and ends.
    #[command(hide = true)]
    Greeter,
    /// A task that rewrites its memory, and is moved.
    #[command(hide = true)]
    Churner {
        /// Size of its memory.
        bytes: usize,
        /// The part of its memory that it rewrites in each second. Percent.
        percent: u64,
        /// Report each restart.
        #[arg(long)]
        tells: bool,
    },
    /// The master of tasks that rewrite their memory, and are saved.
    #[command(hide = true)]
    Holders {
        /// Size of the memory of each task.
        bytes: usize,
        /// Number of tasks.
        count: u32,
    },
    /// A task that exchanges small messages with its neighbours, and then waits.
    #[command(hide = true)]
    Waiter {
        /// Number of neighbours on each side.
        reach: usize,
        /// Exchange messages from time to time instead.
        #[arg(long)]
        goes_on: bool,
    },
    /// A task that exchanges small messages with another, and measures.
    #[command(hide = true)]
    Pinger,
    /// The task that replies to the pinger.
    #[command(hide = true)]
    Ponger,
    /// The master of a work that is compared with peers.
    #[command(hide = true)]
    Work {
        /// The operation that the tasks repeat.
        kind: Kind,
        /// Size of a message.
        bytes: usize,
        /// Number of operations.
        count: usize,
        /// Number of tasks.
        tasks: u32,
    },
    /// A task of such a work.
    #[command(hide = true)]
    Member {
        /// The operation that the tasks repeat.
        kind: Kind,
        /// Size of a message.
        bytes: usize,
        /// Number of operations.
        count: usize,
    },
    /// A bare process that fills its memory from its standard input.
    #[command(hide = true)]
    BareFill {
        /// Size of its memory.
        bytes: usize,
    },
    /// A bare process that uses memory, and ends.
    #[command(hide = true)]
    BareMemory {
        /// Size of the memory.
        bytes: usize,
    },
    /// A bare process that reads files into its memory, and prints the time that this took.
    #[command(hide = true)]
    BareRead {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// A bare process that replies over its standard input, a socket.
    #[command(hide = true)]
    BarePartner,
    /// A bare process that reports its start, and ends.
    #[command(hide = true)]
    BareGreeter,
    /// A bare process that forwards between its standard input and output, both sockets.
    #[command(hide = true)]
    Relay,
}
