//! `cargo demo`: a machine of three daemons on this computer aligns two genomes, while its workers
//! move from host to host.
//!
//! The program builds what it needs, starts the daemons, runs `align` with the console, as a person
//! would, moves one worker after the other, also with the console, and stops the machine. Its
//! options are those of `align`, and `--stay`. It leaves no process and no file behind, whether it
//! succeeds, fails, or is interrupted.

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::Value;
use std::{
    env,
    io::IsTerminal as _,
    process::{ExitCode, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};
use vm_examples::{
    align::job::Options,
    cluster::{Cluster, Interrupt, Programs},
};

/// The hosts of the machine.
const NAMES: [&str; 3] = ["nodeA", "nodeB", "nodeC"];
/// The time from the end of one move to the next.
const PAUSE: Duration = Duration::from_secs(2);
/// The flag that is not one of `align`.
const STAY: &str = "--stay";

/// Align two genomes on a machine of three daemons on this computer, while its workers move
#[derive(Debug, Parser)]
#[command(name = "demo", bin_name = "cargo demo", version)]
struct Arguments {
    /// Leave the workers where they are
    #[arg(long)]
    stay: bool,
    // Parsed here so that a mistake is reported before the build; passed on unchanged.
    #[command(flatten)]
    _options: Options,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let interrupt = Interrupt::catch()?;
    let programs = Programs::build()?;
    eprintln!("starting a machine of {}", NAMES.join(", "));
    let cluster = Cluster::start(&programs, &NAMES, &interrupt)?;
    let mut run = cluster.console();
    run.args(["run", "align", "--workers", &NAMES.len().to_string()]);
    run.args(env::args_os().skip(1).filter(|word| word != STAY));
    let code = thread::scope(|scope| {
        // The drop of the sender ends the other thread.
        let (_running, ended) = channel::<()>();
        if !arguments.stay {
            scope.spawn(|| move_workers(&cluster, ended));
        }
        cluster.run(run, &interrupt)
    })?;
    cluster.halt()?;
    eprintln!("the machine is stopped");
    Ok(code)
}

/// Moves the workers in turn, until the run has ended.
fn move_workers(cluster: &Cluster, ended: Receiver<()>) {
    let mut turn = 0;
    while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        // The last worker may have ended meanwhile: then there is nothing to show.
        if let Ok(Some(told)) = move_one(cluster, turn) {
            // The line may show the progress bar of the run.
            let clear = std::io::stderr().is_terminal();
            eprint!("{}{told}", if clear { "\r\x1b[K" } else { "" });
            turn += 1;
        }
    }
}

/// Moves one of the workers to a host that the machine chooses. Returns the console's output.
fn move_one(cluster: &Cluster, turn: usize) -> Result<Option<String>> {
    let ask = |words: &[&str]| -> Result<String> {
        let mut console = cluster.console();
        console.args(words).stdin(Stdio::null());
        Ok(String::from_utf8(console.output()?.stdout)?)
    };
    let tasks: Value = serde_json::from_str(&ask(&["ps", "--json"])?)?;
    let tasks = tasks["tasks"].as_array().context("a list of tasks")?;
    let workers: Vec<&str> = tasks
        .iter()
        .filter(|task| !task["parent"].is_null())
        .filter_map(|task| task["tid"].as_str())
        .collect();
    if workers.is_empty() {
        return Ok(None);
    }
    let told = ask(&["move", workers[turn % workers.len()]])?;
    Ok((!told.is_empty()).then_some(told))
}
