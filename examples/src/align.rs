//! The best local alignments of two genomes: Smith-Waterman with affine gaps.
//!
//! A local alignment pairs a stretch of the query with a stretch of the target, base by base, with
//! gaps on either side. Its score is the sum of the gains of matches minus the costs of mismatches
//! and gaps ([`scoring`]). The matrix of the algorithm (Smith and Waterman 1981, with the gap
//! states of Gotoh 1982) has a row for each base of the query and a column for each base of the
//! target; a cell needs its left, upper and upper left neighbours. All of lambda against all of E.
//! coli are 240,000 million cells, so:
//!
//! 1. [`kernel`] sweeps one block of the matrix along its anti-diagonals, whose cells do not
//!    depend on each other, and keeps only the block's edges and its best cell.
//! 2. [`grid`] cuts the matrix into blocks. [`wavefront`] says which worker computes which block, in
//!    what order, and whose edges it needs first. It is the parallel program without its messages.
//! 3. [`extension`] goes back from a block's best cell to where its alignment began, and counts
//!    matches and columns on the way. It touches only the cells around one alignment.
//! 4. [`hits`] puts the blocks' best cells in order and keeps the alignments that are alignments
//!    of their own and do not overlap a better one.
//!
//! [`job`] has the options of a person, [`report`] the results.
//!
//! Caveats. A block yields one alignment at most: of two that end in one block the lesser is not
//! found. Which alignments are found therefore depends on the grid of blocks, but never on how many
//! workers share it, nor on their speed: every tie is broken by position.

pub mod extension;
pub mod grid;
pub mod hits;
pub mod job;
pub mod kernel;
pub mod progress;
pub mod report;
pub mod scoring;
pub mod strand;
pub mod wavefront;
