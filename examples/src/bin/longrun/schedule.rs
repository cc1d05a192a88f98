//! The times and hosts of losses, which follow from one seed.

use std::time::Duration;

/// The loss of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strike {
    /// Time since the first moment at which a loss was possible.
    pub at: Duration,
    /// The index of the host.
    pub host: usize,
}

/// An endless sequence of losses, like those of independent hosts: the times between two losses are
/// distributed exponentially, and all hosts are equally likely.
#[derive(Debug)]
pub struct Schedule {
    random: Random,
    mean: Duration,
    hosts: usize,
    at: Duration,
}

impl Schedule {
    /// The schedule of a seed, for a number of hosts and a mean time between two losses.
    pub fn new(seed: u64, mean: Duration, hosts: usize) -> Self {
        Schedule {
            random: Random(seed),
            mean,
            hosts,
            at: Duration::ZERO,
        }
    }
}

impl Iterator for Schedule {
    type Item = Strike;

    fn next(&mut self) -> Option<Strike> {
        self.at += self.mean.mul_f64(-self.random.unit().ln());
        let host = (self.random.unit() * self.hosts as f64) as usize;
        Some(Strike {
            at: self.at,
            host: host.min(self.hosts - 1),
        })
    }
}

/// Numbers that follow from a seed, independent of the releases of a crate: splitmix64 (Steele,
/// Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// A number from just above 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((mixed >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: Duration = Duration::from_secs(60);

    fn strikes(seed: u64, count: usize) -> Vec<Strike> {
        Schedule::new(seed, MEAN, 5).take(count).collect()
    }

    #[test]
    fn a_seed_is_a_schedule_for_ever() {
        assert_eq!(strikes(1, 100), strikes(1, 100));
        assert_ne!(strikes(1, 3), strikes(2, 3));
        let first = strikes(1, 2).into_iter();
        let first: Vec<_> = first
            .map(|it| (it.at.as_millis() as u64, it.host))
            .collect();
        assert_eq!(first, FIRST);
    }

    /// Milliseconds and hosts of the first losses of the seed.
    const FIRST: [(u64, usize); 2] = [(34_090, 3), (35_855, 2)];

    #[test]
    fn gaps_are_as_long_as_asked_on_average_and_no_host_is_spared() {
        let many = strikes(7, 10_000);
        let mean = many[many.len() - 1].at / many.len() as u32;
        let off = mean.as_secs_f64() / MEAN.as_secs_f64();
        assert!((0.97..1.03).contains(&off), "{mean:?}");
        // In an exponential distribution, the fraction 1/e of the values is greater than the mean.
        let gaps = many.windows(2).map(|two| two[1].at - two[0].at);
        let long = gaps.filter(|gap| *gap > MEAN).count();
        assert!((3_500..3_860).contains(&long), "{long}");
        for host in 0..5 {
            let count = many.iter().filter(|strike| strike.host == host).count();
            assert!((1_850..2_150).contains(&count), "{host}: {count}");
        }
    }
}
