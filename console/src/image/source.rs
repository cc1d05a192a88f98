//! Opens and reads images, from a file or standard input, until the user interrupts.

use crate::{failure::ClientError, interrupt::Interrupt};
use anyhow::{Context as _, anyhow};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};
use vm_image::{
    Folders,
    format::{Heads, ImageError, ImageReader, Prefix},
    inspect::{Host, check_files, compare},
};

/// Whether the name means standard input.
pub fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

pub(super) fn open(file: &Path) -> anyhow::Result<File> {
    // Standard input is opened anew, so that its position is not shared.
    let path = match is_stdin(file) {
        true => Path::new("/dev/stdin"),
        false => file,
    };
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

pub(super) fn is_seekable(mut file: &File) -> bool {
    file.stream_position().is_ok()
}

/// Reads an image from a file that was opened with the name `path`.
pub(super) fn reader<'a>(
    path: &Path,
    file: &'a File,
    interrupt: &'a Interrupt,
) -> anyhow::Result<ImageReader<Watched<'a>>> {
    let source = Watched { file, interrupt };
    ImageReader::new(source).map_err(|error| failed(path, error))
}

/// The error of a command for which an image could not be read.
pub(super) fn failed(file: &Path, error: ImageError) -> anyhow::Error {
    match not_interrupted(error) {
        Ok(error) => anyhow!("{}: {error}", file.display()),
        Err(interrupted) => interrupted.into(),
    }
}

/// Separates an interrupt by the user from an error of reading.
pub(super) fn not_interrupted(error: ImageError) -> Result<ImageError, ClientError> {
    match &error {
        ImageError::Io { source, .. }
            if source
                .get_ref()
                .is_some_and(|inner| inner.is::<ClientError>()) =>
        {
            Err(ClientError::Interrupted)
        }
        _ => Ok(error),
    }
}

/// A file whose reads fail once the user interrupts.
pub(super) struct Watched<'a> {
    pub(super) file: &'a File,
    pub(super) interrupt: &'a Interrupt,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut fds = [
            PollFd::new(self.file, PollFlags::IN),
            self.interrupt.poll_fd(),
        ];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => return Err(io::ErrorKind::Interrupted.into()),
            Err(error) => return Err(error.into()),
            Ok(_) if !fds[1].revents().is_empty() => {
                return Err(io::Error::other(ClientError::Interrupted));
            }
            Ok(_) => {}
        }
        self.file.read(buffer)
    }
}

impl Seek for Watched<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// The reasons why the process of an image cannot be restored on this host.
pub(super) fn reasons(
    prefix: &Prefix,
    heads: &Heads,
    roll_back: bool,
    maps: &[Folders<'_>],
) -> Vec<String> {
    let obstacles = compare(prefix, heads.facts(), &Host::here());
    let obstacles = obstacles.iter().map(ToString::to_string);
    let problems = check_files(heads, roll_back, maps).into_iter();
    obstacles
        .chain(problems.map(|problem| problem.to_string()))
        .collect()
}
