//! The programs of this workspace, built if need be, and found by what cargo says of the build.

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// The manifest of the workspace from which this program was built.
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");

/// The daemon, the console and the examples.
#[derive(Debug)]
pub struct Programs {
    binaries: BTreeMap<String, PathBuf>,
    folder: PathBuf,
}

impl Programs {
    /// Builds them with the profile of the running program. Says what it builds on a terminal.
    ///
    /// # Errors
    /// When the build fails; cargo has said why on standard error.
    pub fn build() -> Result<Self> {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["build", "--quiet", "--bins", "--manifest-path", MANIFEST]);
        command.args([
            "--package",
            "vmd",
            "--package",
            "vm-console",
            "--package",
            "vm-examples",
        ]);
        command.arg("--message-format=json-render-diagnostics");
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        let mut cargo = command
            .stdout(Stdio::piped())
            .spawn()
            .context("running cargo")?;
        let messages = cargo.stdout.take().context("what cargo says")?;
        let spinner = ProgressBar::new_spinner().with_message("building");
        spinner.set_style(ProgressStyle::with_template("{spinner} {msg}")?);
        spinner.enable_steady_tick(Duration::from_millis(100));
        let mut binaries = BTreeMap::new();
        for line in BufReader::new(messages).lines() {
            let Ok(message) = serde_json::from_str::<Value>(&line?) else {
                continue;
            };
            let Some(name) = message["target"]["name"].as_str() else {
                continue;
            };
            spinner.set_message(format!("building: {name}"));
            if let Some(path) = message["executable"].as_str() {
                binaries.insert(name.to_owned(), PathBuf::from(path));
            }
        }
        spinner.finish_and_clear();
        ensure!(cargo.wait()?.success(), "the programs were not built");
        let daemon = binaries.get("vmd").context("cargo has built no vmd")?;
        let folder = daemon.parent().context("vmd is in no folder")?.to_owned();
        Ok(Programs { binaries, folder })
    }

    /// The program of that name.
    ///
    /// # Errors
    /// When the workspace has none.
    pub fn binary(&self, name: &str) -> Result<&Path> {
        let path = self.binaries.get(name);
        Ok(path.with_context(|| format!("cargo has built no {name}"))?)
    }

    /// Where all of them are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}
