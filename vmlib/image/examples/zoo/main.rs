//! The zoo: each program sets up one kind of process state, is saved and restored, and checks its
//! own state.
//!
//! `zoo NAME` runs a program, `zoo restore FILE [foreign]` restores one, `zoo list` prints all
//! names. A program whose state is right prints `ok NAME` and ends with status 0, both in the saved
//! process that runs on and in each restored process. `tests/zoo` runs the programs; [`point`]
//! describes the environment variables.

mod blocked;
mod carried;
mod descriptors;
mod files;
mod locks;
mod masks;
mod memory;
mod pending;
mod point;
mod process;
mod refused_descriptors;
mod refused_process;
mod registers;
mod shared;
mod signals;
mod stacks;
mod stress;
mod threads;
mod timers;
mod waits;

use std::{env, fs::File, os::fd::AsFd as _, process::ExitCode};
use vm_image::{RestoreOptions, restore};

type Program = (&'static str, fn());

const PROGRAMS: &[&[Program]] = &[
    memory::PROGRAMS,
    shared::PROGRAMS,
    stacks::PROGRAMS,
    threads::PROGRAMS,
    blocked::PROGRAMS,
    waits::PROGRAMS,
    registers::PROGRAMS,
    signals::PROGRAMS,
    pending::PROGRAMS,
    timers::PROGRAMS,
    process::PROGRAMS,
    files::PROGRAMS,
    carried::PROGRAMS,
    locks::PROGRAMS,
    descriptors::PROGRAMS,
    refused_descriptors::PROGRAMS,
    refused_process::PROGRAMS,
    stress::PROGRAMS,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    point::refuse_calls();
    let all = || PROGRAMS.iter().flat_map(|programs| programs.iter());
    match arguments.get(1).map(String::as_str) {
        Some("restore") => {
            let file = File::open(&arguments[2]).expect("the image can be opened");
            let way = RestoreOptions {
                foreign_vdso: arguments.len() > 3,
                ..RestoreOptions::default()
            };
            let error = restore(file.as_fd(), way).expect_err("it does not return");
            eprintln!("the restorer does not start: {error}");
            ExitCode::FAILURE
        }
        Some("list") => {
            all().for_each(|(name, _)| println!("{name}"));
            ExitCode::SUCCESS
        }
        Some(wanted) => {
            let (name, program) = all()
                .find(|(name, _)| *name == wanted)
                .expect("a program of the list");
            point::begin_busy_threads();
            program();
            println!("ok {name}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("zoo NAME | zoo restore FILE [foreign] | zoo list");
            ExitCode::FAILURE
        }
    }
}
