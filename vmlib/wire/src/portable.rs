//! The state of a portable task as a stream: the data from which the program and the library
//! continue in a new process, on a host of any architecture (see `docs/portable.md`).
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `vm-state` |
//! | 8 | 4 | version |
//! | 12 | 4 | zero |
//! | 16 | | sections, the last one the end |
//!
//! | of a section | bytes | field |
//! |---|---|---|
//! | 0 | 4 | kind: 1 process, 2 library, 3 value, 0xffffffff end |
//! | 4 | 4 | zero |
//! | 8 | 8 | length of the content; of the end, that of the whole stream |
//! | 16 | 8 | XXH3 (64 bits) of the content; of the end, of the 16 bytes before |
//! | 24 | | the content; the end has none |
//!
//! All numbers are little-endian. The sections process and library are MessagePack with field
//! names, so that fields can be added. The section value holds the bytes that the program supplied.
//! Each of the three sections occurs once. A reader skips sections of other kinds.

use crate::{Body, limits};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// First bytes of a stream.
pub const MAGIC: &[u8; 8] = b"vm-state";
/// The only version.
pub const VERSION: u32 = 1;
/// Length of the stream before the first section. Bytes.
const HEAD: usize = 16;
/// Length of a section without its content, and of the end. Bytes.
const SECTION: usize = 24;

/// Kinds of sections.
const PROCESS: u32 = 1;
const LIBRARY: u32 = 2;
const VALUE: u32 = 3;
const END: u32 = u32::MAX;

/// Environment variable of a process that continues from such a stream: the number of the
/// descriptor from which the process reads it. The next two numbers are the descriptors of the data
/// socket and the interrupt socket.
pub const ENV_STATE: &str = "VM_STATE";
/// Environment variable of every task: the names of the variables that the requester of the spawn
/// has set, separated by `=`, which no name can contain. A portable task takes these variables
/// along in a move.
pub const ENV_NAMES: &str = "VM_ENV";

/// The data from which a daemon starts the process of a portable task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessState {
    /// Absolute path of the program at the save.
    pub program: Body,
    /// The arguments; the first one is the name.
    pub args: Vec<Body>,
    /// Variables beside those of the daemon.
    pub env: Vec<(Body, Body)>,
    /// The working directory of the new process.
    pub dir: Body,
}

/// The content of a whole stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortableState<'a> {
    /// The data from which the process is started.
    pub process: ProcessState,
    /// The state of the library.
    pub library: &'a [u8],
    /// The value that the program supplied.
    pub value: &'a [u8],
}

/// The reason why bytes are no stream of a portable task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortableError {
    /// The first bytes are not [`MAGIC`].
    #[error("it is no portable state")]
    Magic,
    /// The version is unknown.
    #[error("it has version {0}, and only version {VERSION} can be read here")]
    Version(u32),
    /// The stream ends too early, or continues after its end.
    #[error("it is not whole: {0}")]
    Torn(&'static str),
    /// A checksum does not match.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// A section is too long.
    #[error(
        "{what} has {bytes} bytes, and {} are possible",
        limits::PORTABLE_PART_MAX
    )]
    TooLong {
        /// Name of the section.
        what: &'static str,
        /// Length of the section. Bytes.
        bytes: u64,
    },
}

impl PortableState<'_> {
    /// Encodes the state as a stream.
    ///
    /// # Errors
    /// [`PortableError::TooLong`] if a section is too long.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PortableError> {
        let process = rmp_serde::to_vec_named(&self.process).expect("it holds bytes alone");
        let parts = [
            (PROCESS, "how its process is started", &process[..]),
            (LIBRARY, "what the library keeps", self.library),
            (VALUE, "the program's value", self.value),
        ];
        let len: usize = parts.iter().map(|(.., part)| SECTION + part.len()).sum();
        let mut bytes = Vec::with_capacity(HEAD + len + SECTION);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for (kind, what, part) in parts {
            let len = part.len() as u64;
            if len > limits::PORTABLE_PART_MAX {
                return Err(PortableError::TooLong { what, bytes: len });
            }
            bytes.extend_from_slice(&head(kind, len, xxh3_64(part)));
            bytes.extend_from_slice(part);
        }
        let whole = (bytes.len() + SECTION) as u64;
        bytes.extend_from_slice(&end(whole));
        Ok(bytes)
    }
}

