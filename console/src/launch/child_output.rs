//! The output of a child process, kept for the case that it fails.

use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    fs::File,
    io::{self, Read, Seek},
    process::{ExitStatus, Stdio},
};

/// Bytes at the end of a child's output that are shown.
const SHOWN_MAX: u64 = 4096;

/// The output of a child, in a file in memory. With a pipe, a daemon that keeps the other end open
/// would block its reader.
pub(super) struct ChildOutput(File);

impl ChildOutput {
    pub(super) fn new() -> io::Result<Self> {
        // Some systems forbid memory files that can be executed; older kernels do not know the flag.
        let file = memfd_create("launcher", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create("launcher", MemfdFlags::CLOEXEC));
        let file = file.map_err(|error| {
            let error = io::Error::from(error);
            let text = format!("cannot keep the output of a child (memfd_create): {error}");
            io::Error::new(error.kind(), text)
        });
        Ok(ChildOutput(file?.into()))
    }

    pub(super) fn writer(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }

    /// The end of the child's output or, without output, its exit status.
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
    fn the_end_of_a_launchers_output_is_kept() {
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
