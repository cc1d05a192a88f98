//! Sweeps one block of the matrix, many cells at a time.
//!
//! H is the best score of an alignment that ends in a cell; E that of one that ends there in a gap
//! along the row; F that of one that ends there in a gap along the column. The recurrence is
//!
//! ```text
//! E(i, j+1) = max(H(i, j) - open - extend, E(i, j) - extend)
//! F(i+1, j) = max(H(i, j) - open - extend, F(i, j) - extend)
//! H(i, j)   = max(0, H(i-1, j-1) + score(i, j), E(i, j), F(i, j))
//! ```
//!
//! E and F are stored for the cell that *reads* them, which saves one subtraction each. The cells
//! of an anti-diagonal (i + j = d) depend only on the two anti-diagonals before. So the kernel
//! holds five arrays indexed by the row i (H of three anti-diagonals, F of two, all shifted by one
//! so that slot 0 is the row above the block, and E in place), and computes a diagonal in one loop
//! without branches, which the compiler turns into vector instructions.
//!
//! Lanes are 16 bits wide if the scores of the block fit into them: no cell exceeds the highest
//! score on the edges plus the gain of the block's longest possible run of matches. The other
//! blocks, in the middle of a very long alignment, are swept with 32 bits. Both widths give the
//! same values.

use super::scoring::Scoring;
use crate::fasta::UNKNOWN;
use std::mem::swap;

/// The last row of a block, which the block below needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowEdge {
    /// H of the last row, preceded by the cell to the left of it (the lower block's corner).
    pub h: Vec<i32>,
    /// F for the row below.
    pub f: Vec<i32>,
}

/// The last column of a block, which the block to its right needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnEdge {
    /// H of the last column.
    pub h: Vec<i32>,
    /// E for the column to the right.
    pub e: Vec<i32>,
}

impl RowEdge {
    /// The upper border of the matrix.
    pub fn border(columns: usize) -> Self {
        RowEdge {
            h: vec![0; columns + 1],
            f: vec![0; columns],
        }
    }
}

impl ColumnEdge {
    /// The left border of the matrix.
    pub fn border(rows: usize) -> Self {
        ColumnEdge {
            h: vec![0; rows],
            e: vec![0; rows],
        }
    }
}

/// The best cell of a block. Of several cells with the highest score, the one on the first
/// anti-diagonal, and there the one in the first row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// H of the cell; at least 1.
    pub score: i32,
    /// Row within the block.
    pub row: usize,
    /// Column within the block.
    pub column: usize,
}

/// The result of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// The edge for the block below.
    pub bottom: RowEdge,
    /// The edge for the block to the right.
    pub right: ColumnEdge,
    /// The best cell; `None` if no cell is above 0.
    pub peak: Option<Peak>,
}

/// Sweeps blocks. Its arrays are reused for the next block.
#[derive(Debug)]
pub struct Kernel {
    scoring: Scoring,
    narrow: Lanes<i16>,
    wide: Lanes<i32>,
}

impl Kernel {
    /// A kernel for one scoring.
    pub fn new(scoring: Scoring) -> Self {
        Kernel {
            scoring,
            narrow: Lanes::new(scoring),
            wide: Lanes::new(scoring),
        }
    }

    /// Sweeps the block of `query` (rows) against `target` (columns), both at least one base.
    ///
    /// # Panics
    /// If an edge does not have the block's size.
    pub fn sweep(
        &mut self,
        query: &[u8],
        target: &[u8],
        top: &RowEdge,
        left: &ColumnEdge,
    ) -> Swept {
        assert!(!query.is_empty() && !target.is_empty(), "an empty block");
        assert_eq!((top.h.len(), top.f.len()), (target.len() + 1, target.len()));
        assert_eq!((left.h.len(), left.e.len()), (query.len(), query.len()));
        let highest = top.h.iter().chain(&left.h).max().copied().unwrap_or(0);
        let longest_run = query.len().min(target.len()) as i64;
        let reachable = i64::from(highest) + longest_run * i64::from(self.scoring.matching);
        if reachable <= i64::from(i16::MAX) {
            self.narrow.sweep(query, target, top, left)
        } else {
            self.wide.sweep(query, target, top, left)
        }
    }
}

/// A vector lane. Its arithmetic never overflows for values that [`Kernel::sweep`] accepts.
trait Lane: Copy + Ord + Default {
    fn narrowed(value: i32) -> Self;
    fn widened(self) -> i32;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
}

macro_rules! lane {
    ($($type:ty)*) => { $(impl Lane for $type {
        fn narrowed(value: i32) -> Self {
            debug_assert!(Self::try_from(value).is_ok());
            value as Self
        }
        fn widened(self) -> i32 {
            self.into()
        }
        fn plus(self, other: Self) -> Self {
            self.wrapping_add(other)
        }
        fn minus(self, other: Self) -> Self {
            self.wrapping_sub(other)
        }
    })* };
}

lane! { i16 i32 }

/// The scoring as lane values.
#[derive(Debug, Clone, Copy)]
struct Costs<L> {
    matching: L,
    mismatch: L,
    gap_first: L,
    gap_next: L,
}

#[derive(Debug)]
struct Lanes<L> {
    costs: Costs<L>,
    query: Vec<L>,
    /// The target in reverse order, so that a diagonal reads it forwards.
    target: Vec<L>,
    /// H of the diagonals d - 2, d - 1 and d; slot i + 1 is row i, slot 0 the row above the block.
    h: [Vec<L>; 3],
    /// F for the present diagonal and the next one; slots as for `h`.
    f: [Vec<L>; 2],
    /// E by row, for the next column of the row.
    e: Vec<L>,
}

