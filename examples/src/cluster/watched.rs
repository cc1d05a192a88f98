//! A console whose output is read line by line.

use super::{interrupt::Interrupt, running::Running};
use anyhow::{Context, Result, bail, ensure};
use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

/// Number of the last lines that an error shows.
const SHOWN: usize = 12;
/// Interval at which the interrupt is checked.
const LOOK: Duration = Duration::from_millis(100);

/// A running console, which ends when this value is dropped. Its master gets SIGHUP then.
#[derive(Debug)]
pub struct Watched {
    process: Running,
    lines: Receiver<(Instant, String)>,
    last: VecDeque<String>,
    interrupt: Interrupt,
}

impl Watched {
    /// Starts the console. It has no standard input. The lines of its standard output and error are
    /// read.
    ///
    /// # Errors
    /// When the console cannot be run.
    pub fn start(mut console: Command, interrupt: &Interrupt) -> Result<Self> {
        console.stdin(Stdio::null());
        console.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Running(console.spawn().context("running the console")?);
        let (sender, lines) = channel();
        let out = process.0.stdout.take().context("its output")?;
        let errors = process.0.stderr.take().context("its errors")?;
        read(out, sender.clone());
        read(errors, sender);
        Ok(Watched {
            process,
            lines,
            last: VecDeque::new(),
            interrupt: interrupt.clone(),
        })
    }

    /// Waits for a line that contains `text`. Returns the moment at which it came, and the line.
    ///
    /// # Errors
    /// When the console ends before, or the line does not come in time; the error has the last
    /// lines.
    pub fn line(&mut self, text: &str, patience: Duration) -> Result<(Instant, String)> {
        let begin = Instant::now();
        loop {
            match self.next(text, patience.saturating_sub(begin.elapsed()))? {
                Some((at, line)) if line.contains(text) => return Ok((at, line)),
                Some(_) => {}
                None => bail!("it ended without '{text}':\n{}", self.shown()),
            }
        }
    }

    /// Waits until the console ends. Returns its exit status and its last lines.
    ///
    /// # Errors
    /// When the console does not end in time.
    pub fn end(mut self, patience: Duration) -> Result<(ExitStatus, String)> {
        let begin = Instant::now();
        while self
            .next("its end", patience.saturating_sub(begin.elapsed()))?
            .is_some()
        {}
        Ok((self.process.0.wait()?, self.shown()))
    }

    /// The next line; none at the end of the output.
    fn next(&mut self, text: &str, patience: Duration) -> Result<Option<(Instant, String)>> {
        let begin = Instant::now();
        loop {
            let left = patience.saturating_sub(begin.elapsed());
            match self.lines.recv_timeout(left.min(LOOK)) {
                Ok((at, line)) => {
                    if self.last.len() == SHOWN {
                        self.last.pop_front();
                    }
                    self.last.push_back(line.clone());
                    return Ok(Some((at, line)));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    ensure!(!self.interrupt.is_set(), "interrupted");
                    ensure!(
                        !left.is_zero(),
                        "'{text}' did not come in time:\n{}",
                        self.shown()
                    );
                }
            }
        }
    }

    fn shown(&self) -> String {
        Vec::from_iter(self.last.iter().map(String::as_str)).join("\n")
    }
}

/// Sends each line with the moment at which it came, until there are no more lines or no receiver.
fn read(from: impl Read + Send + 'static, to: Sender<(Instant, String)>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send((Instant::now(), line)).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than a shell takes.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn shell(text: &str) -> Watched {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        Watched::start(command, &Interrupt::default()).expect("a shell")
    }

    #[test]
    fn a_line_is_awaited_and_the_last_lines_are_in_the_error() {
        let mut console = shell("echo one; echo two >&2; exec sleep 1000");
        assert_eq!(console.line("tw", PATIENCE).expect("a line").1, "two");
        let error = console.line("three", Duration::ZERO).expect_err("no line");
        assert!(error.to_string().contains("'three' did not come in time"));
    }

    #[test]
    fn an_end_is_no_line() {
        let error = shell("echo one; exit 3").line("two", PATIENCE);
        let error = error.expect_err("it ends").to_string();
        assert!(error.ends_with("ended without 'two':\none"), "{error}");
        let (status, said) = shell("echo one; exit 3").end(PATIENCE).expect("an end");
        assert_eq!((status.code(), &*said), (Some(3), "one"));
    }
}
