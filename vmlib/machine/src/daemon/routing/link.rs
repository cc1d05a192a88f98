//! A link to another host.

use std::time::Duration;

/// A link that is there, or is being made.
#[derive(Debug)]
pub(in crate::daemon) struct Link {
    pub(super) state: LinkState,
    /// How long to wait when it breaks.
    pub(super) retry: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// The shell was asked to make it.
    Asked,
    Up,
    /// It is made again when its time comes.
    Waiting,
}
