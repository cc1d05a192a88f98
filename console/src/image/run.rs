//! This process becomes the process of an image.

use super::source::{Watched, failed, is_seekable, open, reasons};
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
use vm_image::{Folders, Way, format::ImageReader, inspect::Summary};

/// How a process is brought back.
#[derive(Debug, Clone)]
pub struct How {
    /// The files that it writes become what they were.
    pub roll_back: bool,
    /// Where files and the working directory are looked for.
    pub maps: Vec<Map>,
}

/// Becomes the process of an image, if nothing is in the way; otherwise returns what is.
///
/// # Errors
/// When the image is not whole, or cannot be read; nothing was started.
pub fn run(file: &Path, how: &How, interrupt: &Interrupt) -> anyhow::Result<Vec<String>> {
    let maps: Vec<Folders<'_>> = how.maps.iter().map(Map::folders).collect();
    let folders: Vec<(&Path, &Path)> = how.maps.iter().map(|map| (&*map.old, &*map.new)).collect();
    let mut opened = open(file)?;
    // What is read from a pipe can be read once: then only the restorer verifies it.
    if is_seekable(&opened) {
        let _phase = interrupt.waiting();
        let source = Watched {
            file: &opened,
            interrupt,
        };
        let mut image = ImageReader::new(source).map_err(|error| failed(file, error))?;
        let prefix = *image.prefix();
        let heads = image.read_heads().map_err(|error| failed(file, error))?;
        let reasons = reasons(&prefix, heads, how.roll_back, &maps);
        Summary::read_on(&mut image).map_err(|error| failed(file, error))?;
        if !reasons.is_empty() {
            return Ok(reasons);
        }
        opened.seek(SeekFrom::Start(0))?;
    }
    let way = Way {
        roll_back: how.roll_back,
        folders: &folders,
        ..Way::default()
    };
    match vm_image::restore(opened.as_fd(), way) {
        Ok(never) => match never {},
        Err(error) => Err(error).context("cannot start the restorer"),
    }
}

/// As [`run`], in a process of its own, which prints JSON if `json`: the prompt is not to become
/// another program. Returns its exit code.
///
/// # Errors
/// When no process can be started.
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
        // There are commands.
        console.stdin(Stdio::null());
    }
    // A signal of the terminal reaches both, and is the other's.
    let _phase = interrupt.relaying();
    let modes = tcgetattr(io::stdin()).ok();
    let status = console.status().context("cannot start a console for it")?;
    if let Some(modes) = modes {
        // A terminal that is gone needs no care.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &modes);
    }
    let ended = status.signal().map(|signal| exit::SIGNALLED + signal as u8);
    Ok(ended.unwrap_or_else(|| status.code().map_or(exit::FAILED, |code| code as u8)))
}
