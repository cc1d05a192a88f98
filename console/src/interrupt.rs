//! Ctrl-C, and other signals that end the console.
//!
//! The effect of a signal depends on what the console does at that time. During a wait for a reply,
//! the wait ends and the command fails as interrupted. At the prompt Ctrl-C is a mere key, so a
//! signal comes from another process: the terminal is put in order and the console ends. During a
//! run, signals belong to the program; see [`run`](crate::run). The signal that ends the program may
//! reach the console's handler a moment later than the program's end, and belongs to the program too.

use anyhow::Context;
use rustix::{
    event::{PollFd, PollFlags},
    termios::{OptionalActions, Termios, tcgetattr, tcsetattr},
};
use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

const IDLE: u8 = 0;
const WAITING: u8 = 1;
const RELAYING: u8 = 2;

/// A signal that is handled so soon after a run was meant for the run.
const LATE: Duration = Duration::from_millis(500);

/// The state by which the signal handler decides.
#[derive(Debug)]
struct Signals {
    /// The phase of the console: idle, waiting for a reply, or relaying a run.
    phase: AtomicU8,
    /// When the last run at the prompt ended.
    relayed: Mutex<Option<Instant>>,
}

impl Signals {
    /// Whether a signal at that time ends a console that does nothing.
    fn end_console(&self, now: Instant) -> bool {
        let relayed = *self.relayed.lock().unwrap_or_else(PoisonError::into_inner);
        relayed.is_none_or(|end| now.saturating_duration_since(end) > LATE)
    }
}

/// Ends waits when a signal comes. Only one value in the process handles signals.
#[derive(Debug)]
pub struct Interrupt {
    signals: Arc<Signals>,
    /// Whether the console ends after one command.
    once: bool,
    /// Readable once a signal came during a wait.
    signalled: UnixStream,
    /// Keeps `signalled` from reading an end of file when no handler holds the other end.
    _raise: UnixStream,
}

impl Interrupt {
    /// Takes over SIGINT, SIGTERM and SIGHUP. The console ends after one command, or has a prompt.
    ///
    /// # Errors
    /// If the signals have a handler already, or descriptors are short.
    pub fn install(once: bool) -> anyhow::Result<Self> {
        let (mut interrupt, raise) = Self::pair()?;
        interrupt.once = once;
        let signals = interrupt.signals.clone();
        let terminal = tcgetattr(io::stdin()).ok();
        match ctrlc::try_set_handler(move || on_signal(&signals, &raise, terminal.as_ref())) {
            // One of the signals is ignored (nohup, a script's background): all stay as they are.
            Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(interrupt),
            Err(error) => Err(error).context("cannot handle signals"),
        }
    }

    /// An interrupt that no signal reaches, for a wait that a signal must not end.
    ///
    /// # Errors
    /// If descriptors are short.
    pub fn deaf() -> io::Result<Self> {
        Ok(Self::pair()?.0)
    }

    /// An interrupt that no signal reaches.
    #[cfg(test)]
    pub fn none() -> Self {
        Self::deaf().expect("a socket pair")
    }

    fn pair() -> io::Result<(Self, UnixStream)> {
        let (signalled, raise) = UnixStream::pair()?;
        signalled.set_nonblocking(true)?;
        raise.set_nonblocking(true)?;
        let interrupt = Interrupt {
            signals: Arc::new(Signals {
                phase: AtomicU8::new(IDLE),
                relayed: Mutex::new(None),
            }),
            once: false,
            signalled,
            _raise: raise.try_clone()?,
        };
        Ok((interrupt, raise))
    }

    /// For as long as the returned value lives, a signal makes [`Interrupt::poll_fd`] readable. A wait
    /// within a longer wait is ended by signals since the beginning of the longer one.
    pub fn waiting(&self) -> Phase {
        if self.signals.phase.load(Ordering::SeqCst) != WAITING {
            // Signals before this wait were meant for another one.
            while matches!((&self.signalled).read(&mut [0; 16]), Ok(1..)) {}
        }
        Phase::enter(&self.signals, WAITING)
    }

    /// For as long as the returned value lives, signals have no effect here, because a run passes them
    /// on. If the console ends after this command, until its end: the signal that ended the program may
    /// arrive here after the program's end.
    pub fn relaying(&self) -> Phase {
        let mut phase = Phase::enter(&self.signals, RELAYING);
        if self.once {
            phase.before = RELAYING;
        }
        phase
    }

    /// Readable once a signal came during a wait.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.signalled.as_fd()
    }

    /// For the poll of a wait.
    pub fn poll_fd(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.signalled.as_fd(), PollFlags::IN)
    }
}

/// A phase of the console, in which a signal has the effect of that phase. Dropping the value returns
/// to the phase before.
#[derive(Debug)]
pub struct Phase {
    signals: Arc<Signals>,
    now: u8,
    before: u8,
}

impl Phase {
    fn enter(signals: &Arc<Signals>, now: u8) -> Self {
        Phase {
            signals: signals.clone(),
            now,
            before: signals.phase.swap(now, Ordering::SeqCst),
        }
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        if self.now == RELAYING {
            let relayed = self.signals.relayed.lock();
            *relayed.unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        self.signals.phase.store(self.before, Ordering::SeqCst);
    }
}

/// Runs on a thread of its own, not in the signal's handler.
fn on_signal(signals: &Signals, mut raise: &UnixStream, terminal: Option<&Termios>) {
    match signals.phase.load(Ordering::SeqCst) {
        RELAYING => {}
        // A full socket is readable already.
        WAITING => drop(raise.write(&[1])),
        _ if !signals.end_console(Instant::now()) => {}
        _ => {
            if let Some(terminal) = terminal {
                // The process ends whether or not the terminal is still there.
                let _ = tcsetattr(io::stdin(), OptionalActions::Now, terminal);
            }
            process::exit(crate::exit::INTERRUPTED.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_arrives_after_its_program_has_ended_ends_no_command() {
        let mut interrupt = Interrupt::none();
        let is_relaying = |interrupt: &Interrupt| {
            drop(interrupt.relaying());
            interrupt.signals.phase.load(Ordering::SeqCst) == RELAYING
        };
        // At the prompt another command follows.
        assert!(interrupt.signals.end_console(Instant::now()));
        assert!(!is_relaying(&interrupt));
        let now = Instant::now();
        assert!(!interrupt.signals.end_console(now));
        assert!(interrupt.signals.end_console(now + 2 * LATE));
        interrupt.once = true;
        assert!(is_relaying(&interrupt));
    }
}
