//! Scores of matches, mismatches and gaps.

use crate::fasta::UNKNOWN;
use serde::{Deserialize, Serialize};

/// Bound on the gain or cost of one base or one step of a gap.
///
/// It keeps every cell of a matrix with a million rows within `i32`, and lets the kernel use lanes
/// of 16 bits for most blocks.
pub const COST_MAX: i32 = 100;

/// Scores of DNA. All four are positive; costs are subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scoring {
    /// The score of two equal bases.
    pub matching: i32,
    /// The cost of two different bases.
    pub mismatch: i32,
    /// The cost of a gap, in addition to that of its bases.
    pub gap_open: i32,
    /// The cost of each base of a gap.
    pub gap_extend: i32,
}

/// The scoring of blastn: 2, -3, 5, 2.
impl Default for Scoring {
    fn default() -> Self {
        Scoring {
            matching: 2,
            mismatch: 3,
            gap_open: 5,
            gap_extend: 2,
        }
    }
}

/// A scoring that the algorithm cannot use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "match, mismatch and gap extension must be 1 to {COST_MAX}, gap opening 0 to {COST_MAX}; \
     got {0:?}"
)]
pub struct ScoringError(Scoring);

impl Scoring {
    /// Refuses a scoring that makes no local alignment, or could overflow.
    pub fn checked(self) -> Result<Self, ScoringError> {
        let costs = 1..=COST_MAX;
        let fits = costs.contains(&self.matching)
            && costs.contains(&self.mismatch)
            && costs.contains(&self.gap_extend)
            && (0..=COST_MAX).contains(&self.gap_open);
        if fits {
            Ok(self)
        } else {
            Err(ScoringError(self))
        }
    }

    /// Whether two base codes match; unknown bases match nothing.
    pub fn is_match(query: u8, target: u8) -> bool {
        query == target && query < UNKNOWN
    }
}
