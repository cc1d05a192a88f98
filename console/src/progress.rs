//! Bars on a terminal: for hosts that are added; for a move, with its phase and the bytes that were
//! sent; for a drain, with the number of tasks that are left on the host.

use crate::render::Audience;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};
use vm_wire::{
    Tid,
    console::MoveRow,
    peer::{MovePhase, Sent},
};

/// How often the state of a move or a drain is requested, to show it.
pub const LOOK: Duration = Duration::from_millis(200);
/// How often the sign of a bar turns.
const TICK: Duration = Duration::from_millis(100);

/// A bar for a host or task of that name, whose daemon was sent a request.
pub fn of_host(audience: Audience, host: &str) -> ProgressBar {
    Progress::new(audience).bar(host, "asking its daemon")
}

/// Bars on a terminal, one below the other. Hidden if standard error is no terminal.
pub struct Progress {
    bars: MultiProgress,
    style: ProgressStyle,
}

impl Progress {
    /// No bar yet.
    pub fn new(audience: Audience) -> Self {
        let bars = MultiProgress::new();
        if audience == Audience::Programs || !io::stderr().is_terminal() {
            bars.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{spinner} {prefix}: {msg} ({elapsed})")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        Progress { bars, style }
    }

    /// Adds a bar for the host or task of that name.
    pub fn bar(&self, name: &str, message: &'static str) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new_spinner());
        bar.set_style(self.style.clone());
        bar.set_prefix(name.to_owned());
        bar.set_message(message);
        bar.enable_steady_tick(TICK);
        bar
    }

    /// Hides the bars while `write` writes to the terminal.
    pub fn suspend<R>(&self, write: impl FnOnce() -> R) -> R {
        self.bars.suspend(write)
    }
}

/// The bar of a move.
pub struct Moving {
    tid: Tid,
    bar: ProgressBar,
    /// Whether the bar has a length yet.
    is_long: bool,
}

impl Moving {
    /// A move of which no phase is known yet.
    pub fn new(audience: Audience, tid: Tid, name: &str) -> Self {
        let bar = of_host(audience, name);
        bar.set_message("asking the coordinator of its application");
        Moving {
            tid,
            bar,
            is_long: false,
        }
    }

    /// Shows the phase of the move, and how much was sent.
    pub fn show(&mut self, rows: &[MoveRow]) {
        let Some(row) = rows.iter().find(|row| row.tid == self.tid) else {
            return;
        };
        if let Some(phase) = row.phase {
            let from_to = format!("{} to {}", row.from, row.to);
            self.bar.set_message(format!("{from_to}: {}", doing(phase)));
        }
        if let Some(sent) = row.sent {
            if !std::mem::replace(&mut self.is_long, true) {
                let words = "{spinner} {prefix}: {msg} {bar:24} {binary_bytes} of \
                             {binary_total_bytes} ({elapsed})";
                let style = ProgressStyle::with_template(words);
                self.bar
                    .set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            }
            self.bar.set_length(length(sent));
            self.bar.set_position(sent.bytes);
        }
    }

    /// Removes the bar.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}

/// The state of a drain as text. Tasks that cannot be moved count as left. If no task is left, the
/// end of the last move may still be awaited.
pub fn left_there(tasks: u32) -> String {
    match tasks {
        0 => "no task is left there".to_owned(),
        1 => "1 task is left there".to_owned(),
        _ => format!("{tasks} tasks are left there"),
    }
}

/// The length of the bar. Pages that are written while the task runs are sent again, so more bytes
/// than the task's memory may be sent.
fn length(sent: Sent) -> u64 {
    sent.memory.max(sent.bytes)
}

/// The phase of a move, for people.
fn doing(phase: MovePhase) -> &'static str {
    match phase {
        MovePhase::Initialisation => "preparing",
        MovePhase::Copying => "copying while it runs",
        MovePhase::Interruption => "freezing",
        MovePhase::Draining => "draining",
        MovePhase::Saving => "sending the rest",
        MovePhase::Resumption => "resuming",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::tid;

    #[test]
    fn a_drain_shows_how_many_tasks_are_left() {
        let shown = [0, 1, 7].map(left_there);
        let wanted =
            ["no task is", "1 task is", "7 tasks are"].map(|it| format!("{it} left there"));
        assert_eq!(shown, wanted);
    }

    #[test]
    fn the_bar_shows_the_row_of_its_task_and_is_never_shorter_than_what_was_sent() {
        let row = |tid, phase, sent| MoveRow {
            tid,
            from: "alpha".to_owned(),
            to: "beta".to_owned(),
            phase,
            sent,
        };
        let (ours, other) = (tid(1, 1), tid(1, 2));
        let mut moving = Moving::new(Audience::Programs, ours, "t1.1");
        let sent = |bytes| Some(Sent { bytes, memory: 100 });
        moving.show(&[row(other, Some(MovePhase::Saving), sent(7))]);
        assert_eq!((moving.bar.position(), moving.bar.length()), (0, None));
        moving.show(&[row(ours, Some(MovePhase::Copying), None)]);
        assert_eq!(moving.bar.message(), "alpha to beta: copying while it runs");
        for (bytes, length) in [(30, 100), (130, 130)] {
            moving.show(&[row(ours, Some(MovePhase::Saving), sent(bytes))]);
            let shown = (moving.bar.position(), moving.bar.length());
            assert_eq!(shown, (bytes, Some(length)));
        }
        assert_eq!(moving.bar.message(), "alpha to beta: sending the rest");
        moving.end();
    }
}
