//! Starts a daemon on this host, for a command that needs one.

use super::child_output::ChildOutput;
use anyhow::{Context, bail};
use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Starts a daemon in the folder `dir`. Returns when the daemon replies there.
///
/// # Errors
/// If there is no `vmd`, or it did not start; the error has its output.
pub fn start_local(dir: &Path) -> anyhow::Result<()> {
    let vmd = find_vmd();
    let mut output = ChildOutput::new()?;
    let status = Command::new(&vmd)
        .arg("--detach")
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output.writer()?)
        .status()
        .with_context(|| {
            format!(
                "no daemon runs here and none could be started: cannot run {}",
                vmd.display()
            )
        })?;
    if !status.success() {
        bail!(
            "no daemon runs here and none could be started: {}",
            output.of_failure(status)
        );
    }
    Ok(())
}

/// The `vmd` that was installed with this console, else the one in PATH.
fn find_vmd() -> PathBuf {
    let beside = env::current_exe().ok().map(|exe| exe.with_file_name("vmd"));
    beside
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from("vmd"))
}