impl<'a> PortableState<'a> {
    /// Decodes a whole stream.
    ///
    /// # Errors
    /// [`PortableError`] if the stream is incomplete, damaged or of another version. `TooLong`
    /// comes only from a damaged stream.
    pub fn read(bytes: &'a [u8]) -> Result<Self, PortableError> {
        if !bytes.starts_with(MAGIC) {
            return Err(PortableError::Magic);
        }
        let torn = PortableError::Torn("it ends within a section");
        match number(bytes, 8, 4) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => return Err(PortableError::Version(version as u32)),
            None => return Err(torn),
        }
        if number(bytes, 12, 4) != Some(0) {
            return Err(PortableError::Damaged("its head"));
        }
        let (mut process, mut library, mut value) = (None, None, None);
        let mut at = HEAD;
        loop {
            let fields = (
                number(bytes, at, 8),
                number(bytes, at + 8, 8),
                number(bytes, at + 16, 8),
            );
            // The upper half of the first field is the four zero bytes.
            let (Some(kind), Some(len), Some(hash)) = fields else {
                return Err(torn);
            };
            let Ok(kind) = u32::try_from(kind) else {
                return Err(PortableError::Damaged("the head of a part"));
            };
            if kind == END {
                if bytes.len() != at + SECTION || !is_whole(bytes) {
                    return Err(PortableError::Torn("its end is not where it says"));
                }
                break;
            }
            if len > limits::PORTABLE_PART_MAX {
                let what = "a part";
                return Err(PortableError::TooLong { what, bytes: len });
            }
            let rest = bytes.get(at + SECTION..).unwrap_or_default();
            let Some(content) = rest.get(..len as usize) else {
                return Err(torn);
            };
            let (place, what) = match kind {
                PROCESS => (&mut process, "how its process is started"),
                LIBRARY => (&mut library, "what the library keeps"),
                VALUE => (&mut value, "the program's value"),
                _ => (&mut None, "a part of another kind"),
            };
            if xxh3_64(content) != hash || place.replace(content).is_some() {
                return Err(PortableError::Damaged(what));
            }
            at += SECTION + content.len();
        }
        let (Some(process), Some(library), Some(value)) = (process, library, value) else {
            return Err(PortableError::Torn("a part of it is missing"));
        };
        let process = rmp_serde::from_slice(process)
            .map_err(|_| PortableError::Damaged("how its process is started"))?;
        Ok(PortableState {
            process,
            library,
            value,
        })
    }
}

fn head(kind: u32, len: u64, hash: u64) -> [u8; SECTION] {
    let mut bytes = [0; SECTION];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    bytes[8..16].copy_from_slice(&len.to_le_bytes());
    bytes[16..].copy_from_slice(&hash.to_le_bytes());
    bytes
}

fn end(whole: u64) -> [u8; SECTION] {
    let bytes = head(END, whole, 0);
    head(END, whole, xxh3_64(&bytes[..16]))
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..len].copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
    Some(u64::from_le_bytes(number))
}

/// Whether `bytes` are the end of a stream of `len` bytes.
fn is_whole(bytes: &[u8]) -> bool {
    bytes.ends_with(&end(bytes.len() as u64))
}

/// Detects whether a stream that a process only passes on is whole: its writer can end at any
/// moment. Only the first bytes and the end are examined.
#[derive(Debug, Clone, Default)]
pub struct EndSeen {
    bytes: u64,
    /// The first and the last bytes of the stream.
    first: [u8; MAGIC.len()],
    last: [u8; SECTION],
}

