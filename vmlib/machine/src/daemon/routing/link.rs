//! A link to another host.

use std::time::Duration;

/// A link that is up, is being made, or is made again later.
#[derive(Debug)]
pub(in crate::daemon) struct Link {
    pub(super) state: LinkState,
    /// The pause before the next attempt when the link breaks.
    pub(super) retry: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// The shell was asked to make the link.
    Asked,
    Up,
    /// The link is made again when its timer is due.
    Waiting,
}
