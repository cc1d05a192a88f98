//! Restores with fewer permissions than at the save: limits, sandboxes, another terminal.

use crate::run::{self, User, start, start_with};
use std::{
    fs::File,
    os::{fd::FromRawFd as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

fn zoo(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(run::zoo());
    let command_is = command.arg(name).env("ZOO_IMAGE", folder.join("image"));
    command_is.env("ZOO_FOLDER", folder);
    command
}

/// The image of a program of the zoo.
fn saved(name: &str, folder: &Path) -> PathBuf {
    let ended = start(&mut zoo(name, folder), User::Same).end();
    assert!(ended.is_well(&format!("ok {name}")), "{ended:?}");
    folder.join("image.1")
}

#[test]
fn without_close_range_no_descriptor_is_left_over() {
    const CLOSE_RANGE: &str = "436";
    let folder = run::open_folder();
    let mut command = zoo("many_descriptors", folder.path());
    command
        .env("ZOO_SAVES", "3")
        .env("ZOO_LEAVE", "1")
        .env("ZOO_REFUSED", CLOSE_RANGE);
    let mut ended = start(&mut command, User::Same).end();
    for life in 1..=3 {
        assert!(
            ended.status.success() && ended.errors.is_empty(),
            "{life}: {ended:?}"
        );
        let image = folder.path().join(format!("image.{life}"));
        let mut command = run::restore(&image);
        ended = start(command.env("ZOO_REFUSED", CLOSE_RANGE), User::Same).end();
    }
    assert!(ended.is_well("ok many_descriptors"), "{ended:?}");
}

#[test]
fn a_refused_system_call_that_is_needed_is_named() {
    const MEMFD_CREATE: &str = "319";
    let folder = run::open_folder();
    let image = saved("shared_twice", folder.path());
    let mut command = run::restore(&image);
    let ended = start(command.env("ZOO_REFUSED", MEMFD_CREATE), User::Same).end();
    assert!(
        !ended.status.success() && ended.output.is_empty(),
        "{ended:?}"
    );
    assert!(ended.errors.contains("memfd_create"), "{ended:?}");
}

#[test]
fn a_too_low_limit_is_named() {
    let cases = [
        (libc::RLIMIT_DATA, 30 << 20, "heap", "RLIMIT_DATA"),
        (libc::RLIMIT_DATA, 100 << 20, "heap", "RLIMIT_DATA"),
        (libc::RLIMIT_AS, 90 << 20, "heap", "RLIMIT_AS"),
        (libc::RLIMIT_NOFILE, 20, "many_descriptors", "RLIMIT_NOFILE"),
        (libc::RLIMIT_STACK, 120 << 10, "heap", "RLIMIT_STACK"),
        (
            libc::RLIMIT_SIGPENDING,
            0,
            "pending_for_the_process",
            "RLIMIT_SIGPENDING",
        ),
    ];
    for (which, limit, name, wanted) in cases {
        let folder = run::open_folder();
        let image = saved(name, folder.path());
        let mut command = run::restore(&image);
        let both = libc::rlimit {
            rlim_cur: limit,
            rlim_max: limit,
        };
        // SAFETY: a system call that concerns the new process alone.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(which, &both) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let ended = start(&mut command, User::Same).end();
        assert!(
            ended.status.code().is_some(),
            "{wanted}: by a signal: {ended:?}"
        );
        assert!(
            !ended.status.success() && ended.errors.contains(wanted),
            "{wanted}: {ended:?}"
        );
    }
}

/// Both ends of a new terminal.
fn terminal() -> (File, File) {
    let (mut ours, mut theirs) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: the C library writes two descriptors, which no other code has.
    unsafe {
        let made = libc::openpty(&mut ours, &mut theirs, none, none.cast(), none.cast());
        assert_eq!(made, 0, "a terminal can be had");
        (File::from_raw_fd(ours), File::from_raw_fd(theirs))
    }
}

#[test]
fn a_new_terminal_gets_the_modes_of_the_old_one() {
    let folder = run::open_folder();
    let (_first, theirs) = terminal();
    let mut command = zoo("terminal_modes", folder.path());
    let ended = start_with(&mut command, User::Same, theirs.into()).end();
    assert!(ended.is_well("ok terminal_modes"), "{ended:?}");
    let (_second, theirs) = terminal();
    let mut command = run::restore(&folder.path().join("image.1"));
    let ended = start_with(&mut command, User::Same, theirs.into()).end();
    assert!(ended.is_well("ok terminal_modes"), "{ended:?}");
}
