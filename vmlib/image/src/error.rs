//! Why a save failed, and how a restore that failed ends its process.

use crate::frozen::fault::Fault;
use std::io;

/// The exit code of the restorer when the image cannot be restored.
pub const CANNOT_RESTORE: i32 = 124;

/// The exit code of a restored process that could not resume.
pub const CANNOT_GO_ON: i32 = 125;

/// Why a process was not saved. It runs on in any case.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The process has something that cannot be restored.
    #[error("this process cannot be saved: {0}")]
    Refused(String),
    /// Something that should work did not: a full disk, a closed socket.
    #[error("the save failed, {step}: {cause}")]
    Failed {
        /// What was being done.
        step: String,
        /// What the system says.
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
