//! Time limits and intervals of a cluster.

use std::time::Duration;

/// Bound on the time that a daemon takes to start, or to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Interval between checks for a change that sends no event.
pub(super) const LOOK: Duration = Duration::from_millis(5);
