//! How long a cluster waits for its daemons, and how often it looks.

use std::time::Duration;

/// The longest that a daemon takes to start, or to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// The pace of looking whether something has happened that sends no event.
pub(super) const LOOK: Duration = Duration::from_millis(5);
