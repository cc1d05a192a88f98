//! The layers of DESIGN section 2: arrows point down only, the state machines are pure, and
//! `unsafe` stays where its modules say so.
//!
//! Cargo enforces the arrows between crates; what it cannot see is read from the sources here.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the workspace is above")
}

/// Every Rust source below `folder`, with its path relative to the workspace.
fn sources(folder: &str) -> Vec<(String, String)> {
    let root = workspace();
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace") {
            let path = entry.expect("an entry of that folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path
                    .strip_prefix(&root)
                    .expect("below the root")
                    .display()
                    .to_string();
                found.push((name, fs::read_to_string(&path).expect("a source file")));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} holds sources");
    found
}

/// The lines of a source that are code: no comment, and nothing after the unit tests begin.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(number, line)| (number + 1, line))
}

fn refuse(folder: &str, words: &[&str], why: &str) {
    let mut wrong = Vec::new();
    for (name, text) in sources(folder) {
        for (number, line) in code(&text) {
            if words.iter().any(|word| line.contains(word)) {
                wrong.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
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
    refuse(
        "vmlib/machine/src",
        &words,
        "a state machine is told the time and does nothing itself",
    );
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
    refuse(
        "vmlib/machine/src",
        &["RandomState", ".keys()\n", "HashSet::new", "HashMap::new"],
        "std's hash tables iterate in random order: use a BTreeMap",
    );
}

#[test]
fn arrows_between_crates_point_down_only() {
    let allowed: [(&str, &[&str]); 10] = [
        ("vmlib/wire", &[]),
        ("vmlib/image", &[]),
        ("vmlib/local", &[]),
        ("vmlib/store", &["vm-wire"]),
        ("vmlib/bucket", &["vm-wire", "vm-store"]),
        ("vmlib/machine", &["vm-wire"]),
        ("vmlib/coordinator", &["vm-wire", "vm-machine"]),
        (
            "vmlib",
            &[
                "vm-wire",
                "vm-local",
                "vm-machine",
                "vm-image",
                "vm-coordinator",
            ],
        ),
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
            "vm-machine",
            "vm-image",
            "vm-coordinator",
            "vm-store",
            "vm-bucket",
            "vmlib",
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

#[test]
fn unsafe_stays_where_it_is_reviewed() {
    let homes = [
        "vmlib/image/",
        "vmlib/src/coordinator.rs",
        "vmlib/src/interrupt.rs",
        "vmlib/src/link.rs",
        "vmlib/src/leave.rs",
        "vmd/src/image/images.rs",
        "vmd/src/start/inherited.rs",
        "vmd/src/process/spawn.rs",
        "vmd/src/process/lease.rs",
        "vmd/src/image/lent.rs",
        "vmd/src/image/transfer.rs",
    ];
    for folder in ["vmlib", "vmd", "console", "examples"] {
        for (name, text) in sources(folder) {
            let home = homes.iter().any(|home| name.starts_with(home));
            for (number, line) in code(&text) {
                assert!(
                    home || !line.contains("unsafe "),
                    "{name}:{number}: unsafe code outside of its homes"
                );
            }
        }
    }
}
