//! Orders between daemons about direct connections between their tasks.

use crate::{direct::Secret, id::Tid};
use serde::{Deserialize, Serialize};

/// The tasks of a direct connection, each where the sender's log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectEnds {
    /// The task that dials.
    pub dials: Tid,
    /// The task that accepts.
    pub accepts: Tid,
    /// Incarnation of the task that dials.
    pub dials_incarnation: u32,
    /// Incarnation of the task that accepts.
    pub accepts_incarnation: u32,
    /// Generation of the application of both.
    pub generation: u32,
}

/// To the daemon of the task that is to accept: expect a direct connection. The reply is
/// [`DirectReady`]. A daemon that cannot, or a daemon whose log has one of the tasks elsewhere, does not
/// reply; the task asks again later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectAsk {
    /// Number chosen by the requester; the reply bears it.
    pub request: u64,
    /// The two tasks.
    pub ends: DirectEnds,
    /// Whether the links of the requester are sealed.
    pub sealed: bool,
    /// Tasks of the receiver's host cannot connect to the requester's host. So this request counts, also
    /// if both tasks ask at one time.
    pub is_only_way: bool,
}

/// Reply to [`DirectAsk`]: the connection is expected for
/// [`DIRECT_AWAITED`](crate::limits::DIRECT_AWAITED).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectReady {
    /// As in the request.
    pub request: u64,
    /// As in the request.
    pub ends: DirectEnds,
    /// The number of the connection.
    pub id: u64,
    /// The secret of the connection.
    pub secret: Secret,
    /// Whether the connection is sealed: the links of one of the two hosts are.
    pub sealed: bool,
}

/// A direct connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectClosed {
    /// The number of the connection.
    pub id: u64,
    /// The task of the sender's host.
    pub from: Tid,
    /// The task of the receiver's host.
    pub to: Tid,
    /// Why it is closed.
    pub why: DirectEnd,
}

/// Why a direct connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DirectEnd {
    /// The task of the sender is frozen to be moved, or has ended, or may not open the connection now.
    Left,
    /// The task of the sender cannot use the connection, or has not used it for long.
    GivenUp,
    /// The task of the sender could not make the connection, or no frame of its peer came by it. If the
    /// connection has not reached the receiver's host either, that host cannot be reached.
    NotMade,
    /// No connection came in time.
    Late,
}
