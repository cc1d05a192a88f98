//! The alignment compared with a slow but simple reference: three full matrices, as in Gotoh's
//! paper, with `None` for impossible cells.

use proptest::prelude::*;
use std::{collections::VecDeque, ops::Range};
use vm_examples::align::{
    extension::extend,
    grid::Grid,
    hits::{Candidate, select},
    job::{Job, Setup},
    kernel::{ColumnEdge, Kernel, RowEdge},
    scoring::Scoring,
    strand::Strand,
    wavefront::{Share, Source},
};

/// Score, matches, columns counted downwards: the greater value is better.
type Worth = (i32, i64, i64);

struct Reference {
    h: Vec<Vec<Worth>>,
}

/// The alignments that are compared.
#[derive(Clone, Copy, PartialEq)]
enum Among {
    /// Alignments that begin anywhere.
    Local,
    /// Alignments that begin at the beginning of the sequences.
    Global,
    /// Of these, the alignments of which every part from the beginning has a positive score.
    Earning,
}

/// Best alignments that end at (rows, columns) of each pair of prefixes.
fn reference(query: &[u8], target: &[u8], scoring: Scoring, among: Among) -> Reference {
    let kept = |worth: Option<Worth>| worth.filter(|worth| among != Among::Earning || worth.0 > 0);
    let plus = |a: Option<Worth>, b: Worth| a.map(|a| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    let first = (-scoring.gap_open - scoring.gap_extend, 0, -1);
    let next = (-scoring.gap_extend, 0, -1);
    let (rows, columns) = (query.len(), target.len());
    let empty = vec![vec![None; columns + 1]; rows + 1];
    let (mut h, mut e, mut f) = (empty.clone(), empty.clone(), empty);
    for i in 0..=rows {
        for j in 0..=columns {
            if i > 0 {
                f[i][j] = kept(plus(h[i - 1][j], first).max(plus(f[i - 1][j], next)));
            }
            if j > 0 {
                e[i][j] = kept(plus(h[i][j - 1], first).max(plus(e[i][j - 1], next)));
            }
            let mut best = e[i][j].max(f[i][j]);
            if i > 0 && j > 0 {
                let step = if Scoring::is_match(query[i - 1], target[j - 1]) {
                    (scoring.matching, 1, -1)
                } else {
                    (-scoring.mismatch, 0, -1)
                };
                best = best.max(kept(plus(h[i - 1][j - 1], step)));
            }
            let may_begin_here = among == Among::Local || (i, j) == (0, 0);
            h[i][j] = if may_begin_here {
                best.max(Some((0, 0, 0)))
            } else {
                best
            };
        }
    }
    let flat =
        |row: Vec<Option<Worth>>| row.into_iter().map(|cell| cell.unwrap_or((i32::MIN, 0, 0)));
    Reference {
        h: h.into_iter().map(|row| flat(row).collect()).collect(),
    }
}

/// Two sequences that share a stretch with some changes, so that there is an alignment.
fn sequences(longest: usize) -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let bases = move |least| {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 3, 4]), least..longest)
    };
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..3u8, 0..4u8), 0..6);
    (bases(1), bases(1), bases(1), edits).prop_map(|(query, mut before, after, edits)| {
        let mut shared = query.clone();
        for (place, kind, base) in edits {
            let place = place.index(shared.len().max(1));
            match kind {
                0 => shared.insert(place.min(shared.len()), base),
                1 if shared.len() > 1 => drop(shared.remove(place)),
                _ => shared[place] = base,
            }
        }
        before.extend(shared);
        before.extend(after);
        (query, before)
    })
}

fn scorings() -> impl Strategy<Value = Scoring> {
    (1..6, 1..6, 0..8, 1..4).prop_map(|(matching, mismatch, gap_open, gap_extend)| Scoring {
        matching,
        mismatch,
        gap_open,
        gap_extend,
    })
}

fn job(query: &[u8], target: &[u8], scoring: Scoring, block: (usize, usize)) -> Job {
    let grid = Grid {
        rows: query.len(),
        columns: target.len(),
        block_rows: block.0,
        block_columns: block.1,
    };
    let setup = Setup {
        strands: vec![Strand::Plus, Strand::Minus],
        scoring,
        grid,
        threshold: 1,
        hits: 5,
    };
    Job::new(setup, query.to_vec(), target.to_vec())
}

