//! The division of the matrix into blocks, and an order in which the blocks can be computed.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The division of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Rows of the matrix: bases of the query. At least 1.
    pub rows: usize,
    /// Columns: bases of the target. At least 1.
    pub columns: usize,
    /// Rows of a block; the last may have fewer. At least 1.
    pub block_rows: usize,
    /// Columns of a block; the last may have fewer. At least 1.
    pub block_columns: usize,
}

/// One block of a [`Grid`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The rows of the matrix that the block covers.
    pub rows: Range<usize>,
    /// The columns of the matrix that the block covers.
    pub columns: Range<usize>,
    /// Its place in the grid: row, then column.
    pub place: (usize, usize),
}

impl Block {
    /// The number of cells in the block.
    pub fn cells(&self) -> u64 {
        self.rows.len() as u64 * self.columns.len() as u64
    }
}

impl Grid {
    /// The number of rows and of columns of blocks.
    pub fn size(&self) -> (usize, usize) {
        (
            self.rows.div_ceil(self.block_rows),
            self.columns.div_ceil(self.block_columns),
        )
    }

    /// Cells of the whole matrix.
    pub fn cells(&self) -> u64 {
        self.rows as u64 * self.columns as u64
    }

    /// The block at a place.
    pub fn block(&self, place: (usize, usize)) -> Block {
        let cut = |index: usize, size: usize, all: usize| index * size..all.min((index + 1) * size);
        Block {
            rows: cut(place.0, self.block_rows, self.rows),
            columns: cut(place.1, self.block_columns, self.columns),
            place,
        }
    }

    /// All places, by anti-diagonal, and by row within one.
    pub fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (rows, columns) = self.size();
        (0..(rows + columns).saturating_sub(1)).flat_map(move |d| {
            let first = (d + 1).saturating_sub(columns);
            (first..rows.min(d + 1)).map(move |row| (row, d - row))
        })
    }
}
