//! `version`.

use super::console::Console;
use crate::{event::Event, failure::ClientError};

impl Console {
    /// Shows the releases of this console and of the daemon, if one runs.
    pub(super) fn version(&mut self) -> anyhow::Result<u8> {
        let daemon = match self.client() {
            Ok(client) => Some(client.daemon().clone()),
            Err(ClientError::NoDaemon { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        self.done(&Event::Version(daemon.as_ref()))
    }
}
