//! The programs under test, built once per test process and found by that build's answer.
//!
//! `cargo test` does not build the binaries of other packages.

use serde_json::Value;
use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();

/// Every binary of the workspace by name.
fn built() -> &'static BTreeMap<String, PathBuf> {
    BUILT.get_or_init(|| {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let mut build = cargo();
        build.args([
            "build",
            "--workspace",
            "--bins",
            "--quiet",
            "--message-format=json",
        ]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        build
            .arg("--manifest-path")
            .arg(manifest)
            .stderr(Stdio::inherit());
        let output = build.output().expect("cargo can be run");
        assert!(
            output.status.success(),
            "the programs under test do not build"
        );
        output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
            .filter_map(|message| {
                let path = PathBuf::from(message.get("executable")?.as_str()?);
                Some((message["target"]["name"].as_str()?.to_owned(), path))
            })
            .collect()
    })
}

/// Cargo, without the variables that the cargo which runs this has set: build scripts look at some, and
/// their crates would be built anew each time, with all that use them.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    let of_package = |name: &str| {
        let groups = ["CARGO_MANIFEST_", "CARGO_PKG_"];
        name == "OUT_DIR" || groups.iter().any(|group| name.starts_with(group))
    };
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| of_package(name)) {
        cargo.env_remove(name);
    }
    cargo
}

/// The binary of that name.
///
/// # Panics
/// When the workspace has none.
pub fn binary(name: &str) -> &'static Path {
    built()
        .get(name)
        .unwrap_or_else(|| panic!("the workspace has no binary {name}"))
}

/// The daemon.
pub fn vmd() -> &'static Path {
    binary("vmd")
}

/// The folder of all of them, for the daemons' program path.
pub fn folder() -> &'static Path {
    vmd().parent().expect("a file is in a folder")
}
