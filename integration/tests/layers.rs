//! The structure of the sources, as `docs/architecture.md` describes it: arrows between layers point
//! down only, no files import each other in a circle, the state machines are pure, `unsafe` stays
//! in the files that are listed for it, files and functions stay small.
//!
//! Cargo enforces the arrows between crates. Rules that Cargo cannot see are checked on the sources
//! here. Each check is a function of sources, so that `made_up` can show that the check fires.

#[path = "layers/circles.rs"]
mod circles;
#[path = "layers/made_up.rs"]
mod made_up;
#[path = "layers/modules.rs"]
mod modules;
#[path = "layers/paths.rs"]
mod paths;
#[path = "layers/sizes.rs"]
mod sizes;
#[path = "layers/sources.rs"]
mod sources;

use std::{collections::BTreeSet, env, fs, process::Command};

use modules::Tree;
use sources::{CRATES, Source, below, lines_with, of_crate, workspace};

/// Bound on the lines of a file.
const FILE_LINES_MAX: usize = 700;

/// Bound on the lines of a function.
const FUNCTION_LINES_MAX: usize = 100;

/// Folders of pure state machines.
const STATE_MACHINES: &[&str] = &[
    "vmlib/endpoint/src",
    "vmlib/machine/src",
    "vmlib/coordinator/src/decisions",
];

/// A program that links the task library needs fewer crates than this, the library included.
const LIBRARY_CRATES: usize = 40;

/// Words that no code of the state machines contains: std's hash tables iterate in random order.
const RANDOM_ORDER: &[&str] = &[
    "HashMap",
    "HashSet",
    "hash_map",
    "hash_set",
    "RandomState",
    "DefaultHasher",
];

/// The folder whose folders are subsystems of the daemon.
const SUBSYSTEMS: &str = "vmlib/machine/src/daemon/";

fn refuse(folder: &str, words: &[&str], why: &str) {
    let wrong = lines_with(&below(folder), words);
    assert!(wrong.is_empty(), "{why}:\n{}", wrong.join("\n"));
}

#[test]
fn the_ground_crates_read_no_clock_and_do_no_input_or_output_that_is_not_theirs() {
    let shells = [
        "std::net",
        "std::fs",
        "std::thread",
        "std::process",
        "std::os",
        "std::env",
    ];
    let clocks = [
        "Instant::now",
        "SystemTime",
        "rustix::",
        "libc::",
        "mio::",
        "rand::",
    ];
    let words: Vec<&str> = shells.into_iter().chain(clocks).collect();
    refuse(
        "vmlib/wire/src",
        &words,
        "the wire crate only turns bytes into values and back",
    );
    for folder in STATE_MACHINES {
        refuse(
            folder,
            &words,
            "a state machine is told the time and does nothing itself",
        );
    }
    refuse(
        "vmlib/store/src",
        &[
            "std::net",
            "std::thread",
            "std::process",
            "std::env",
            "Instant",
            "SystemTime",
        ],
        "the store has its folder, and nothing else",
    );
}

#[test]
fn no_state_machine_has_tables_of_random_order() {
    for folder in STATE_MACHINES {
        refuse(
            folder,
            RANDOM_ORDER,
            "std's hash tables iterate in random order: use a BTreeMap",
        );
    }
}

#[test]
fn arrows_between_crates_point_down_only() {
    let allowed: [(&str, &[&str]); 13] = [
        ("vmlib/wire", &[]),
        ("vmlib/image", &[]),
        ("vmlib/local", &[]),
        ("vmlib/store", &["vm-wire"]),
        ("vmlib/bucket", &["vm-wire", "vm-store"]),
        ("vmlib/endpoint", &["vm-wire"]),
        ("vmlib/machine", &["vm-wire", "vm-endpoint"]),
        ("vmlib/coordinator", &["vm-wire", "vm-local", "vm-endpoint"]),
        (
            "vmlib",
            &[
                "vm-wire",
                "vm-local",
                "vm-endpoint",
                "vm-image",
                "vm-coordinator",
            ],
        ),
        ("vmlib/c", &["vm-wire", "vmlib"]),
        ("vmlib/python", &["vmlib"]),
        (
            "vmd",
            &[
                "vm-wire",
                "vm-local",
                "vm-machine",
                "vm-image",
                "vm-coordinator",
                "vm-store",
                "vm-bucket",
            ],
        ),
        (
            "console",
            &[
                "vm-wire",
                "vm-local",
                "vm-machine",
                "vm-image",
                "vm-store",
                "vm-bucket",
            ],
        ),
    ];
    for (folder, may_use) in allowed {
        let manifest = fs::read_to_string(workspace().join(folder).join("Cargo.toml"))
            .expect("every crate has a manifest");
        let dependencies = manifest
            .split("[dependencies]")
            .nth(1)
            .map(|rest| rest.split("\n[").next().unwrap_or(rest))
            .unwrap_or_default();
        for ours in [
            "vm-wire",
            "vm-local",
            "vm-endpoint",
            "vm-machine",
            "vm-image",
            "vm-coordinator",
            "vm-store",
            "vm-bucket",
            "vmlib",
            "vm-c",
            "vmd",
            "vm-console",
            "vm-examples",
        ] {
            let uses = dependencies
                .lines()
                .any(|line| line.split(['.', ' ', '=']).next() == Some(ours));
            assert!(
                !uses || may_use.contains(&ours),
                "{folder} may not use {ours}"
            );
        }
    }
}

