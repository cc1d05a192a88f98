//! Numbers of connections.

/// A connection that does not belong to a task or peer, or not yet. The shell numbers connections
/// and never reuses a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);