impl<L: Lane> Lanes<L> {
    fn new(scoring: Scoring) -> Self {
        Lanes {
            costs: Costs {
                matching: L::narrowed(scoring.matching),
                mismatch: L::narrowed(-scoring.mismatch),
                gap_first: L::narrowed(scoring.gap_open + scoring.gap_extend),
                gap_next: L::narrowed(scoring.gap_extend),
            },
            query: Vec::new(),
            target: Vec::new(),
            h: Default::default(),
            f: Default::default(),
            e: Vec::new(),
        }
    }

    fn sweep(&mut self, query: &[u8], target: &[u8], top: &RowEdge, left: &ColumnEdge) -> Swept {
        let (rows, columns) = (query.len(), target.len());
        self.load(query, target, left);
        let mut bottom = RowEdge::border(columns);
        let mut right = ColumnEdge::border(rows);
        bottom.h[0] = left.h[rows - 1];
        let mut best = L::default();
        let mut peak = None;
        self.h[1][0] = L::narrowed(top.h[0]);
        for d in 0..rows + columns - 1 {
            // `h` now holds the diagonals d - 2, d - 1 and d. The values from the edges are added
            // here.
            self.h.rotate_left(1);
            if d < columns {
                self.h[1][0] = L::narrowed(top.h[d + 1]);
                self.f[0][0] = L::narrowed(top.f[d]);
            }
            let (first, end) = ((d + 1).saturating_sub(columns), (d + 1).min(rows));
            let [two_ago, _, now] = &mut self.h;
            let [f_now, f_next] = &mut self.f;
            let highest = diagonal(
                self.costs,
                &self.query[first..end],
                &self.target[columns - 1 + first - d..][..end - first],
                &two_ago[first..end],
                &f_now[first..end],
                &mut self.e[first..end],
                &mut f_next[first + 1..=end],
                &mut now[first + 1..=end],
            );
            if highest > best {
                best = highest;
                let row = first + position(&now[first + 1..=end], highest);
                peak = Some(Peak {
                    score: highest.widened(),
                    row,
                    column: d - row,
                });
            }
            if let Some(row) = (d + 1).checked_sub(columns) {
                right.h[row] = now[row + 1].widened();
            }
            if let Some(column) = (d + 1).checked_sub(rows) {
                bottom.h[column + 1] = now[rows].widened();
                bottom.f[column] = f_next[rows].widened();
            }
            if end < rows {
                // The next diagonal also enters row `end`, whose left neighbour is on the edge.
                now[end + 1] = L::narrowed(left.h[end]);
            }
            swap(f_now, f_next);
        }
        for (value, lane) in right.e.iter_mut().zip(&self.e) {
            *value = lane.widened();
        }
        Swept {
            bottom,
            right,
            peak,
        }
    }

    /// Loads the sequences and the left edge into the arrays.
    fn load(&mut self, query: &[u8], target: &[u8], left: &ColumnEdge) {
        let rows = query.len();
        self.query.clear();
        self.query
            .extend(query.iter().map(|&base| L::narrowed(base.into())));
        self.target.clear();
        // An unknown base has another code in the target than in the query, so it matches nothing.
        let code =
            |&base: &u8| L::narrowed(if base >= UNKNOWN { UNKNOWN + 1 } else { base }.into());
        self.target.extend(target.iter().rev().map(code));
        self.e.clear();
        self.e
            .extend(left.e.iter().map(|&value| L::narrowed(value)));
        for array in self.h.iter_mut().chain(&mut self.f) {
            array.clear();
            array.resize(rows + 1, L::default());
        }
        // Row 0 enters with diagonal 0. The later rows enter with their diagonals.
        self.h[2][1] = L::narrowed(left.h[0]);
    }
}

/// Computes the cells of one diagonal and returns the highest.
#[expect(
    clippy::too_many_arguments,
    reason = "separate slices tell the compiler that they do not overlap, without which it would \
              not vectorise"
)]
#[inline(always)]
fn diagonal<L: Lane>(
    costs: Costs<L>,
    query: &[L],
    target: &[L],
    two_ago: &[L],
    f_now: &[L],
    e: &mut [L],
    f_next: &mut [L],
    now: &mut [L],
) -> L {
    let cells = now.len();
    let (query, target) = (&query[..cells], &target[..cells]);
    let (two_ago, f_now) = (&two_ago[..cells], &f_now[..cells]);
    let (e, f_next) = (&mut e[..cells], &mut f_next[..cells]);
    let mut highest = L::default();
    for i in 0..cells {
        let score = if query[i] == target[i] {
            costs.matching
        } else {
            costs.mismatch
        };
        let aligned = two_ago[i].plus(score).max(L::default());
        let h = aligned.max(e[i]).max(f_now[i]);
        let gap = h.minus(costs.gap_first);
        now[i] = h;
        e[i] = gap.max(e[i].minus(costs.gap_next));
        f_next[i] = gap.max(f_now[i].minus(costs.gap_next));
        highest = highest.max(h);
    }
    highest
}

/// The index of the first lane equal to `value`, which must exist.
fn position<L: Lane>(lanes: &[L], value: L) -> usize {
    lanes.iter().position(|&lane| lane == value).unwrap_or(0)
}
