//! The programs of this workspace, built if necessary. The output of cargo gives their paths.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
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
    /// Builds the programs with the profile of the running program. Cargo shows its progress on
    /// standard error: on a fresh computer the build takes minutes.
    ///
    /// # Errors
    /// When the build fails; cargo has said why.
    pub fn build() -> Result<Self> {
        let binaries = executables(&mut build_command(&names()?))?;
        let daemon = binaries.get("vmd").context("cargo has built no vmd")?;
        let folder = daemon.parent().context("vmd is in no folder")?.to_owned();
        Ok(Programs { binaries, folder })
    }

    /// The path of the program `name`.
    ///
    /// # Errors
    /// When the workspace has no such program.
    pub fn binary(&self, name: &str) -> Result<&Path> {
        let path = self.binaries.get(name);
        Ok(path.with_context(|| format!("cargo has built no {name}"))?)
    }

    /// The folder of the programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Cargo, without the variables that the cargo which runs this program has set. Build scripts read
/// some of them: their crates, and all crates that use these, would be built anew each time.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let of_package = |name: &str| {
        let groups = ["CARGO_MANIFEST_", "CARGO_PKG_"];
        name == "OUT_DIR" || groups.iter().any(|group| name.starts_with(group))
    };
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| of_package(name)) {
        command.env_remove(name);
    }
    command
}

/// Runs a build whose messages are JSON. Returns the programs that it has built, by name.
///
/// # Errors
/// When cargo cannot be run, or the build fails; cargo has said why on standard error.
pub fn executables(build: &mut Command) -> Result<BTreeMap<String, PathBuf>> {
    let mut cargo = build
        .stdout(Stdio::piped())
        .spawn()
        .context("running cargo")?;
    let messages = cargo.stdout.take().context("cargo's messages")?;
    let mut binaries = BTreeMap::new();
    for line in BufReader::new(messages).lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let Some(name) = message["target"]["name"].as_str() else {
            continue;
        };
        if let Some(path) = message["executable"].as_str() {
            binaries.insert(name.to_owned(), PathBuf::from(path));
        }
    }
    ensure!(cargo.wait()?.success(), "the programs were not built");
    Ok(binaries)
}

/// The names of the daemon, the console and the examples.
fn names() -> Result<Vec<String>> {
    let mut names = vec!["vmd".to_owned(), "vm".to_owned()];
    let folder = Path::new(MANIFEST).with_file_name("examples/src/bin");
    let entries = folder.read_dir().context("reading the examples' folder")?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().and_then(OsStr::to_str);
        names.push(name.context("an example without a name")?.to_owned());
    }
    Ok(names)
}

/// The build of these programs. It selects the whole workspace, as the alias does that has built the
/// running program: then both have the same features, and no crate is built twice.
fn build_command(names: &[String]) -> Command {
    let mut command = cargo();
    command.args(["build", "--workspace", "--manifest-path", MANIFEST]);
    command.args(names.iter().flat_map(|name| ["--bin", name]));
    command.arg("--message-format=json-render-diagnostics");
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_tells_what_it_builds() {
        let names = names().expect("the examples");
        assert!(
            build_command(&names)
                .get_args()
                .all(|word| word != "--quiet")
        );
        let aliases = Path::new(MANIFEST).with_file_name(".cargo/config.toml");
        let aliases = std::fs::read_to_string(aliases).expect("the aliases");
        assert!(aliases.contains("demo = "), "{aliases}");
        assert!(!aliases.contains("--quiet"), "{aliases}");
        // The programs of aliases are built with the features of the whole workspace, too.
        let runs = aliases.lines().filter(|line| line.contains("\"run "));
        assert_eq!(runs.filter(|line| line.contains("--package")).count(), 0);
    }
}
