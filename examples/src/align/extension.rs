//! Finds the beginning of an alignment from the cell in which it ends.
//!
//! The sweep stores no path back: 240,000 million cells would not fit anywhere. But an alignment
//! that ends in a known cell with a known score S can be found by the same recurrence, run
//! backwards from that cell until a cell reaches S (Huang and Miller 1991 use the idea for linear
//! space). The pass stays small, because cells that are not above 0 are dropped. If the part
//! between a cell and the end has no positive score, the alignment up to that cell alone is no
//! worse, and the end is only the tail of another alignment. In that case the pass ends without
//! reaching S, and the cell has no alignment of its own.
//!
//! Each value packs score, matches and columns into one `i64`, so that one addition extends an
//! alignment, and one comparison prefers the higher score, then more matches, then fewer columns.
//! So identity and length are known without a table of the path.

use super::scoring::Scoring;
use std::ops::Range;

/// Bound on the columns of an alignment, so that they fit into a packed value.
pub const ALIGNMENT_COLUMNS_MAX: usize = (1 << 20) - 1;

/// Bound on the score of an alignment, so that it fits into a packed value.
const SCORE_MAX: usize = (1 << 23) - 1;

/// The position of an alignment, and its numbers of columns and matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Bases of the query.
    pub query: Range<usize>,
    /// Bases of the target.
    pub target: Range<usize>,
    /// Columns with two equal bases.
    pub matches: usize,
    /// All columns, gaps included.
    pub columns: usize,
}

/// Number of bases of a query up to which every alignment fits into packed values.
///
/// An alignment above 0 pays for its gaps out of its matches, of which it has at most one per row.
pub fn query_max(scoring: Scoring) -> usize {
    let gap_per_match = scoring.matching as usize / scoring.gap_extend as usize + 1;
    let by_score = SCORE_MAX / scoring.matching as usize;
    by_score.min(ALIGNMENT_COLUMNS_MAX / (1 + gap_per_match))
}

/// The alignment of `score` that ends before row `end.0` and column `end.1`; `None` if a part of it
/// with the same beginning has no lower score.
pub fn extend(
    query: &[u8],
    target: &[u8],
    scoring: Scoring,
    end: (usize, usize),
    score: i32,
) -> Option<Extent> {
    let mut front = Front::new(Steps::new(scoring));
    for back in 1..=end.0 {
        let (columns_back, value) = front.advance(query[end.0 - back], &target[..end.1])?;
        if value.score() >= score {
            return Some(Extent {
                query: end.0 - back..end.0,
                target: end.1 - columns_back..end.1,
                matches: value.matches(),
                columns: value.columns(),
            });
        }
    }
    None
}

/// Score, matches and columns of an alignment: 24, 20 and 20 bits. Columns count downwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Packed(i64);

impl Packed {
    /// Below everything, and far from overflow.
    const DEAD: Packed = Packed(i64::MIN / 2);

    fn step(score: i32, matches: i64) -> Self {
        Packed((i64::from(score) << 40) + (matches << 20) - 1)
    }

    fn then(self, step: Packed) -> Self {
        Packed(self.0 + step.0)
    }

    /// The value itself if its score is above 0, else dead. A positive score includes a match, and
    /// then the lower 40 bits are positive: columns borrow nothing from the score.
    fn pruned(self) -> Self {
        if self.0 > 1 << 40 { self } else { Packed::DEAD }
    }

    fn score(self) -> i32 {
        (self.0 >> 40) as i32
    }

    fn matches(self) -> usize {
        let low = self.0 & ((1 << 40) - 1);
        (low as usize).div_ceil(1 << 20)
    }

    fn columns(self) -> usize {
        (self.matches() << 20) - (self.0 & ((1 << 40) - 1)) as usize
    }
}

/// The score that each kind of column adds.
struct Steps {
    matching: Packed,
    mismatch: Packed,
    gap_first: Packed,
    gap_next: Packed,
}

impl Steps {
    fn new(scoring: Scoring) -> Self {
        Steps {
            matching: Packed::step(scoring.matching, 1),
            mismatch: Packed::step(-scoring.mismatch, 0),
            gap_first: Packed::step(-scoring.gap_open - scoring.gap_extend, 0),
            gap_next: Packed::step(-scoring.gap_extend, 0),
        }
    }
}

/// The last row of the pass. Columns count backwards from the end.
struct Front {
    steps: Steps,
    /// Best alignments from each cell to the end.
    h: Vec<Packed>,
    /// The best of those alignments that begin with a gap along the column.
    f: Vec<Packed>,
    /// Columns outside of this range are dead.
    live: Range<usize>,
}

impl Front {
    fn new(steps: Steps) -> Self {
        Front {
            steps,
            h: vec![Packed(0)],
            f: vec![Packed::DEAD],
            live: 0..1,
        }
    }

    /// Computes the row before. Returns the column and the value of its best cell, the one nearest
    /// to the end if there are several. `None` if no cell is alive any more.
    fn advance(&mut self, base: u8, target: &[u8]) -> Option<(usize, Packed)> {
        let mut best: Option<(usize, Packed)> = None;
        let mut live: Option<Range<usize>> = None;
        let (mut diagonal, mut e) = (Packed::DEAD, Packed::DEAD);
        let mut column = self.live.start;
        // Beyond the cell after the live ones of the row behind, only a gap along the row can be
        // alive.
        while column <= target.len() && (column <= self.live.end || e > Packed::DEAD) {
            if column == self.h.len() {
                self.h.push(Packed::DEAD);
                self.f.push(Packed::DEAD);
            }
            let aligned = match column.checked_sub(1) {
                Some(before) if Scoring::is_match(base, target[target.len() - 1 - before]) => {
                    diagonal.then(self.steps.matching)
                }
                Some(_) => diagonal.then(self.steps.mismatch),
                None => Packed::DEAD,
            };
            diagonal = self.h[column];
            let f = diagonal
                .then(self.steps.gap_first)
                .max(self.f[column].then(self.steps.gap_next))
                .pruned();
            let h = aligned.max(e).max(f).pruned();
            e = h
                .then(self.steps.gap_first)
                .max(e.then(self.steps.gap_next))
                .pruned();
            (self.h[column], self.f[column]) = (h, f);
            if h > Packed::DEAD {
                live = Some(live.map_or(column, |range| range.start)..column + 1);
                if best.is_none_or(|(_, value)| h > value) {
                    best = Some((column, h));
                }
            }
            column += 1;
        }
        self.live = live?;
        best
    }
}
