//! The note about the machine that the last daemon of a folder had joined.
//!
//! A daemon that is started again in the folder without `--join`, as `vm run` does, would found a
//! new machine of this host alone. Programs meant for a cluster would run on one host. So a daemon
//! that joins leaves a note. The note is removed when the machine is halted, or when the user wants
//! a new machine.

use crate::start::files::write_whole;
use anyhow::{Context as _, bail};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use vm_wire::MachineId;

/// Name of the note in the daemon's folder.
const FILE: &str = "joined";

fn file(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

/// Checks that a daemon may found a machine in this folder.
///
/// # Errors
/// When the last daemon there had joined another machine; the text says what to do.
pub fn check(dir: &Path) -> anyhow::Result<()> {
    let file = file(dir);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let (machine, target) = text
        .trim()
        .split_once(' ')
        .unwrap_or((text.trim(), "HOST:PORT"));
    bail!(
        "the last daemon of {0} had joined machine {machine} at {target}: join it again with \
         `vmd --detach --dir {0} --join {target}`, or found a new machine of this host with \
         `vmd --detach --dir {0} --found`",
        dir.display()
    )
}

/// Notes that a daemon in this folder has joined `machine` by way of `target`.
///
/// # Errors
/// The error of the system call.
pub fn note(dir: &Path, machine: MachineId, target: &str) -> anyhow::Result<()> {
    let file = file(dir);
    write_whole(&file, format!("{machine} {target}\n").as_bytes())
        .map(drop)
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Removes the note: the machine does not exist any more, or the user wants a new one.
pub fn forget(dir: &Path) {
    let file = file(dir);
    if let Err(error) = fs::remove_file(&file)
        && error.kind() != io::ErrorKind::NotFound
    {
        log::warn!("cannot remove {}: {error}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_remembers_the_machine_that_its_last_daemon_had_joined() {
        let dir = tempfile::tempdir().expect("a folder");
        check(dir.path()).expect("none was there");
        let machine = MachineId::from_bits(0xbeef);
        note(dir.path(), machine, "node1:7170").expect("written");
        let why = check(dir.path()).expect_err("it had joined").to_string();
        for part in [machine.to_string().as_str(), "--join node1:7170", "--found"] {
            assert!(why.contains(part), "{why}");
        }
        forget(dir.path());
        forget(dir.path());
        check(dir.path()).expect("it was forgotten");
    }
}
