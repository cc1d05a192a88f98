//! How long the turns of the event loop take: a daemon that promises no turn above a millisecond
//! has to measure it.

use std::{fmt, time::Duration};
use vm_machine::Time;

/// No turn of the loop shall take longer.
pub const TURN_MAX: Duration = Duration::from_millis(1);

/// The turns so far.
#[derive(Debug, Default)]
pub struct Turns {
    count: u64,
    late: u64,
    longest: Duration,
}

impl Turns {
    /// A turn from `start` to `end` is over.
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
