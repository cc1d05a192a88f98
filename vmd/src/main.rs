//! `vmd`, the daemon of the virtual parallel machine: one per host.
//!
//! This crate is the I/O shell around [`vm_machine::Daemon`], which makes every decision. Reading
//! order: [`mod@start`] (what a daemon needs before it serves), [`serve`] (a daemon's life), [`enter`]
//! (how it founds or joins a machine), [`event_loop`] (one turn: readiness in,
//! system calls out), [`net`] (other daemons), [`local`] (tasks and consoles of this host),
//! [`process`] (the processes of tasks), [`image`] (images of tasks, on their way and in the store).
//! [`context`], [`clock`] and [`fault`] lie below all of them.
//!
//! Exit codes: 0 after an orderly end; 1 after an error, which goes to standard error and to the log;
//! 2 for a wrong command line.

mod start;

mod enter;
mod serve;

mod event_loop;

mod net;

mod local;

mod process;

mod image;

mod clock;
mod context;
mod fault;

use anyhow::Context as _;
use clap::Parser as _;
use image::{bucket, images, suspended, transfer};
use process::{coordinators, guardian, helper_job::HelperJob, lease};
use start::{args::Args, detach, inherited::Inherited, init};
use std::{env, process::ExitCode};

fn main() -> ExitCode {
    if let Some(job) = HelperJob::from_words(env::args_os().skip(1)) {
        return match job.and_then(|job| help(&job)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("vmd: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let args = Args::parse();
    if let Some(result) = init::run_if_process_1(args.detach) {
        return result.unwrap_or_else(|error| {
            eprintln!("vmd: {error:#}");
            ExitCode::FAILURE
        });
    }
    let result = if args.detach && !args.detached {
        detach::start()
    } else {
        serve::serve(&args, Inherited::take())
    };
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    if args.detached {
        // Until the daemon is ready, the command that started it shows the error; later the log has
        // it.
        let _ = detach::tell(Err(&error));
    } else {
        eprintln!("vmd: {error:#}");
    }
    ExitCode::FAILURE
}

/// Does the work of a helper process.
fn help(job: &HelperJob) -> anyhow::Result<()> {
    match job {
        HelperJob::TransferSender(job) => transfer::send(job).context("sending an image"),
        HelperJob::TransferReceiver(job) => transfer::receive(job).context("receiving an image"),
        HelperJob::TransferRestorer(job) => transfer::restore(job),
        HelperJob::StoreWriter(job) => images::write(job).context("storing an image"),
        HelperJob::StoreReader(job) => images::read(job).context("reading an image"),
        HelperJob::StoreTaker(job) => images::take(job).context("storing a copy of an image"),
        HelperJob::SuspendedWriter(job) => suspended::write(job).context("storing an image"),
        HelperJob::SuspendedReader(job) => suspended::read(job).context("reading an image"),
        HelperJob::BucketPusher { root } => bucket::push(root).context("copying checkpoints"),
        HelperJob::Coordinator { .. } => {
            coordinators::coordinate().context("coordinating an application")
        }
        HelperJob::LeaseProbe => lease::probe(),
        HelperJob::Guardian { daemon } => {
            guardian::guard(*daemon);
            Ok(())
        }
    }
}
