//! A process that saves itself to a file.

use crate::{failure::ClientError, interrupt::Interrupt};
use anyhow::{Context as _, anyhow};
use std::{
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::Builder;
use vm_image::{Modes, Request, RequestError};

/// The image of a process that was just saved.
#[derive(Debug)]
pub struct Made {
    /// The image.
    pub file: PathBuf,
    /// The process.
    pub pid: i32,
    /// Bytes of the image.
    pub bytes: u64,
    /// The freeze time of the process.
    pub freeze: Duration,
}

/// Has a process save itself. Until the image is whole it is in a part file whose name cannot be
/// guessed and which only this user may read, because others may write to the folder.
///
/// # Errors
/// The reason why there is no image. An existing file of that name is unchanged.
pub fn save(pid: i32, file: &Path, modes: Modes, interrupt: &Interrupt) -> anyhow::Result<Made> {
    let _phase = interrupt.waiting();
    let name = file
        .file_name()
        .with_context(|| format!("{} is not the name of a file", file.display()))?;
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut prefix = name.to_owned();
    prefix.push(".");
    let part = Builder::new()
        .prefix(&prefix)
        .suffix(".part")
        .rand_bytes(16)
        .tempfile_in(folder)
        .with_context(|| format!("cannot make a file in {}", folder.display()))?;
    let asked = Request::send(pid, part.as_file().as_fd(), modes);
    let news = asked.and_then(|request| request.finish(interrupt.as_fd()));
    let news = news.map_err(|error| match error {
        RequestError::Interrupted => ClientError::Interrupted.into(),
        error => anyhow!(error),
    })?;
    let kept = || {
        let bytes = part.as_file().metadata()?.len();
        // An older image is replaced only when the new one is on the disk.
        part.as_file().sync_all()?;
        io::Result::Ok(bytes)
    };
    let bytes = kept().with_context(|| format!("cannot write {}", part.path().display()))?;
    part.persist(file)
        .with_context(|| format!("cannot give the image the name {}", file.display()))?;
    let freeze = news.freeze;
    news.image_is_kept();
    Ok(Made {
        file: file.to_owned(),
        pid,
        bytes,
        freeze,
    })
}
