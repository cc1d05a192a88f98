//! The configuration of a daemon, which is constant after its start.

use crate::AgreementConfig;
use std::time::Duration;
use vm_wire::{agreed::HostFacts, limits, seal::KEY};

/// The configuration of a daemon.
#[derive(Debug, Clone)]
pub struct DaemonConfig {
    /// Facts about the host that the agreed state contains.
    pub facts: HostFacts,
    /// Drawn at random at the start. A join that is repeated with the same nonce adds only one
    /// host.
    pub nonce: u64,
    /// Drawn at random at the start, and secret: the seed of the tokens of tasks.
    pub seed: u64,
    /// Drawn at random at the start, and secret: the secrets of direct connections are derived from it.
    pub direct_seed: [u8; KEY],
    /// Whether the links of this host, and the direct connections of its tasks, are sealed.
    pub sealed: bool,
    /// The release of the daemon, for people.
    pub release: String,
    /// Unacknowledged bytes that a task may retain for one receiver.
    pub window_bytes: u64,
    /// Bytes of unread messages in the inbox of a task.
    pub inbox_bytes: u64,
    /// Time limit of the drain that the daemon makes when it is asked to end
    /// ([`Input::Stop`](crate::Input::Stop)), before it leaves in any case. `None`: it leaves
    /// without a drain.
    pub drain_at_stop: Option<Duration>,
    /// Whether that drain suspends the applications of tasks that cannot leave.
    pub suspend_at_stop: bool,
    /// Duration for which an application is suspended if it cannot leave during a drain of this
    /// host. Milliseconds; 0 for no limit.
    pub suspended_for_ms: u64,
    /// The working folder of this host. The path of an open file below it is replaced by the path
    /// below the working folder of the host to which the task moves.
    pub work_dir: Option<String>,
    /// The path of the store, for people.
    pub store: String,
    /// The time of day at the shell's [`Time`](crate::Time) 0, in milliseconds since 1970.
    pub clock_ms: u64,
    /// Time limit for the links that a host makes at once when it is admitted to a machine
    /// ([`LinkOutput::AllUp`](crate::LinkOutput::AllUp)). `None`: the daemon makes links on demand
    /// only.
    pub link_time: Option<Duration>,
    /// The configuration of the agreement.
    pub agreement: AgreementConfig,
}

impl DaemonConfig {
    /// The default configuration for a host with these facts.
    pub fn new(facts: HostFacts, nonce: u64) -> Self {
        DaemonConfig {
            facts,
            nonce,
            seed: nonce,
            direct_seed: std::array::from_fn(|at| nonce.to_le_bytes()[at % 8]),
            sealed: true,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            window_bytes: limits::WINDOW_BYTES_DEFAULT,
            inbox_bytes: limits::INBOX_BYTES_DEFAULT,
            drain_at_stop: None,
            suspend_at_stop: false,
            suspended_for_ms: 0,
            work_dir: None,
            store: String::new(),
            link_time: None,
            clock_ms: 0,
            agreement: AgreementConfig::default(),
        }
    }
}
