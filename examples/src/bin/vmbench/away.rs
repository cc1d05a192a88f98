//! When the computer itself was away.
//!
//! On a virtual machine a processor stands still now and then, for tens of milliseconds, and more often
//! the more of them are busy: its host has other work. Whoever waits for something meanwhile waits as
//! long as the host likes, and no program inside can do anything about it. Not all of it is counted as
//! stolen. So a process looks on that runs before all others (`SCHED_FIFO`) on the same processor: it
//! sleeps for half a millisecond at a time, and when it wakes late, nothing else ran meanwhile either,
//! but perhaps the kernel's own interrupts.

use anyhow::{Context, Result};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Signal, set_parent_process_death_signal},
    time::{ClockId, clock_gettime},
};
use std::{
    io::{ErrorKind, Read, Write, stdout},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

/// How long the process sleeps at a time.
const SLEEP: Duration = Duration::from_micros(500);
/// How late it may wake.
const LATE: f64 = 500.0;

/// The clock that both processes have. Microseconds.
pub fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    1e6 * time.tv_sec as f64 + 1e-3 * time.tv_nsec as f64
}

/// The process that looks on: says from when to when nothing ran, a line for each time.
pub fn watch() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    loop {
        let due = now() + 1e6 * SLEEP.as_secs_f64();
        thread::sleep(SLEEP);
        let woken = now();
        if woken - due > LATE {
            writeln!(stdout(), "{due} {woken}")?;
        }
    }
}

/// Looks on at the processor of the process that has made it. Where it may not run before all others,
/// or cannot be started, the computer counts as always there.
pub struct Away {
    process: Option<(Child, ChildStdout)>,
    /// What it said, as far as it is no whole line yet.
    said: String,
    /// From when to when.
    spans: Vec<(f64, f64)>,
}

impl Away {
    pub fn look_on() -> Result<Self> {
        let mut command = Command::new("chrt");
        command.args(["--fifo", "1"]).arg(std::env::current_exe()?);
        command.arg("watch").stdin(Stdio::null());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = None;
        if let Ok(mut child) = command.spawn() {
            let out = child.stdout.take().context("it is a pipe")?;
            fcntl_setfl(&out, fcntl_getfl(&out)? | OFlags::NONBLOCK)?;
            process = Some((child, out));
        }
        Ok(Away {
            process,
            said: String::new(),
            spans: Vec::new(),
        })
    }

    /// For how long it was away between two times. It has said so before anyone else could go on.
    pub fn between(&mut self, begin: f64, end: f64) -> Result<f64> {
        self.listen()?;
        let spans = self.spans.drain(..);
        Ok(spans
            .map(|(from, to)| shared((from, to), (begin, end)))
            .sum())
    }

    fn listen(&mut self) -> Result<()> {
        let Some((_, out)) = &mut self.process else {
            return Ok(());
        };
        match out.read_to_string(&mut self.said) {
            // It has ended: it was not allowed.
            Ok(_) => self.end(),
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
            Err(cause) => return Err(cause).context("who looks on"),
        }
        while let Some((line, rest)) = self.said.split_once('\n') {
            let span = line.split_once(' ').context("who looks on")?;
            self.spans.push((span.0.parse()?, span.1.parse()?));
            self.said = rest.to_owned();
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some((mut child, _)) = self.process.take() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        self.end();
    }
}

/// How much two spans have in common.
fn shared(one: (f64, f64), other: (f64, f64)) -> f64 {
    (one.1.min(other.1) - one.0.max(other.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_within_both_counts() {
        assert_eq!(shared((1.0, 4.0), (3.0, 9.0)), 1.0);
        assert_eq!(shared((3.0, 9.0), (1.0, 4.0)), 1.0);
        assert_eq!(shared((3.0, 5.0), (1.0, 9.0)), 2.0);
        assert_eq!(shared((1.0, 2.0), (3.0, 9.0)), 0.0);
    }
}
