//! Options of an alignment, and the job that they describe.

use super::{
    extension::query_max,
    grid::Grid,
    scoring::{Scoring, ScoringError},
    strand::Strand,
};
use crate::fasta::{self, FastaError, Sequence};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

const QUERY_DEFAULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lambda_virus.fa.gz");
const TARGET_DEFAULT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/data/ecoli_536_NC_008253.fna.gz"
);
/// Default first base of the stretch of the target. Eight of the nine remains of lambda-like phages
/// in E. coli 536 that are found at all lie in this stretch.
const TARGET_START_DEFAULT: usize = 280_001;
/// Default length of the stretch in bases; with both strands it takes two cores 10 to 30 seconds.
const TARGET_LENGTH_DEFAULT: usize = 1_000_000;

/// The options of `align` and `align-serial`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The query, a FASTA file (.gz is fine); the rows of the matrix
    /// [default: the phage lambda that comes with the sources]
    #[arg(long, value_name = "FILE", default_value = QUERY_DEFAULT, hide_default_value = true)]
    pub query: PathBuf,
    /// The target, a FASTA file (.gz is fine); the columns of the matrix
    /// [default: the E. coli 536 that comes with the sources]
    #[arg(long, value_name = "FILE", default_value = TARGET_DEFAULT, hide_default_value = true)]
    pub target: PathBuf,
    /// Align all of the target, not only a stretch of it
    #[arg(long, conflicts_with_all = ["start", "length"])]
    pub full: bool,
    /// First base of the stretch of the target that is aligned
    #[arg(long, value_name = "BASE", default_value_t = TARGET_START_DEFAULT)]
    pub start: usize,
    /// Number of bases of that stretch
    #[arg(long, value_name = "BASES", default_value_t = TARGET_LENGTH_DEFAULT)]
    pub length: usize,
    /// Strands of the query to align
    #[arg(long, value_enum, default_value_t = Strands::Both)]
    pub strand: Strands,
    /// Bound on the number of alignments that are shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub hits: usize,
    /// Show no alignment below this score
    #[arg(long, value_name = "SCORE", default_value_t = 60,
          value_parser = clap::value_parser!(i32).range(1..))]
    pub threshold: i32,
    /// Gain of two equal bases
    #[arg(long = "match", value_name = "SCORE", default_value_t = Scoring::default().matching)]
    pub matching: i32,
    /// Cost of two different bases
    #[arg(long, value_name = "COST", default_value_t = Scoring::default().mismatch)]
    pub mismatch: i32,
    /// Cost of a gap besides its length
    #[arg(long, value_name = "COST", default_value_t = Scoring::default().gap_open)]
    pub gap_open: i32,
    /// Cost of each base of a gap
    #[arg(long, value_name = "COST", default_value_t = Scoring::default().gap_extend)]
    pub gap_extend: i32,
    /// Rows of a block
    #[arg(long, value_name = "BASES", default_value_t = 1024,
          value_parser = block_size)]
    pub block_rows: usize,
    /// Columns of a block
    #[arg(long, value_name = "BASES", default_value_t = 8192,
          value_parser = block_size)]
    pub block_columns: usize,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Which strands of the query are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Strands {
    /// As the file has it.
    Plus,
    /// The reverse complement.
    Minus,
    /// One after the other.
    Both,
}

impl Strands {
    fn list(self) -> Vec<Strand> {
        match self {
            Strands::Plus => vec![Strand::Plus],
            Strands::Minus => vec![Strand::Minus],
            Strands::Both => vec![Strand::Plus, Strand::Minus],
        }
    }
}

fn block_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if (16..=65_536).contains(&size) => Ok(size),
        _ => Err("a block has 16 to 65536 rows and columns".to_owned()),
    }
}

