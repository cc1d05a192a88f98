//! The state of the program that the library holds for it, and the library's part of a portable state.

use crate::callbacks::Callbacks;
use serde::{Deserialize, Serialize};
use std::fmt;
use vm_endpoint::{EndpointState, ReceivedState, SendingState};
use vm_wire::task::Welcome;

/// The saved value and the callbacks of the program, beside the core.
#[derive(Default)]
pub(crate) struct Own {
    /// The value that this process goes on from, until the program has asked for it.
    pub(crate) saved: Option<Vec<u8>>,
    /// See [`crate::Task::around_saves`].
    pub(crate) callbacks: Vec<Box<dyn Callbacks>>,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let saved = self.saved.as_ref().map(Vec::len);
        f.debug_struct("Own").field("saved", &saved).finish()
    }
}

/// The library's part of a portable state.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LibraryState {
    pub(crate) welcome: Welcome,
    pub(crate) endpoint: EndpointState,
    /// Number of the last request.
    #[serde(default)]
    pub(crate) request: u64,
    #[serde(default)]
    pub(crate) strays: Vec<ReceivedState>,
    /// Messages that the program has started to send and that are not in their channels.
    #[serde(default)]
    pub(crate) started: Vec<SendingState>,
}
