//! Selects the alignments to show from the best cells of the blocks.
//!
//! A long alignment leaves a best cell in every block that it passes, and more of them in its tail
//! behind its end. In order of score its true end comes first. The cells inside of its rectangle
//! are skipped; for the cells of the tail, [`extension`](super::extension) finds no alignment of
//! their own. Two alignments overlap if their rectangles overlap.

use super::{
    extension::{Extent, extend},
    grid::Block,
    job::Job,
    kernel::Peak,
    strand::Strand,
};
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, ops::Range};

/// The best cell of a block, in coordinates of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The strand whose matrix the block belongs to.
    pub strand: Strand,
    /// Score of the alignment that ends here.
    pub score: i32,
    /// Bases of the query's strand up to its end.
    pub query_end: usize,
    /// Bases of the target up to its end.
    pub target_end: usize,
}

impl Candidate {
    /// The candidate of a block, if its best cell reaches the threshold of the job.
    pub fn of(job: &Job, strand: Strand, block: &Block, peak: Option<Peak>) -> Option<Self> {
        let peak = peak.filter(|peak| peak.score >= job.setup.threshold)?;
        Some(Candidate {
            strand,
            score: peak.score,
            query_end: block.rows.start + peak.row + 1,
            target_end: block.columns.start + peak.column + 1,
        })
    }
}

/// A local alignment. Positions count from 0 in the strand that [`Job`] holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alignment {
    /// The score at its last cell.
    pub score: i32,
    /// The strand of the query that is aligned.
    pub strand: Strand,
    /// The position of the alignment, and its numbers of columns and matches.
    pub extent: Extent,
}

/// The best alignments that do not overlap each other, best first, up to the number of the job. The
/// order of the candidates does not matter.
pub fn select(job: &Job, mut candidates: Vec<Candidate>) -> Vec<Alignment> {
    candidates.sort_unstable_by_key(|candidate| {
        let Candidate {
            strand,
            score,
            query_end,
            target_end,
        } = *candidate;
        (Reverse(score), strand, target_end, query_end)
    });
    let mut found: Vec<Alignment> = Vec::new();
    for candidate in candidates {
        if found.len() == job.setup.hits {
            break;
        }
        let end = (candidate.query_end, candidate.target_end);
        let last_base = (end.0 - 1..end.0, end.1 - 1..end.1);
        if overlaps(&found, candidate.strand, &last_base.0, &last_base.1) {
            continue;
        }
        let query = job.query(candidate.strand);
        let Some(extent) = extend(query, &job.target, job.setup.scoring, end, candidate.score)
        else {
            continue;
        };
        if !overlaps(&found, candidate.strand, &extent.query, &extent.target) {
            found.push(Alignment {
                score: candidate.score,
                strand: candidate.strand,
                extent,
            });
        }
    }
    found
}

fn overlaps(
    found: &[Alignment],
    strand: Strand,
    query: &Range<usize>,
    target: &Range<usize>,
) -> bool {
    let meet = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    found.iter().any(|hit| {
        hit.strand == strand && meet(&hit.extent.query, query) && meet(&hit.extent.target, target)
    })
}
