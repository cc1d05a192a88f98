//! Which versions of the protocol two ends can speak, and which one they choose.

use serde::{Deserialize, Serialize};

/// The version that this build speaks best.
pub const CURRENT: u16 = 3;
/// The oldest version that this build still speaks.
pub const OLDEST: u16 = 3;

/// The inclusive range of versions that one end can speak; each end sends its own first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The oldest version spoken.
    pub oldest: u16,
    /// The newest version spoken.
    pub newest: u16,
}

impl Offer {
    /// What this build offers.
    pub const OURS: Offer = Offer {
        oldest: OLDEST,
        newest: CURRENT,
    };

    /// The newest version that both speak.
    ///
    /// # Errors
    /// [`VersionError`] when the ranges do not meet.
    pub fn choose(self, theirs: Offer) -> Result<u16, VersionError> {
        let newest = self.newest.min(theirs.newest);
        if newest >= self.oldest && newest >= theirs.oldest && theirs.oldest <= theirs.newest {
            Ok(newest)
        } else {
            Err(VersionError { ours: self, theirs })
        }
    }
}

/// The two ends have no version in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no common protocol version: this side speaks {} to {}, the other {} to {}; install the same release on both",
    ours.oldest, ours.newest, theirs.oldest, theirs.newest
)]
pub struct VersionError {
    /// What this side speaks.
    pub ours: Offer,
    /// What the other side speaks.
    pub theirs: Offer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_chosen() {
        let offer = |oldest, newest| Offer { oldest, newest };
        assert_eq!(offer(1, 3).choose(offer(2, 9)), Ok(3));
        assert_eq!(offer(2, 9).choose(offer(1, 3)), Ok(3));
        assert!(offer(1, 3).choose(offer(4, 9)).is_err());
        assert!(offer(1, 3).choose(offer(3, 1)).is_err());
    }
}
