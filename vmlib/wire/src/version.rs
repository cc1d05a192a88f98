//! Versions of the protocol: the range that each end supports, and the choice between them.

use serde::{Deserialize, Serialize};

/// The newest version that this build supports.
pub const CURRENT: u16 = 5;
/// The oldest version that this build supports.
pub const OLDEST: u16 = 5;

/// The inclusive range of versions that one end supports. Each end sends its range first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The oldest supported version.
    pub oldest: u16,
    /// The newest supported version.
    pub newest: u16,
}

impl Offer {
    /// The range of this build.
    pub const OURS: Offer = Offer {
        oldest: OLDEST,
        newest: CURRENT,
    };

    /// The newest version that both ends support.
    ///
    /// # Errors
    /// [`VersionError`] when the ranges do not overlap.
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
    /// The range of this side.
    pub ours: Offer,
    /// The range of the other side.
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
