//! The configuration of a daemon: constant after its start.

use crate::AgreementConfig;
use std::time::Duration;
use vm_wire::{agreed::HostFacts, limits};

/// What a daemon needs to know at its start.
#[derive(Debug, Clone)]
pub struct DaemonConfig {
    /// What the host says of itself.
    pub facts: HostFacts,
    /// Drawn at random at the start; makes asking twice for a place in the machine one host.
    pub nonce: u64,
    /// Drawn at random at the start, secret: tokens of tasks are made of it.
    pub seed: u64,
    /// The release, for people.
    pub release: String,
    /// Unacknowledged bytes that a task may have towards one receiver.
    pub window_bytes: u64,
    /// Bytes of messages that a task may keep unread.
    pub inbox_bytes: u64,
    /// Whether it drains its host when it is asked to end ([`Input::Stop`](crate::Input::Stop)), and how long at most,
    /// before it leaves with what is left.
    pub drain_at_stop: Option<Duration>,
    /// Whether the applications of tasks that cannot leave are suspended in that drain.
    pub suspend_at_stop: bool,
    /// For how long applications are suspended that cannot leave when this host drains. Milliseconds;
    /// 0: until they are resumed.
    pub suspended_for_ms: u64,
    /// The working folder of this host: what a task has open below it is looked for below that of
    /// the host to which it moves.
    pub work_dir: Option<String>,
    /// Where its checkpoints are, for people.
    pub store: String,
    /// The time of day at the shell's [`Time`](crate::Time) 0: milliseconds since 1970.
    pub clock_ms: u64,
    /// Whether it makes links at once to the hosts of the machine that it was let into, and within which
    /// time it has to have them ([`Output::Linked`](crate::Output::Linked)).
    pub link_time: Option<Duration>,
    /// For the log.
    pub agreement: AgreementConfig,
}

impl DaemonConfig {
    /// The defaults, for a host of these facts.
    pub fn new(facts: HostFacts, nonce: u64) -> Self {
        DaemonConfig {
            facts,
            nonce,
            seed: nonce,
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
