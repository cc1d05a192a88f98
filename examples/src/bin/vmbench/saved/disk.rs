//! The limit of a checkpoint and of a restart: files of the same size, written to the disk of the
//! store or read from it, and no other work.

use crate::sealed::{LARGE_PAGES, OWN};
use anyhow::{Context, Result, ensure};
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// File that makes the kernel drop its cache of files. Only root may write it.
const FORGET: &str = "/proc/sys/vm/drop_caches";

/// Microseconds to write the memory to a number of files of a folder, one after the other, each
/// synced to the disk.
pub fn write(folder: &Path, memory: &[u8], files: usize) -> Result<f64> {
    let folder = tempfile::tempdir_in(folder)?;
    let begin = Instant::now();
    for number in 0..files {
        let mut file = File::create_new(folder.path().join(number.to_string()))?;
        file.write_all(memory)?;
        file.sync_all()?;
    }
    Ok(1e6 * begin.elapsed().as_secs_f64())
}

/// Microseconds to read files into the fresh memory of another process.
pub fn read(files: &[PathBuf]) -> Result<f64> {
    let mut command = Command::new(OWN);
    command.arg("bare-read").args(files);
    let output = command.env(LARGE_PAGES.0, LARGE_PAGES.1).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "a bare process: {said}");
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// The work of the process that reads the files.
pub fn read_here(files: &[PathBuf]) -> Result<()> {
    let begin = Instant::now();
    let memory: Vec<Vec<u8>> = files.iter().map(fs::read).collect::<Result<_, _>>()?;
    println!("{}", 1e6 * begin.elapsed().as_secs_f64());
    std::hint::black_box(memory);
    Ok(())
}

/// Whether the cache can be dropped, so that files are read from the disk.
pub fn can_forget() -> bool {
    OpenOptions::new().write(true).open(FORGET).is_ok()
}

/// Makes the kernel drop its cache of files, if that is possible.
pub fn forget() -> Result<()> {
    if can_forget() {
        fs::write(FORGET, "1\n").context(FORGET)?;
    }
    Ok(())
}

/// The images of the checkpoint with that name, of the only application in a store.
pub fn images(store: &Path, checkpoint: &str) -> Result<Vec<PathBuf>> {
    let mut apps = fs::read_dir(store)?;
    let app = apps.next().context("the store is empty")??.path();
    let mut images = Vec::new();
    for entry in fs::read_dir(app.join(checkpoint))? {
        let path = entry?.path();
        images.extend(Some(path).filter(|path| path.extension().is_some_and(|it| it == "image")));
    }
    ensure!(!images.is_empty(), "{checkpoint} has no images");
    Ok(images)
}
