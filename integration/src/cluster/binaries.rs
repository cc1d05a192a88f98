//! The programs under test, and the libraries for C programs beside them. They are built once per test process; the output of the build gives
//! their paths.
//!
//! `cargo test` does not build the binaries of other packages.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::OnceLock,
};
use vm_examples::cluster::{cargo, executables};

static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();

/// Every binary of the workspace by name.
fn built() -> &'static BTreeMap<String, PathBuf> {
    BUILT.get_or_init(|| {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let mut build = cargo();
        build.args([
            "build",
            "--workspace",
            "--lib",
            "--bins",
            "--quiet",
            "--message-format=json",
        ]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        build.arg("--manifest-path").arg(manifest);
        executables(&mut build).expect("the programs under test build")
    })
}

/// The path of the binary `name`.
///
/// # Panics
/// If the workspace has no such binary.
pub fn binary(name: &str) -> &'static Path {
    built()
        .get(name)
        .unwrap_or_else(|| panic!("the workspace has no binary {name}"))
}

/// The path of `vmd`.
pub fn vmd() -> &'static Path {
    binary("vmd")
}

/// The folder of all binaries, for the daemons' program path.
pub fn folder() -> &'static Path {
    vmd().parent().expect("a file is in a folder")
}
