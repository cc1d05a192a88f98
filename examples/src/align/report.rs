//! The report of a run: the alignments, the speed, and the work of each worker.
//!
//! The serial and the parallel program fill the same [`Report`]. The alignments are the same for
//! both; the other fields describe the run.

use super::{
    hits::Alignment,
    job::{Job, Origin},
    strand::Strand,
};
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    io::{self, Write as _},
};

/// The report of one run of `align` or `align-serial`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The records and parts of them that were aligned.
    #[serde(flatten)]
    pub origin: Origin,
    /// Alignments, the best first.
    pub alignments: Vec<Row>,
    /// Cells of the matrices.
    pub cells: u64,
    /// Time from the first block to the last alignment. Seconds.
    pub seconds: f64,
    /// Cells of the matrix, over seconds of the run.
    pub cells_per_second: f64,
    /// The work of each worker, by the worker's number.
    pub workers: Vec<Work>,
}

/// An alignment in the coordinates of the files: from 1, both ends included, on the plus strand.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The score of the alignment.
    pub score: i32,
    /// The strand of the query that is aligned.
    pub strand: Strand,
    /// First base of the query.
    pub query_start: usize,
    /// Last base of the query.
    pub query_end: usize,
    /// First base of the target.
    pub target_start: usize,
    /// Last base of the target.
    pub target_end: usize,
    /// The number of columns, gaps included.
    pub length: usize,
    /// Columns with two equal bases.
    pub matches: usize,
    /// Matches over columns, from 0 to 1.
    pub identity: f64,
}

/// The work of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The worker's tid; `serial` in one process.
    pub worker: String,
    /// The name of its host.
    pub host: String,
    /// The number of blocks that it computed.
    pub blocks: u64,
    /// The number of cells in these blocks.
    pub cells: u64,
    /// Time spent computing them. Seconds.
    pub busy_seconds: f64,
}

impl Report {
    /// Makes a report of the results.
    pub fn new(
        job: &Job,
        origin: Origin,
        alignments: &[Alignment],
        seconds: f64,
        workers: Vec<Work>,
    ) -> Self {
        let cells = job.setup.cells();
        Report {
            alignments: alignments
                .iter()
                .map(|found| Row::new(found, &origin))
                .collect(),
            origin,
            cells,
            seconds,
            cells_per_second: cells as f64 / seconds,
            workers,
        }
    }

    /// Writes the report to standard output: text for people, or one line of JSON. A reader that
    /// has gone away is no error.
    pub fn print(&self, json: bool) -> anyhow::Result<()> {
        let text = if json {
            serde_json::to_string(self)? + "\n"
        } else {
            self.to_string()
        };
        match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Row {
    fn new(alignment: &Alignment, origin: &Origin) -> Self {
        let extent = &alignment.extent;
        let (query_start, query_end) = match alignment.strand {
            Strand::Plus => (extent.query.start + 1, extent.query.end),
            Strand::Minus => (
                origin.query_bases - extent.query.end + 1,
                origin.query_bases - extent.query.start,
            ),
        };
        Row {
            score: alignment.score,
            strand: alignment.strand,
            query_start,
            query_end,
            target_start: origin.target_start + extent.target.start,
            target_end: origin.target_start + extent.target.end - 1,
            length: extent.columns,
            matches: extent.matches,
            identity: extent.matches as f64 / extent.columns as f64,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = &self.origin;
        writeln!(
            f,
            "{} (1 to {}) against {} ({} to {})\n",
            origin.query,
            origin.query_bases,
            origin.target,
            origin.target_start,
            origin.target_start + origin.target_bases - 1,
        )?;
        if self.alignments.is_empty() {
            writeln!(f, "No alignment reaches the threshold.\n")?;
        } else {
            writeln!(f, "{}\n", self.alignment_table())?;
        }
        writeln!(f, "{}\n", self.work_table())?;
        writeln!(
            f,
            "{} cells in {:.2} s: {:.2} million cells/s",
            grouped(self.cells),
            self.seconds,
            self.cells_per_second / 1e6,
        )
    }
}

impl Report {
    fn alignment_table(&self) -> Table {
        let heads = ["score", "strand", "query", "target", "length", "identity"];
        let rows = self.alignments.iter().map(|row| {
            let strand = match row.strand {
                Strand::Plus => "+",
                Strand::Minus => "-",
            };
            vec![
                row.score.to_string(),
                strand.to_owned(),
                format!("{}..{}", row.query_start, row.query_end),
                format!("{}..{}", row.target_start, row.target_end),
                row.length.to_string(),
                format!("{:.1} %", 100.0 * row.identity),
            ]
        });
        table(&heads, rows)
    }

    fn work_table(&self) -> Table {
        let heads = [
            "worker",
            "host",
            "blocks",
            "cells",
            "share",
            "busy s",
            "Mcells/s busy",
        ];
        let rows = self.workers.iter().map(|work| {
            vec![
                work.worker.clone(),
                work.host.clone(),
                work.blocks.to_string(),
                grouped(work.cells),
                format!("{:.1} %", 100.0 * work.cells as f64 / self.cells as f64),
                format!("{:.2}", work.busy_seconds),
                format!(
                    "{:.0}",
                    work.cells as f64 / 1e6 / work.busy_seconds.max(1e-9)
                ),
            ]
        });
        table(&heads, rows)
    }
}

/// A table for people: a line under the heads, columns flush right.
pub fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections)
        .set_header(heads)
        .add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A number with its digits in threes.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::align::extension::Extent;

    #[test]
    fn positions_of_the_minus_strand_are_reported_on_the_plus_strand() {
        let origin = Origin {
            query: "q".to_owned(),
            query_bases: 100,
            target: "t".to_owned(),
            target_start: 1001,
            target_bases: 500,
        };
        let mut alignment = Alignment {
            score: 20,
            strand: Strand::Plus,
            extent: Extent {
                query: 0..10,
                target: 5..15,
                matches: 10,
                columns: 10,
            },
        };
        let row = Row::new(&alignment, &origin);
        assert_eq!((row.query_start, row.query_end), (1, 10));
        assert_eq!((row.target_start, row.target_end), (1006, 1015));
        alignment.strand = Strand::Minus;
        let row = Row::new(&alignment, &origin);
        assert_eq!((row.query_start, row.query_end), (91, 100));
    }

    #[test]
    fn digits_are_grouped_in_threes() {
        assert_eq!(
            [grouped(7), grouped(999), grouped(239_547_497_840)],
            ["7", "999", "239,547,497,840"]
        );
    }
}
