//! The summary of a committed checkpoint, for listings.

use vm_wire::CheckpointId;

/// The summary of a committed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Time of the cut. Milliseconds since 1970.
    pub taken_ms: u64,
    /// Bytes of all its parts together, on all hosts.
    pub bytes: u64,
    /// Bytes of the files of these parts.
    pub stored: u64,
    /// The full checkpoint on which the checkpoint is based, if it has increments.
    pub base: Option<CheckpointId>,
    /// Number of its tasks.
    pub tasks: usize,
    /// Longest freeze time of a task. Microseconds.
    pub freeze_us: u64,
    /// From the request until everything was saved. Microseconds.
    pub took_us: u64,
    /// Chunks of messages in transit: sent, and not acknowledged.
    pub in_transit: u64,
    /// The master's program, as text for users.
    pub program: String,
}
