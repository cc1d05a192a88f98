//! Messages between master and workers.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use vm_examples::align::{
    hits::Candidate,
    job::Setup,
    kernel::{ColumnEdge, RowEdge},
};
use vmlib::{HostId, Message, Tid};

/// Master to worker: an [`Order`].
pub const ORDER: i32 = 1;
/// Master to worker: the bases of the query.
pub const QUERY: i32 = 2;
/// Master to worker: the bases of the target.
pub const TARGET: i32 = 3;
/// Worker to worker: a [`RowEdge`].
pub const ROW: i32 = 4;
/// Worker to worker: a [`ColumnEdge`].
pub const COLUMN: i32 = 5;
/// Worker to master: cells computed since the last such message, one `u64`.
pub const PROGRESS: i32 = 6;
/// Worker to master: an [`Outcome`], its last message.
pub const OUTCOME: i32 = 7;

/// The job, and all workers that share it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// The job without its sequences, which follow as messages of their own.
    pub setup: Setup,
    /// All workers, by number.
    pub workers: Vec<Tid>,
}

/// The candidates that a worker found, and its work.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The best cells of its blocks.
    pub candidates: Vec<Candidate>,
    /// The host of the worker.
    pub host: HostId,
    /// The number of blocks that it computed.
    pub blocks: u64,
    /// The number of cells in these blocks.
    pub cells: u64,
    /// Time spent computing them. Seconds.
    pub busy_seconds: f64,
}

/// A row edge as numbers: H, then F.
pub fn row_to_numbers(edge: &RowEdge) -> Vec<i32> {
    [&edge.h[..], &edge.f[..]].concat()
}

/// The row edge of a block with `columns` columns.
pub fn row_from(message: &Message, columns: usize) -> Result<RowEdge> {
    let numbers = message.slice::<i32>()?;
    ensure!(
        numbers.len() == 2 * columns + 1,
        "{} sent a row of {} numbers for {columns} columns",
        message.from(),
        numbers.len()
    );
    let (h, f) = numbers.split_at(columns + 1);
    Ok(RowEdge {
        h: h.to_vec(),
        f: f.to_vec(),
    })
}

/// A column edge as numbers: H, then E.
pub fn column_to_numbers(edge: &ColumnEdge) -> Vec<i32> {
    [&edge.h[..], &edge.e[..]].concat()
}

/// The column edge of a block with `rows` rows.
pub fn column_from(message: &Message, rows: usize) -> Result<ColumnEdge> {
    let numbers = message.slice::<i32>()?;
    ensure!(
        numbers.len() == 2 * rows,
        "{} sent a column of {} numbers for {rows} rows",
        message.from(),
        numbers.len()
    );
    let (h, e) = numbers.split_at(rows);
    Ok(ColumnEdge {
        h: h.to_vec(),
        e: e.to_vec(),
    })
}
