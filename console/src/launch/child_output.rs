//! What a child process writes, kept for the case that it fails.

use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    fs::File,
    io::{self, Read, Seek},
    process::{ExitStatus, Stdio},
};

/// Bytes at the end of a child's output that are shown.
const SHOWN_MAX: u64 = 4096;

/// What a child writes, kept in memory. A file and not a pipe, so that a daemon which keeps it
/// open holds nobody up.
pub(super) struct ChildOutput(File);

impl ChildOutput {
    pub(super) fn new() -> io::Result<Self> {
        // Some systems forbid memory files that could be executed; older ones do not know the flag.
        let file = memfd_create("launcher", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create("launcher", MemfdFlags::CLOEXEC));
        let file = file.map_err(|error| {
            let error = io::Error::from(error);
            let text = format!("memfd_create, which keeps what a child says, is refused: {error}");
            io::Error::new(error.kind(), text)
        });
        Ok(ChildOutput(file?.into()))
    }

    pub(super) fn writer(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }

    /// The child's last words, or else how it ended.
    pub(super) fn of_failure(&mut self, status: ExitStatus) -> String {
        let text = self.last().unwrap_or_default();
        match text.trim() {
            "" => status.to_string(),
            text => text.to_owned(),
        }
    }

    fn last(&mut self) -> io::Result<String> {
        let length = self.0.seek(io::SeekFrom::End(0))?;
        self.0
            .seek(io::SeekFrom::Start(length.saturating_sub(SHOWN_MAX)))?;
        let mut bytes = Vec::new();
        (&self.0).take(SHOWN_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_last_words_of_a_launcher_are_kept() {
        let mut output = ChildOutput::new().unwrap();
        let status = Command::new("sh")
            .args(["-c", "echo first; echo last >&2; exit 3"])
            .stdout(output.writer().unwrap())
            .stderr(output.writer().unwrap())
            .status()
            .unwrap();
        assert_eq!(output.of_failure(status), "first\nlast");
        let mut silent = ChildOutput::new().unwrap();
        assert_eq!(silent.of_failure(status), "exit status: 3");
    }
}
