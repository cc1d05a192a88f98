//! The words of the command line.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Measure the machine beside the limits of this computer
#[derive(Debug, Parser)]
#[command(name = "vmbench", version)]
pub struct Arguments {
    /// Print one line of JSON instead of a table
    #[arg(long, global = true)]
    pub json: bool,
    /// Turns of each way in a row; more are steadier
    #[arg(long, global = true, default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: u32,
    /// Only rows whose name contains this; those of heat, which take minutes, only so
    #[arg(long, global = true, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// The processes of the daemons, for the rows that pin them.
    #[arg(long, global = true, hide = true)]
    pub daemons: Vec<u32>,
    /// Where the master is to write its rows.
    #[arg(long, global = true, hide = true)]
    pub out: Option<PathBuf>,
    #[command(subcommand)]
    pub role: Option<Role>,
}

/// What a process of the benchmark is. A person needs none of these.
#[derive(Debug, Clone, Subcommand)]
pub enum Role {
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
