//! The progress bar of a long computation.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `cells` cells on standard error; hidden if standard error is no terminal.
pub fn progress_bar(cells: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{elapsed_precise} [{wide_bar}] {percent:>3} %  {cells_per_second}  {eta} left",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar())
    .with_key(
        "cells_per_second",
        |state: &indicatif::ProgressState, text: &mut dyn std::fmt::Write| {
            // A bar that cannot be drawn is no reason to stop computing.
            let _ = write!(text, "{:.2} Gcells/s", state.per_sec() / 1e9);
        },
    )
    .progress_chars("=> ");
    ProgressBar::new(cells).with_style(style)
}
