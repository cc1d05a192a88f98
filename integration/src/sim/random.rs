//! The only source of random numbers: xoshiro256**, seeded through splitmix64.
//!
//! The generator is implemented here, so that a seed means the same run for ever, independent of
//! the releases of a crate. (Blackman and Vigna, "Scrambled linear pseudorandom number generators",
//! 2018.)

/// A stream of numbers that follows from its seed alone.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream that follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let mut next = || {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Random {
            state: [next(), next(), next(), next()],
        }
    }

    /// An independent stream, for a part whose draws must not shift those of others.
    pub fn split(&mut self) -> Random {
        Random::new(self.bits())
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which is not 0. The bias is below 2^-40 for the bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 draws.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, or `None` if there are none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        if choices.is_empty() {
            return None;
        }
        choices.get(self.below(choices.len() as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_means_the_same_numbers() {
        let mut random = Random::new(1);
        let numbers = [random.bits(), random.bits(), random.bits()];
        assert_eq!(
            numbers,
            [
                12_966_619_160_104_079_557,
                9_600_361_134_598_540_522,
                10_590_380_919_521_690_900
            ]
        );
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut random = Random::new(7);
        for _ in 0..1000 {
            assert!((3..=9).contains(&random.between(3, 9)));
        }
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
