//! Time in the state machines. The state machines read no clock: the shell passes the time to each
//! call, so that a simulator can pass any time.

use std::{fmt, ops, time::Duration};

/// A moment: microseconds since an origin that the shell chooses (in a daemon: CLOCK_BOOTTIME).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// A sum beyond the range is the last moment, which means never.
impl ops::Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(micros))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_the_range_is_never() {
        let now = Time(5_000_000);
        assert_eq!(now + Duration::from_micros(7), Time(5_000_007));
        assert_eq!(now + Duration::MAX, Time(u64::MAX));
        assert_eq!(now + Duration::from_micros(u64::MAX), Time(u64::MAX));
        assert_eq!(Time(7).since(Time(u64::MAX)), Duration::ZERO);
    }
}
