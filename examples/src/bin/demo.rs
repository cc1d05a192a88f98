//! `cargo demo`: a machine of three daemons on this computer aligns two genomes.
//!
//! It builds what it needs, starts the daemons, runs `align` as a person would, with the console,
//! and stops the machine. Its options are those of `align`. It leaves nothing behind, whether it
//! ends well, fails, or is interrupted.

use anyhow::{Context, Result};
use clap::Parser;
use std::{
    env,
    process::{Child, Command, ExitCode, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use vm_examples::{
    align::job::Options,
    cluster::{Cluster, Programs},
};

/// The hosts of the machine.
const NAMES: [&str; 3] = ["nodeA", "nodeB", "nodeC"];
/// How long the run may take to end after Ctrl-C, which it has got from the terminal itself.
const GRACE: Duration = Duration::from_secs(3);
/// The pace of looking whether the run has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Align two genomes on a machine of three daemons on this computer
#[derive(Debug, Parser)]
#[command(name = "demo", bin_name = "cargo demo", version)]
struct Arguments {
    // Parsed here so that a mistake is told before anything is built; passed on as they came.
    #[command(flatten)]
    _options: Options,
}

fn main() -> Result<ExitCode> {
    Arguments::parse();
    let interrupted = Arc::new(AtomicBool::new(false));
    let (flag, main) = (Arc::clone(&interrupted), thread::current());
    ctrlc::set_handler(move || {
        flag.store(true, Ordering::Relaxed);
        main.unpark();
    })?;
    let stop = || interrupted.load(Ordering::Relaxed);

    let programs = Programs::build()?;
    eprintln!("starting a machine of {}", NAMES.join(", "));
    let cluster = Cluster::start(&programs, &NAMES, stop)?;
    let mut run = cluster.console();
    run.args(["run", "align", "--workers", &NAMES.len().to_string()]);
    run.args(env::args_os().skip(1));
    let status = wait(run, stop)?;
    cluster.halt()?;
    eprintln!("the machine is stopped");
    Ok(exit_code(status))
}

/// Runs the console until it ends; after an interrupt, not much longer.
fn wait(mut run: Command, stop: impl Fn() -> bool) -> Result<ExitStatus> {
    let mut run = Run(run.spawn().context("running the console")?);
    let mut interrupted: Option<Instant> = None;
    loop {
        if let Some(status) = run.0.try_wait()? {
            return Ok(status);
        }
        if stop() && interrupted.get_or_insert_with(Instant::now).elapsed() > GRACE {
            // The console's end ends the run.
            run.0.kill()?;
        }
        thread::park_timeout(LOOK);
    }
}

/// The console; it does not outlive this program's interest in it.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        // Both fail only if it has ended and been waited for, as it should.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
