//! Errors of a save, and the exit codes of a restore that failed.

use crate::frozen::fault::Fault;
use std::io;

/// The exit code of the restorer when the image cannot be restored.
pub const CANNOT_RESTORE: i32 = 124;

/// The exit code of a restored process that could not resume.
pub const CANNOT_GO_ON: i32 = 125;

/// Why a process was not saved. The process runs on after each of these errors.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The process has something that cannot be restored.
    #[error("this process cannot be saved: {0}")]
    Refused(String),
    /// A step failed that normally succeeds: the disk is full, say, or the socket is closed.
    #[error("the save failed, {step}: {cause}")]
    Failed {
        /// The step that failed.
        step: String,
        /// The error that the system reported.
        cause: io::Error,
    },
}

impl From<Fault> for SaveError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(text) => SaveError::Refused(text.as_str().to_owned()),
            Fault::Failed(text, errno) => SaveError::Failed {
                step: text.as_str().to_owned(),
                cause: io::Error::from_raw_os_error(errno.0),
            },
        }
    }
}