/// The crates that `tree`, the output of `cargo tree --prefix none`, names: each once, however
/// often it is listed.
fn crates_in(tree: &str) -> BTreeSet<&str> {
    tree.lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn a_program_that_links_the_library_needs_few_crates() {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "--offline", "--locked", "--package", "vmlib"])
        .args(["--edges", "normal", "--prefix", "none"])
        .current_dir(workspace())
        .output()
        .expect("cargo can be started");
    let errors = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "cargo tree fails: {errors}");
    let tree = String::from_utf8(tree.stdout).expect("cargo prints UTF-8");
    let crates = crates_in(&tree);
    let list: Vec<&str> = crates.iter().copied().collect();
    println!("{} crates", list.len());
    assert!(
        list.iter().any(|name| name.starts_with("vm-wire ")),
        "the tree lacks the crates of this workspace:\n{tree}"
    );
    assert!(
        list.len() < LIBRARY_CRATES,
        "{} crates, fewer than {LIBRARY_CRATES} are allowed:\n{}",
        list.len(),
        list.join("\n")
    );
}

/// Folders and files whose code may be `unsafe`.
const UNSAFE_HOMES: &[&str] = &[
    "vmlib/c/src/border.rs",
    "vmlib/c/src/forked.rs",
    "vmlib/image/",
    "vmlib/src/coordinator.rs",
    "vmlib/src/daemon_lost.rs",
    "vmlib/src/interrupt.rs",
    "vmlib/src/interrupt_socket.rs",
    "vmlib/src/link.rs",
    "vmlib/src/receive.rs",
    "vmlib/src/recv_into.rs",
    "vmlib/src/ring/area.rs",
    "vmlib/src/ring/keyed.rs",
    "vmlib/src/ring/lane.rs",
    "vmlib/src/ring/lent.rs",
    "vmlib/src/ring/room.rs",
    "vmlib/src/ring/writer.rs",
    "vmlib/src/leave.rs",
    "vmlib/python/src/buffers.rs",
    "vmd/src/image/images.rs",
    "vmd/src/start/inherited.rs",
    "vmd/src/process/helper.rs",
    "vmd/src/process/spawn.rs",
    "vmd/src/process/vfork.rs",
    "vmd/src/process/lease.rs",
    "vmd/src/image/lent.rs",
    "vmd/src/image/transfer.rs",
];

/// The lines of unsafe code outside of the listed files.
fn unsafe_elsewhere(sources: &[Source]) -> Vec<String> {
    let mut lines = lines_with(sources, &["unsafe "]);
    lines.retain(|line| !UNSAFE_HOMES.iter().any(|home| line.starts_with(home)));
    lines
}

#[test]
fn unsafe_stays_where_it_is_reviewed() {
    for folder in ["vmlib", "vmd", "console", "examples"] {
        let wrong = unsafe_elsewhere(&below(folder));
        assert!(
            wrong.is_empty(),
            "unsafe code outside of its homes:\n{}",
            wrong.join("\n")
        );
    }
}

#[test]
fn no_files_of_a_crate_import_each_other_in_a_circle() {
    let mut wrong = BTreeSet::new();
    for folder in CRATES {
        let sources = of_crate(folder);
        for root in circles::roots(&sources, folder) {
            wrong.extend(circles::of(&Tree::of(&sources, &root)));
        }
    }
    assert!(wrong.is_empty(), "{}", Vec::from_iter(wrong).join("\n"));
}

#[test]
fn no_subsystem_of_the_daemon_imports_from_another() {
    let sources = of_crate("vmlib/machine");
    let tree = Tree::of(&sources, "vmlib/machine/src/lib.rs");
    let wrong = circles::between_siblings(&tree, SUBSYSTEMS);
    assert!(
        wrong.is_empty(),
        "a subsystem returns effects and calls no other:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn no_file_is_larger_than_a_reader_can_hold() {
    let sources: Vec<Source> = CRATES.iter().flat_map(|folder| of_crate(folder)).collect();
    let wrong: Vec<String> = sizes::long_files(&sources, FILE_LINES_MAX)
        .into_iter()
        .map(|(name, lines)| format!("{name} has {lines} lines: divide it"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_function_is_longer_than_a_reader_can_hold() {
    let sources: Vec<Source> = CRATES.iter().flat_map(|folder| of_crate(folder)).collect();
    let wrong: Vec<String> = sizes::long_functions(&sources, FUNCTION_LINES_MAX)
        .into_iter()
        .map(|it| format!("{}: {} has {} lines: divide it", it.file, it.name, it.lines))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
