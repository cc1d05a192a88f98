//! The note of how the last daemon in a folder ended, for the next daemon there.
//!
//! A daemon that is killed cannot report anything, and one that ran detached has no terminal. So
//! the file `ended` has a sentence. The daemon itself writes it, or, if the daemon was killed, its
//! guardian ([`crate::process::guardian`]). The next daemon reads and removes it. A `pid` without
//! `ended` means that the daemon was killed together with its guardian, or with its host.

use crate::start::files::write_whole;
use std::{fmt, fs, io, path::Path, time::SystemTime};

/// Name of the file with the note.
pub const ENDED_FILE: &str = "ended";
/// A longer file is not a note of this program. Bytes.
const TEXT_MAX: usize = 4096;

/// How the last daemon ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastEnd {
    text: String,
    /// Time since that end, if known. Seconds.
    age: Option<u64>,
}

impl fmt::Display for LastEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the last daemon in this folder ")?;
        if let Some(age) = self.age {
            write!(f, "ended {} ago: it ", span(age))?;
        }
        f.write_str(&self.text)
    }
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Writes how this daemon ended, for the next one in the folder: a sentence whose subject is "it".
///
/// # Errors
/// The error of the system call.
pub fn note(dir: &Path, text: &str) -> io::Result<()> {
    let line = text.replace('\n', " ");
    write_whole(&dir.join(ENDED_FILE), line.as_bytes()).map(drop)
}

/// Takes the note that the last daemon left, and removes it. `pid` is the content of the file
/// `pid`, which a daemon removes at an orderly end.
pub fn take(dir: &Path, pid: &str) -> Option<LastEnd> {
    let name = dir.join(ENDED_FILE);
    let found = fs::symlink_metadata(&name).ok();
    let found = found.filter(|found| found.is_file() && found.len() <= TEXT_MAX as u64);
    let text = found.as_ref().and_then(|_| fs::read_to_string(&name).ok());
    let _ = fs::remove_file(&name);
    if let (Some(found), Some(text)) = (found, text) {
        let since = |time| SystemTime::now().duration_since(time).ok();
        let age = found.modified().ok().and_then(since);
        return Some(LastEnd {
            text,
            age: age.map(|age| age.as_secs()),
        });
    }
    (!pid.is_empty()).then(|| LastEnd {
        text: format!("(process {pid}) was killed, and what watched it too, or its host went down"),
        age: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_of_a_daemons_end_is_read_once() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        note(temp.path(), "was killed\nhere").expect("room");
        let last = take(temp.path(), "7").expect("a trace").to_string();
        assert!(last.ends_with("s ago: it was killed here"), "{last}");
        let last = take(temp.path(), "7").expect("a trace").to_string();
        assert!(
            last.contains("process 7") && last.contains("killed"),
            "{last}"
        );
        assert_eq!(take(temp.path(), ""), None);
    }

    #[test]
    fn a_span_has_one_unit() {
        let spans = [0, 119, 120, 7_200, 172_800].map(span);
        assert_eq!(spans, ["0 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
