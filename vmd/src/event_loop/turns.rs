//! Measures the turns of the event loop. The daemon promises that no turn takes longer than a
//! millisecond; these figures show whether it keeps the promise.

use std::{fmt, time::Duration};
use vm_machine::Time;

/// Bound on the length of one turn. A longer turn is counted and logged.
pub const TURN_MAX: Duration = Duration::from_millis(1);

/// Number and lengths of the turns so far.
#[derive(Debug, Default)]
pub struct Turns {
    count: u64,
    late: u64,
    longest: Duration,
}

impl Turns {
    /// Counts a turn that began at `start` and ended at `end`.
    pub fn add(&mut self, start: Time, end: Time) {
        let length = end.since(start);
        self.count += 1;
        if length > TURN_MAX {
            self.late += 1;
            log::debug!("a turn of the event loop took {length:?}");
        }
        self.longest = self.longest.max(length);
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} turns of the event loop, {} above {TURN_MAX:?}, the longest {:?}",
            self.count, self.late, self.longest
        )
    }
}
