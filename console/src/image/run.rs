//! Restores the process of an image: the console's process becomes it.

use super::source::{failed, is_seekable, open, reader, reasons};
use crate::{command::Map, exit, interrupt::Interrupt};
use anyhow::Context as _;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal as _, Seek as _, SeekFrom},
    os::{
        fd::AsFd as _,
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::Path,
    process::{Command, Stdio},
};
use vm_image::{Folders, RestoreOptions, inspect::Summary};

/// How a process is restored.
#[derive(Debug, Clone)]
pub struct How {
    /// Whether the files that the process had open for writing are rolled back.
    pub roll_back: bool,
    /// Folders that take the place of others.
    pub maps: Vec<Map>,
}

/// Becomes the process of an image. Returns only if the process cannot be restored on this host,
/// with the reasons.
///
/// # Errors
/// If the image is damaged or cannot be read; nothing was started.
pub fn run(file: &Path, how: &How, interrupt: &Interrupt) -> anyhow::Result<Vec<String>> {
    let maps: Vec<Folders<'_>> = how.maps.iter().map(Map::folders).collect();
    let folders: Vec<(&Path, &Path)> = how.maps.iter().map(|map| (&*map.old, &*map.new)).collect();
    let mut opened = open(file)?;
    // A pipe can be read only once: then only the restorer verifies the image.
    if is_seekable(&opened) {
        let _phase = interrupt.waiting();
        let mut image = reader(file, &opened, interrupt)?;
        let prefix = *image.prefix();
        let heads = image.read_heads().map_err(|error| failed(file, error))?;
        let reasons = reasons(&prefix, heads, how.roll_back, &maps);
        Summary::read_on(&mut image).map_err(|error| failed(file, error))?;
        if !reasons.is_empty() {
            return Ok(reasons);
        }
        opened.seek(SeekFrom::Start(0))?;
    }
    let way = RestoreOptions {
        roll_back: how.roll_back,
        folders: &folders,
        ..RestoreOptions::default()
    };
    match vm_image::restore(opened.as_fd(), way) {
        Ok(never) => match never {},
        Err(error) => Err(error).context("cannot start the restorer"),
    }
}

/// As [`run`], in a separate process, so that the prompt stays. The process prints JSON if `json`.
/// Returns the exit code of that process.
///
/// # Errors
/// If no process can be started.
pub fn run_apart(file: &Path, how: &How, interrupt: &Interrupt, json: bool) -> anyhow::Result<u8> {
    let mut console = Command::new("/proc/self/exe");
    console.arg0("vm");
    if json {
        console.arg("--json");
    }
    console.args(["image", "run"]);
    if how.roll_back {
        console.arg("--roll-back-files");
    }
    for map in &how.maps {
        let mut word = OsString::from("--map=");
        word.extend([map.old.as_os_str(), OsStr::new("="), map.new.as_os_str()]);
        console.arg(word);
    }
    console.arg("--").arg(file);
    if !io::stdin().is_terminal() {
        // Standard input carries the console's commands.
        console.stdin(Stdio::null());
    }
    // A signal of the terminal reaches both processes, and is meant for the restored one.
    let _phase = interrupt.relaying();
    let modes = tcgetattr(io::stdin()).ok();
    let status = console.status().context("cannot start a console for it")?;
    if let Some(modes) = modes {
        // Fails only for a terminal that is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &modes);
    }
    let ended = status.signal().map(|signal| exit::SIGNALLED + signal as u8);
    Ok(ended.unwrap_or_else(|| status.code().map_or(exit::FAILED, |code| code as u8)))
}