/// Runs all workers of a job in one thread, one block of each in turn, with queues in the place of
/// messages.
fn candidates(job: &Job, workers: usize) -> Vec<Candidate> {
    let mut found = Vec::new();
    for &strand in &job.setup.strands {
        let mut shares: Vec<_> = (0..workers)
            .map(|worker| Share::new(job, strand, (worker, workers)))
            .collect();
        let mut rows = vec![VecDeque::new(); workers];
        let mut columns = vec![VecDeque::new(); workers];
        let mut tasks: Vec<_> = shares.iter_mut().map(Share::next_task).collect();
        while tasks.iter().any(Option::is_some) {
            for worker in 0..workers {
                let Some(task) = &tasks[worker] else { continue };
                let top = matches!(task.top, Source::Worker(_));
                let left = matches!(task.left, Source::Worker(_));
                if top && rows[worker].is_empty() || left && columns[worker].is_empty() {
                    continue;
                }
                let top = top.then(|| rows[worker].pop_front()).flatten();
                let left = left.then(|| columns[worker].pop_front()).flatten();
                let outcome = shares[worker].compute(task, top, left);
                found.extend(Candidate::of(job, strand, &task.block, outcome.peak));
                if let Some((to, edge)) = outcome.bottom {
                    rows[to].push_back(edge);
                }
                if let Some((to, edge)) = outcome.right {
                    columns[to].push_back(edge);
                }
                tasks[worker] = shares[worker].next_task();
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_block_leaves_the_edges_and_the_peak_of_the_full_matrix(
        (query, target) in sequences(60), scoring in scorings()
    ) {
        let swept = Kernel::new(scoring).sweep(
            &query,
            &target,
            &RowEdge::border(target.len()),
            &ColumnEdge::border(query.len()),
        );
        let h = reference(&query, &target, scoring, Among::Local).h;
        let last_row: Vec<i32> = h[query.len()].iter().map(|cell| cell.0).collect();
        let last_column: Vec<i32> = h[1..].iter().map(|row| row[target.len()].0).collect();
        prop_assert_eq!(swept.bottom.h, last_row);
        prop_assert_eq!(swept.right.h, last_column);
        let cells = || (1..=query.len()).flat_map(|i| (1..=target.len()).map(move |j| (i, j)));
        let best = cells().map(|(i, j)| h[i][j].0).max().unwrap_or(0);
        let place = cells().filter(|&(i, j)| h[i][j].0 == best).min_by_key(|&(i, j)| (i + j, i));
        let peak = swept.peak.map(|peak| (peak.score, (peak.row + 1, peak.column + 1)));
        prop_assert_eq!(peak, place.filter(|_| best > 0).map(|place| (best, place)));
    }

    #[test]
    fn sixteen_and_thirty_two_bits_give_the_same(
        (query, target) in sequences(60), scoring in scorings(), base in 0..500i32
    ) {
        // Edges that are 30,000 higher need 32 bits. After subtraction all values must equal those
        // with 16 bits, as long as no value reaches the floor of 0: high edges keep every cell
        // above it.
        let sweep = |height: i32| {
            let top = RowEdge { h: vec![height; target.len() + 1], f: vec![height; target.len()] };
            let left = ColumnEdge { h: vec![height; query.len()], e: vec![height; query.len()] };
            Kernel::new(scoring).sweep(&query, &target, &top, &left)
        };
        let (low, high) = (sweep(10_000 + base), sweep(40_000 + base));
        let lowered = |values: &[i32]| values.iter().map(|value| value - 30_000).collect::<Vec<_>>();
        prop_assert_eq!(&low.bottom.h, &lowered(&high.bottom.h));
        prop_assert_eq!(&low.bottom.f, &lowered(&high.bottom.f));
        prop_assert_eq!(&low.right.h, &lowered(&high.right.h));
        prop_assert_eq!(&low.right.e, &lowered(&high.right.e));
    }

    #[test]
    fn any_number_of_workers_finds_what_one_finds(
        (query, target) in sequences(120), scoring in scorings(),
        block in (1..40usize, 1..40usize), workers in 2..8usize,
    ) {
        let job = job(&query, &target, scoring, block);
        let one = candidates(&job, 1);
        let mut many = candidates(&job, workers);
        prop_assert_eq!(select(&job, one.clone()), select(&job, many.clone()));
        let mut one = one;
        let key = |found: &Candidate| (found.strand, found.query_end, found.target_end);
        one.sort_by_key(key);
        many.sort_by_key(key);
        prop_assert_eq!(one, many);
    }

    #[test]
    fn the_first_alignment_is_the_best_of_the_full_matrix_and_adds_up(
        (query, target) in sequences(60), scoring in scorings(), block in (1..40usize, 1..40usize),
    ) {
        let mut job = job(&query, &target, scoring, block);
        job.setup.strands.truncate(1);
        let found = select(&job, candidates(&job, 1));
        let h = reference(&query, &target, scoring, Among::Local).h;
        let best = h.iter().flatten().map(|cell| cell.0).max().unwrap_or(0);
        prop_assert_eq!(found.first().map_or(0, |hit| hit.score), best);
        for hit in &found {
            let extent = &hit.extent;
            // Computed backwards: no tail of an alignment has a score of 0 or less, else the
            // alignment would end before its tail.
            let within = |sequence: &[u8], range: &Range<usize>| {
                sequence[range.clone()].iter().rev().copied().collect::<Vec<_>>()
            };
            let (query, target) = (within(&query, &extent.query), within(&target, &extent.target));
            let best = |among| reference(&query, &target, scoring, among).h[query.len()][target.len()];
            let (matches, columns) = (extent.matches as i64, extent.columns as i64);
            prop_assert_eq!(best(Among::Earning), (hit.score, matches, -columns));
            prop_assert_eq!(best(Among::Global).0, hit.score);
        }
        for (index, hit) in found.iter().enumerate() {
            for other in &found[..index] {
                let meet = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
                let (a, b) = (&hit.extent, &other.extent);
                prop_assert!(!(meet(&a.query, &b.query) && meet(&a.target, &b.target)));
                prop_assert!(hit.score <= other.score);
            }
        }
    }
}

#[test]
fn the_tail_behind_an_alignment_is_no_alignment_of_its_own() {
    // Ten equal bases have the score 20. The mismatch behind them leaves 17 in a cell that is only
    // a tail.
    let query = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0];
    let target = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2];
    let scoring = Scoring::default();
    let whole = extend(&query, &target, scoring, (10, 10), 20).unwrap();
    assert_eq!((whole.query, whole.matches, whole.columns), (0..10, 10, 10));
    assert_eq!(extend(&query, &target, scoring, (11, 11), 17), None);
}
