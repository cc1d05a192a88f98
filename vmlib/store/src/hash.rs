//! The hash of images, and of the files that hold or describe images: XXH3 of 128 bits, as fast as
//! memory.
//!
//! The hash finds accidental damage: that a damaged file keeps its hash is practically impossible.
//! The hash does not protect against a user who may write into the store. The manifest, which holds
//! the hashes, lies beside the images, so no hash could protect against such a user.

use std::fmt;
use xxhash_rust::xxh3::Xxh3;

/// Length of a hash. Bytes.
pub(crate) const HASH: usize = 16;

/// A hash that is updated with each piece that is read or written.
#[derive(Clone, Default)]
pub(crate) struct Hasher(Xxh3);

impl Hasher {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all bytes so far.
    pub fn finish(&self) -> [u8; HASH] {
        self.0.digest128().to_le_bytes()
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hasher({:032x})", self.0.digest128())
    }
}

#[cfg(test)]
pub(crate) fn of(bytes: &[u8]) -> [u8; HASH] {
    xxhash_rust::xxh3::xxh3_128(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_hash_that_others_call_so() {
        // The value that `xxhsum -H2` prints for an empty file.
        assert_eq!(
            of(b""),
            0x99aa06d3014798d86001c324468d497f_u128.to_le_bytes()
        );
        let bytes: Vec<u8> = (0..100_000u32).map(|it| (it % 251) as u8).collect();
        let mut hasher = Hasher::new();
        for part in bytes.chunks(777) {
            hasher.update(part);
        }
        assert_eq!(hasher.finish(), of(&bytes));
    }
}
