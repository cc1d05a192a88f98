//! Options that state a checkpoint policy, and times on the command line.

use std::time::Duration;
use vm_wire::{
    checkpoint::{Policy, Recover},
    limits::{CHECKPOINT_EVERY_MIN, MTBF_MAX, SUSPENDED_FOR_MAX},
};

/// The time between checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// Each so long after the last; 0: no checkpoints.
    Fixed(Duration),
    /// The best interval for the cost of a checkpoint.
    Auto,
}

/// Reads a time between checkpoints: `auto`, 0, or at least [`CHECKPOINT_EVERY_MIN`].
pub(super) fn interval(text: &str) -> Result<Interval, String> {
    if text == "auto" {
        return Ok(Interval::Auto);
    }
    match duration(text)? {
        time if time.is_zero() || time >= CHECKPOINT_EVERY_MIN => Ok(Interval::Fixed(time)),
        _ => Err(format!("the interval is at least {CHECKPOINT_EVERY_MIN:?}")),
    }
}

/// Reads a mean time between failures: more than 0, and at most [`MTBF_MAX`].
pub(super) fn mtbf(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time.is_zero() || time > MTBF_MAX => {
            let days = MTBF_MAX.as_secs() / 86_400;
            Err(format!("the time is more than 0 and at most {days} days"))
        }
        time => Ok(time),
    }
}

/// Reads how long an application may be suspended: more than 0, and at most [`SUSPENDED_FOR_MAX`].
pub(super) fn suspended_for(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < Duration::from_millis(1) || time > SUSPENDED_FOR_MAX => {
            let days = SUSPENDED_FOR_MAX.as_secs() / 86_400;
            Err(format!("the time is more than 0 and at most {days} days"))
        }
        time => Ok(time),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>();
    let time = parsed.ok().and_then(|time| Duration::try_from(time).ok());
    time.ok_or_else(|| "a time is written like 90s, 5m or 1h".to_owned())
}

/// The mean time between failures that `auto` assumes without `--mtbf`: a day.
const MTBF: Duration = Duration::from_secs(86_400);

/// A checkpoint policy, without the options that say how images are written.
pub(super) fn policy(
    every: Option<Interval>,
    mtbf: Option<Duration>,
    keep: Option<u32>,
    recover: Option<RecoverArg>,
) -> Policy {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (every_ms, mtbf_ms) = match every {
        Some(Interval::Fixed(every)) => (millis(every), 0),
        Some(Interval::Auto) => (0, millis(mtbf.unwrap_or(MTBF))),
        None => (0, 0),
    };
    Policy {
        every_ms,
        mtbf_ms,
        keep: keep.unwrap_or(0),
        recover: match recover.unwrap_or(RecoverArg::Host) {
            RecoverArg::Host => Recover::Host,
            RecoverArg::Kill => Recover::Kill,
            RecoverArg::Never => Recover::Never,
        },
        ..Policy::default()
    }
}

/// When an application is restarted from its last checkpoint automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RecoverArg {
    /// When a host is lost on which it has a task.
    Host,
    /// Also when a task is killed by a signal that `vm` did not send.
    Kill,
    /// Never: its remaining tasks run on.
    Never,
}
