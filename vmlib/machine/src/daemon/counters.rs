//! Counters of a daemon, for tests and the simulator.

/// Counters of a daemon since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections of tasks and consoles closed because they broke the protocol.
    pub refused_local: u64,
    /// Frames of peers that broke the protocol; the link was closed each time.
    pub refused_peer: u64,
    /// Frames dropped because their routes formed a circle.
    pub circling: u64,
    /// Frames dropped because the local log was behind for too long, or because too many frames
    /// waited for it.
    pub behind: u64,
    /// Bytes of tasks' output dropped because the channel or queue to the console was full.
    pub output_dropped: u64,
    /// Direct connections that were handed to tasks of this host.
    pub directs_accepted: u64,
    /// Results of moves.
    pub moves: MoveCounters,
}

/// Results of the moves in which this daemon took part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MoveCounters {
    /// Tasks that moved to this host.
    pub came: u64,
    /// Tasks that moved from this host to another.
    pub went: u64,
    /// Moves aborted because the target refused, or did not reply.
    pub offers_refused: u64,
    /// Moves aborted because the task could not be saved, or its image could not be written.
    pub saves_refused: u64,
    /// Moves aborted because the image did not reach the target completely, or its process ended
    /// there.
    pub images_lost: u64,
    /// Moves aborted because the target was lost or left.
    pub targets_lost: u64,
    /// Moves that failed after the release, because the log decided that the task stays.
    pub stayed: u64,
    /// Moves that succeeded although this daemon, in doubt, had proposed that the task stays.
    pub went_in_doubt: u64,
    /// Moves to this host that failed because the source was lost before the release.
    pub sources_lost: u64,
    /// Moves to this host that failed because the source was lost after the release.
    pub sources_lost_released: u64,
    /// Moves that a coordinator cancelled.
    pub cancelled: u64,
    /// Orders of former coordinators, which were rejected.
    pub orders_stale: u64,
    /// Coordinator processes of this host that ended, or did not start.
    pub coordinators_lost: u64,
    /// Coordinator processes of this host that did not handle a frame in time.
    pub coordinators_hung: u64,
    /// Single tasks that were suspended on this host.
    pub suspended: u64,
    /// Suspended tasks of this host that were resumed, here or on another host.
    pub resumed: u64,
    /// Suspended tasks of this host that were handed on to another host.
    pub handed_on: u64,
    /// Frames that arrived for a frozen task.
    pub frames_kept: u64,
}
