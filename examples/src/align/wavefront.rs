//! The owner of each block of the matrix, the order of its blocks, and the owners of the edges that
//! it needs.
//!
//! A block needs the last row of the block above and the last column of the block to its left. So
//! the blocks of one anti-diagonal are independent of each other, and the computation advances over
//! the matrix as a wave. Block (r, c) belongs to worker `(c + 2 r) mod workers`: from one block of
//! an anti-diagonal to the next one below, the owner's number grows by one, so each worker has an
//! even part of every anti-diagonal. A worker's columns always come from the worker before it, its
//! rows from the worker before that one. All workers together form a ring in which neighbours
//! exchange messages all the time.
//!
//! Every worker computes its blocks by anti-diagonal, and by row within an anti-diagonal. So the
//! edges that one worker sends to another come in the order in which they are needed. Neither tags
//! nor a reorder buffer are necessary: one queue for rows and one for columns suffice.
//!
//! This module is the parallel program without its messages. [`Share`] is the work of one worker.
//! The serial program is one worker whose only neighbour is itself.

use super::{
    grid::{Block, Grid},
    job::Job,
    kernel::{ColumnEdge, Kernel, Peak, RowEdge},
    strand::Strand,
};
use std::collections::VecDeque;

/// The worker that owns the block at a place.
pub fn owner((row, column): (usize, usize), workers: usize) -> usize {
    (column + 2 * row) % workers
}

/// The origin of an edge of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The edge is the border of the matrix.
    Border,
    /// The worker itself has computed the edge.
    Own,
    /// This worker sends the edge.
    Worker(usize),
}

/// The next block of a share, and the edges that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The block to compute.
    pub block: Block,
    /// The origin of the row above the block.
    pub top: Source,
    /// The origin of the column to the left of the block.
    pub left: Source,
}

/// The result of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The last row, if another worker needs it.
    pub bottom: Option<(usize, RowEdge)>,
    /// The last column, if another worker needs it.
    pub right: Option<(usize, ColumnEdge)>,
    /// The block's best cell.
    pub peak: Option<Peak>,
}

/// One worker's part of a matrix.
pub struct Share<'a> {
    query: &'a [u8],
    target: &'a [u8],
    grid: Grid,
    worker: usize,
    workers: usize,
    places: Box<dyn Iterator<Item = (usize, usize)>>,
    kernel: Kernel,
    own_rows: VecDeque<RowEdge>,
    own_columns: VecDeque<ColumnEdge>,
}

impl<'a> Share<'a> {
    /// The part of worker number `worker` of `workers` in the matrix of one strand.
    ///
    /// # Panics
    /// If the sequences do not have the grid's size, or `worker` is not below `workers`.
    pub fn new(job: &'a Job, strand: Strand, (worker, workers): (usize, usize)) -> Self {
        let (query, target, grid) = (job.query(strand), &job.target[..], job.setup.grid);
        assert_eq!((query.len(), target.len()), (grid.rows, grid.columns));
        assert!(worker < workers);
        let mine = grid
            .places()
            .filter(move |&place| owner(place, workers) == worker);
        Share {
            query,
            target,
            grid,
            worker,
            workers,
            places: Box::new(mine),
            kernel: Kernel::new(job.setup.scoring),
            own_rows: VecDeque::new(),
            own_columns: VecDeque::new(),
        }
    }

    /// The next block; `None` at the end of the share.
    pub fn next_task(&mut self) -> Option<Task> {
        let place = self.places.next()?;
        let source = |neighbour: Option<(usize, usize)>| match neighbour {
            None => Source::Border,
            Some(place) => match owner(place, self.workers) {
                worker if worker == self.worker => Source::Own,
                worker => Source::Worker(worker),
            },
        };
        let (row, column) = place;
        Some(Task {
            block: self.grid.block(place),
            top: source(row.checked_sub(1).map(|above| (above, column))),
            left: source(column.checked_sub(1).map(|before| (row, before))),
        })
    }

    /// Computes a block. `top` and `left` are the edges that another worker sends, according to
    /// [`Task`], and `None` otherwise.
    ///
    /// # Panics
    /// If an edge is missing or not of the block's size.
    pub fn compute(
        &mut self,
        task: &Task,
        top: Option<RowEdge>,
        left: Option<ColumnEdge>,
    ) -> Outcome {
        let block = &task.block;
        let top = match task.top {
            Source::Border => Some(RowEdge::border(block.columns.len())),
            Source::Own => self.own_rows.pop_front(),
            Source::Worker(_) => top,
        };
        let left = match task.left {
            Source::Border => Some(ColumnEdge::border(block.rows.len())),
            Source::Own => self.own_columns.pop_front(),
            Source::Worker(_) => left,
        };
        let swept = self.kernel.sweep(
            &self.query[block.rows.clone()],
            &self.target[block.columns.clone()],
            &top.expect("the row above a block precedes it"),
            &left.expect("the column before a block precedes it"),
        );
        let (row, column) = block.place;
        let (rows, columns) = self.grid.size();
        let mut outcome = Outcome {
            bottom: None,
            right: None,
            peak: swept.peak,
        };
        if row + 1 < rows {
            match owner((row + 1, column), self.workers) {
                worker if worker == self.worker => self.own_rows.push_back(swept.bottom),
                worker => outcome.bottom = Some((worker, swept.bottom)),
            }
        }
        if column + 1 < columns {
            match owner((row, column + 1), self.workers) {
                worker if worker == self.worker => self.own_columns.push_back(swept.right),
                worker => outcome.right = Some((worker, swept.right)),
            }
        }
        outcome
    }
}