/// The reason why a job cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A file could not be read.
    #[error(transparent)]
    Fasta(#[from] FastaError),
    /// The scores make no local alignment.
    #[error(transparent)]
    Scoring(#[from] ScoringError),
    /// The stretch lies outside the target.
    #[error("--start {start} --length {length}: the target has bases 1 to {bases}")]
    Stretch {
        /// The requested first base.
        start: usize,
        /// The requested number of bases.
        length: usize,
        /// Number of bases of the record.
        bases: usize,
    },
    /// The query is too long for the positions to be found again.
    #[error("the query has {bases} bases; with this scoring at most {max} can be aligned")]
    Query {
        /// Number of bases of the query.
        bases: usize,
        /// The most bases that this scoring allows.
        max: usize,
    },
}

/// A job without its sequences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The strands to align, in this order.
    pub strands: Vec<Strand>,
    /// Scores of matches, mismatches and gaps.
    pub scoring: Scoring,
    /// The matrix of one strand.
    pub grid: Grid,
    /// Alignments below this score are not shown.
    pub threshold: i32,
    /// Bound on the alignments that are shown.
    pub hits: usize,
}

impl Setup {
    /// Cells of all matrices.
    pub fn cells(&self) -> u64 {
        self.grid.cells() * self.strands.len() as u64
    }
}

/// The whole input of the computation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The job without its sequences.
    pub setup: Setup,
    /// The stretch of the target.
    pub target: Vec<u8>,
    plus: Vec<u8>,
    minus: Vec<u8>,
}

impl Job {
    /// Makes a job of its parts.
    pub fn new(setup: Setup, query: Vec<u8>, target: Vec<u8>) -> Self {
        Job {
            setup,
            target,
            minus: fasta::reverse_complement(&query),
            plus: query,
        }
    }

    /// A strand of the query.
    pub fn query(&self, strand: Strand) -> &[u8] {
        match strand {
            Strand::Plus => &self.plus,
            Strand::Minus => &self.minus,
        }
    }
}

/// The origin of a job's sequences, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The name of the query's record in its file.
    pub query: String,
    /// The length of that record. Bases.
    pub query_bases: usize,
    /// The name of the target's record in its file.
    pub target: String,
    /// The first base of the stretch, from 1.
    pub target_start: usize,
    /// Bases of the stretch.
    pub target_bases: usize,
}

impl Options {
    /// Reads the sequences and checks all options.
    pub fn prepare(&self) -> Result<(Job, Origin), JobError> {
        self.job(fasta::read(&self.query)?, fasta::read(&self.target)?)
    }

    fn job(&self, query: Sequence, target: Sequence) -> Result<(Job, Origin), JobError> {
        let scoring = Scoring {
            matching: self.matching,
            mismatch: self.mismatch,
            gap_open: self.gap_open,
            gap_extend: self.gap_extend,
        }
        .checked()?;
        let max = query_max(scoring);
        if query.bases.len() > max {
            return Err(JobError::Query {
                bases: query.bases.len(),
                max,
            });
        }
        let stretch = self.stretch(target.bases)?;
        let setup = Setup {
            strands: self.strand.list(),
            scoring,
            grid: Grid {
                rows: query.bases.len(),
                columns: stretch.len(),
                block_rows: self.block_rows,
                block_columns: self.block_columns,
            },
            threshold: self.threshold,
            hits: self.hits,
        };
        let origin = Origin {
            query: query.name,
            query_bases: query.bases.len(),
            target: target.name,
            target_start: if self.full { 1 } else { self.start },
            target_bases: stretch.len(),
        };
        Ok((Job::new(setup, query.bases, stretch), origin))
    }

    /// Cuts the requested stretch out of the target. A stretch that is too long ends with the
    /// target; it may not begin after the target.
    fn stretch(&self, mut bases: Vec<u8>) -> Result<Vec<u8>, JobError> {
        if self.full {
            return Ok(bases);
        }
        let outside = JobError::Stretch {
            start: self.start,
            length: self.length,
            bases: bases.len(),
        };
        let first = self
            .start
            .checked_sub(1)
            .filter(|first| *first < bases.len());
        let (Some(first), true) = (first, self.length > 0) else {
            return Err(outside);
        };
        bases.truncate(first.saturating_add(self.length));
        Ok(bases.split_off(first))
    }
}
