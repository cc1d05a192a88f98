//! The summary of a committed checkpoint, for listings.

use vm_wire::CheckpointId;

/// The summary of a committed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Time of the cut. Milliseconds since 1970.
    pub taken_ms: u64,
    /// Length of all parts together, on all hosts. Bytes.
    pub bytes: u64,
    /// Length of the files of these parts. Bytes.
    pub stored: u64,
    /// The full checkpoint that the parts of this checkpoint are increments of; `None` for a full
    /// checkpoint.
    pub base: Option<CheckpointId>,
    /// Number of tasks.
    pub tasks: usize,
    /// Longest freeze time of a task. Microseconds.
    pub freeze_us: u64,
    /// From the request until everything was saved. Microseconds.
    pub took_us: u64,
    /// Chunks of in-transit messages: sent and not acknowledged.
    pub in_transit: u64,
    /// Name of the master's program, as text for users.
    pub program: String,
}
