//! The two strands of the query.

use serde::{Deserialize, Serialize};

/// A strand of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strand {
    /// As the file has it.
    Plus,
    /// The reverse complement of the file's sequence.
    Minus,
}