impl EndSeen {
    /// Takes the next bytes of the stream.
    pub fn passed(&mut self, bytes: &[u8]) {
        let known = usize::try_from(self.bytes).map_or(MAGIC.len(), |it| it.min(MAGIC.len()));
        for (place, byte) in self.first[known..].iter_mut().zip(bytes) {
            *place = *byte;
        }
        let last = &bytes[bytes.len().saturating_sub(SECTION)..];
        self.last.rotate_left(last.len());
        self.last[SECTION - last.len()..].copy_from_slice(last);
        self.bytes += bytes.len() as u64;
    }

    /// Whether the bytes so far are a portable state with its end.
    pub fn is_whole(&self) -> bool {
        self.first == *MAGIC && self.bytes >= SECTION as u64 && self.last == end(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ProcessState {
        ProcessState {
            program: Body::from(b"/opt/vm/heat".to_vec()),
            args: vec![Body::from(b"heat".to_vec()), Body::from(b"--fast".to_vec())],
            env: vec![(Body::from(b"LEVEL".to_vec()), Body::from(b"3".to_vec()))],
            dir: Body::from(b"/tmp".to_vec()),
        }
    }

    fn stream() -> Vec<u8> {
        let state = PortableState {
            process: sample(),
            library: b"library",
            value: b"the value",
        };
        state.to_bytes().expect("it is short")
    }

    #[test]
    fn a_state_is_read_as_written() {
        let bytes = stream();
        let read = PortableState::read(&bytes).expect("it is whole");
        assert_eq!(read.process, sample());
        assert_eq!(
            (read.library, read.value),
            (&b"library"[..], &b"the value"[..])
        );
    }

    #[test]
    fn the_layout_of_a_stream_is_pinned() {
        let state = PortableState {
            process: ProcessState::default(),
            library: b"L",
            value: b"",
        };
        let bytes = state.to_bytes().expect("it is short");
        assert_eq!(&bytes[..16], b"vm-state\x01\0\0\0\0\0\0\0");
        assert_eq!(&bytes[16..20], &1u32.to_le_bytes());
        let process = u64::from_le_bytes(*bytes[24..].first_chunk().expect("8 bytes")) as usize;
        let library = 40 + process;
        assert_eq!(
            &bytes[library..library + 16],
            b"\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"
        );
        assert_eq!(bytes[library + 24], b'L');
        let end = &bytes[bytes.len() - 24..];
        assert_eq!(&end[..8], b"\xff\xff\xff\xff\0\0\0\0");
        assert_eq!(&end[8..16], &(bytes.len() as u64).to_le_bytes());
    }

    #[test]
    fn a_stream_that_was_cut_or_changed_anywhere_is_refused() {
        let bytes = stream();
        for at in 0..bytes.len() {
            assert!(PortableState::read(&bytes[..at]).is_err(), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(PortableState::read(&changed).is_err(), "byte {at}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(PortableState::read(&longer).is_err());
    }

    #[test]
    fn a_length_is_compared_with_its_limit_before_it_is_used() {
        let mut bytes = stream();
        bytes[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        let read = PortableState::read(&bytes);
        assert!(
            matches!(read, Err(PortableError::TooLong { .. })),
            "{read:?}"
        );
    }

    #[test]
    fn the_end_is_detected_at_any_size_of_reads_and_only_a_true_end() {
        let bytes = stream();
        let whole = |bytes: &[u8], at_once: usize| {
            let mut seen = EndSeen::default();
            bytes.chunks(at_once).for_each(|part| seen.passed(part));
            seen.is_whole()
        };
        for at_once in [1, 7, 24, 4096] {
            assert!(whole(&bytes, at_once));
            for cut in 0..bytes.len() {
                assert!(!whole(&bytes[..cut], at_once), "{cut}");
            }
        }
        assert!(!whole(&[&bytes[..], b"x"].concat(), 64));
        assert!(!whole(&[b"x", &bytes[..]].concat(), 64));
    }
}
