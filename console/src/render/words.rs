//! Names, times and amounts in the form that several subjects share.

use std::borrow::Cow;
use vm_wire::{
    checkpoint::{CheckpointReport, RestartReport},
    console::SuspendedRow,
};

/// Text for a value that is not known.
pub(super) const UNKNOWN: &str = "-";

/// A text without control characters, which could control a terminal: one in the name of a program,
/// for example, is shown as `\u{1b}`. Line feeds stay.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    let commands = |letter: char| letter.is_control() && letter != '\n';
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    let letter = |letter: char| match commands(letter) {
        true => letter.escape_unicode().to_string(),
        false => letter.to_string(),
    };
    Cow::Owned(text.chars().map(letter).collect())
}

/// As [`plain`], on one line.
pub(super) fn plain_name(name: &str) -> String {
    plain(name).replace('\n', "\\u{a}")
}

/// The checkpoint from which an application was restarted.
pub(super) fn restarted_from(report: &RestartReport) -> String {
    report.from.to_string()
}

/// The checkpoint with which an application was suspended.
pub(super) fn suspended_with(row: &SuspendedRow) -> String {
    row.from.to_string()
}

/// The name of a checkpoint in the store.
pub(super) fn checkpoint_name(report: &CheckpointReport) -> String {
    vm_store::CheckpointId::new(report.generation, report.epoch).to_string()
}

/// A time, from milliseconds since 1970; empty beyond the calendar.
pub(super) fn time(ms: u64) -> String {
    let time = i64::try_from(ms / 1000).ok();
    let time = time.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

pub(super) fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

pub(super) fn memory(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            let digits = usize::from(unit != "B");
            return format!("{amount:.digits$} {unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TiB")
}

pub(super) fn task_count(count: u32) -> String {
    format!("{count} task{}", if count == 1 { "" } else { "s" })
}
