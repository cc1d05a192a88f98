//! Reads a genome from a FASTA file, plain or compressed with gzip.
//!
//! A FASTA file holds records: a line `>name and remarks`, then lines of letters. Each base becomes
//! a code from 0 to 3. Every other letter (`N` and the ambiguity codes) becomes [`UNKNOWN`], which
//! matches nothing, not even itself. Only one record is accepted, because a genome of these
//! examples is one record: a second record is an error, so that no sequence is silently left out.

use flate2::read::MultiGzDecoder;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

/// The code of a letter that is none of A, C, G, T.
pub const UNKNOWN: u8 = 4;

/// A named sequence of base codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// The record's name: its first line up to the first blank.
    pub name: String,
    /// The bases: A, C, G, T as 0 to 3, other letters as [`UNKNOWN`].
    pub bases: Vec<u8>,
}

/// Why a sequence could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FastaError {
    /// The file could not be opened or read, or is not whole.
    #[error("{path}: {cause}")]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system or of the decompressor.
        cause: io::Error,
    },
    /// The text is not one FASTA record.
    #[error("{path}, line {line}: {what}")]
    Format {
        /// The path of the file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The rule that the file breaks.
        what: &'static str,
    },
}

/// Reads the one record of the file at `path`.
pub fn read(path: &Path) -> Result<Sequence, FastaError> {
    let failed = |cause| FastaError::Read {
        path: path.to_owned(),
        cause,
    };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let compressed = file.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
    let text: Box<dyn Read> = if compressed {
        Box::new(MultiGzDecoder::new(file))
    } else {
        Box::new(file)
    };
    parse(path, BufReader::new(text))
}

fn parse(path: &Path, text: impl BufRead) -> Result<Sequence, FastaError> {
    let mut name = None;
    let mut bases = Vec::new();
    let mut line_count = 0;
    for (index, line) in text.lines().enumerate() {
        let line = line.map_err(|cause| FastaError::Read {
            path: path.to_owned(),
            cause,
        })?;
        line_count = index + 1;
        let wrong = |what| FastaError::Format {
            path: path.to_owned(),
            line: index + 1,
            what,
        };
        if let Some(title) = line.strip_prefix('>') {
            if name.is_some() {
                return Err(wrong("a second record; these programs take one"));
            }
            name = Some(title.split_whitespace().next().unwrap_or("").to_owned());
        } else if name.is_none() && !line.trim().is_empty() {
            return Err(wrong("letters before the first '>'"));
        } else {
            for letter in line.trim_end().bytes() {
                bases.push(code(letter).ok_or_else(|| wrong("a character that is no letter"))?);
            }
        }
    }
    match name {
        Some(name) if !bases.is_empty() => Ok(Sequence { name, bases }),
        _ => Err(FastaError::Format {
            path: path.to_owned(),
            line: line_count,
            what: "the file ends before the first base",
        }),
    }
}

fn code(letter: u8) -> Option<u8> {
    match letter.to_ascii_uppercase() {
        b'A' => Some(0),
        b'C' => Some(1),
        b'G' => Some(2),
        b'T' | b'U' => Some(3),
        b'A'..=b'Z' | b'-' | b'*' => Some(UNKNOWN),
        _ => None,
    }
}

/// The reverse complement: the other strand, in its own direction.
pub fn reverse_complement(bases: &[u8]) -> Vec<u8> {
    let complement = |&base: &u8| if base < UNKNOWN { 3 - base } else { base };
    bases.iter().rev().map(complement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn parsed(text: &str) -> Result<Sequence, String> {
        parse(Path::new("x.fa"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn letters_become_codes_across_lines_and_line_ends() {
        let sequence = parsed(">phage lambda\nACgt\r\nNn\n\nA\n").unwrap();
        assert_eq!(sequence.name, "phage");
        assert_eq!(sequence.bases, [0, 1, 2, 3, 4, 4, 0]);
    }

    #[test]
    fn a_file_without_exactly_one_record_is_an_error_that_names_the_line() {
        assert_eq!(
            parsed("ACGT").unwrap_err(),
            "x.fa, line 1: letters before the first '>'"
        );
        assert!(parsed(">a\nAC\n>b\n").unwrap_err().contains("line 3"));
        assert!(parsed(">a\nA1\n").unwrap_err().contains("no letter"));
        assert!(parsed("").unwrap_err().contains("ends before"));
        assert!(parsed(">a\n").unwrap_err().contains("ends before"));
    }

    #[test]
    fn compressed_and_plain_files_read_alike_and_half_a_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, whole, half) = (
            dir.path().join("a.fa"),
            dir.path().join("a.fa.gz"),
            dir.path().join("half.gz"),
        );
        let text = format!(">a\n{}\n", "ACGTTGCA".repeat(1000));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        let bytes = encoder.finish().unwrap();
        std::fs::write(&plain, &text).unwrap();
        std::fs::write(&whole, &bytes).unwrap();
        std::fs::write(&half, &bytes[..bytes.len() / 2]).unwrap();
        assert_eq!(read(&plain).unwrap(), read(&whole).unwrap());
        assert!(matches!(read(&half), Err(FastaError::Read { .. })));
        assert!(matches!(
            read(&dir.path().join("none")),
            Err(FastaError::Read { .. })
        ));
    }

    #[test]
    fn the_other_strand_of_the_other_strand_is_the_first() {
        let bases = [0, 0, 1, 3, 4, 2];
        assert_eq!(reverse_complement(&bases), [1, 4, 0, 2, 3, 3]);
        assert_eq!(reverse_complement(&reverse_complement(&bases)), bases);
    }
}
