//! What a daemon counts, for `vm conf` and for tests.

/// What a daemon counted since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections of tasks and consoles closed because they broke the protocol.
    pub refused_local: u64,
    /// Frames of peers that broke the protocol; the link was closed each time.
    pub refused_peer: u64,
    /// Frames dropped because they went in a circle.
    pub circling: u64,
    /// Frames dropped because the log here was behind for too long, or too many waited for it.
    pub behind: u64,
    /// Bytes of tasks' output dropped because the way to their console was full.
    pub output_dropped: u64,
    /// What became of moves.
    pub moves: MoveCounters,
}

/// What became of the moves that this daemon had a part in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MoveCounters {
    /// Tasks that came here.
    pub came: u64,
    /// Tasks that went elsewhere.
    pub went: u64,
    /// Taken back: the target refused, or did not answer.
    pub offers_refused: u64,
    /// Taken back: the task could not be saved, or its image not be written.
    pub saves_refused: u64,
    /// Taken back: the image did not reach the target whole, or its process ended there.
    pub images_lost: u64,
    /// Taken back: the target's host was lost or left.
    pub targets_lost: u64,
    /// Taken back after the release: the log said that the task stays.
    pub stayed: u64,
    /// Went although this daemon, in doubt, had proposed that they stay.
    pub went_in_doubt: u64,
    /// Not come: the host that had offered them was lost before it released them.
    pub sources_lost: u64,
    /// Likewise, after it had.
    pub sources_lost_released: u64,
    /// Taken back: a coordinator called them off.
    pub called_off: u64,
    /// Orders of former coordinators, which did nothing.
    pub orders_stale: u64,
    /// Coordinators here whose processes died, or did not start.
    pub coordinators_lost: u64,
    /// Coordinators here that did not answer.
    pub coordinators_hung: u64,
    /// Single tasks that were suspended here.
    pub suspended: u64,
    /// Those that were resumed, here or elsewhere.
    pub resumed: u64,
    /// Those that another host keeps from then on.
    pub handed_on: u64,
    /// Frames that waited because their receiver stood still.
    pub frames_kept: u64,
}
