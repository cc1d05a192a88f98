//! A host's own clock, whose origin and rate differ from the world's.

use super::queue::Moment;
use vm_machine::Time;

/// Rates differ by at most this much from the true one. Parts per million.
///
/// Two hosts then differ by less than `LEASE_MARGIN / LEASE`, which is the only assumption of the
/// leases.
pub const SKEW_PPM_MAX: u64 = 80_000;

/// The simulated CLOCK_BOOTTIME of one host.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// The moment at which the rate was set last, and the reading of the clock at that moment.
    since: Moment,
    shown: u64,
    /// Parts per million of true time.
    rate_ppm: u64,
}

impl Clock {
    /// A clock that shows `shown` at the world's start and runs at the true rate.
    pub fn new(shown: u64) -> Self {
        Clock {
            since: 0,
            shown,
            rate_ppm: 1_000_000,
        }
    }

    /// The clock's reading at `moment`.
    pub fn read(&self, moment: Moment) -> Time {
        Time(self.shown + (moment - self.since) * self.rate_ppm / 1_000_000)
    }

    /// The first moment at which the clock shows `time` or more.
    pub fn when(&self, time: Time) -> Moment {
        let ahead = time.0.saturating_sub(self.shown);
        self.since + (ahead * 1_000_000).div_ceil(self.rate_ppm)
    }

    /// Makes the clock run at `rate_ppm` from `moment` on.
    pub fn set_rate(&mut self, moment: Moment, rate_ppm: u64) {
        *self = Clock {
            shown: self.read(moment).0,
            since: moment,
            rate_ppm,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_clock_shows_a_time_at_the_predicted_moment() {
        let mut clock = Clock::new(500);
        clock.set_rate(1_000, 1_000_000 + SKEW_PPM_MAX);
        for target in [1_500, 1_501, 99_999, 5_000_000] {
            let moment = clock.when(Time(target));
            assert!(clock.read(moment).0 >= target);
            assert!(moment == 1_000 || clock.read(moment - 1).0 < target);
        }
    }
}
