//! Ctrl-C, and what else asks the console to stop.
//!
//! What a signal means depends on what the console does just then. While it waits for an answer,
//! the wait ends and the command fails as interrupted. At the prompt, where Ctrl-C is a mere key,
//! a signal can only have been sent by somebody else: the terminal is put in order and the console
//! ends. During `run` signals belong to the program; see the `run` module.

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
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

const IDLE: u8 = 0;
const WAITING: u8 = 1;
const RELAYING: u8 = 2;

/// Where a wait learns that the user wants it to end. One in the process hears signals.
#[derive(Debug)]
pub struct Interrupt {
    phase: Arc<AtomicU8>,
    /// There is one command.
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
    /// When they are taken already, or descriptors are short.
    pub fn install(once: bool) -> anyhow::Result<Self> {
        let (mut interrupt, raise) = Self::pair()?;
        interrupt.once = once;
        let phase = interrupt.phase.clone();
        let terminal = tcgetattr(io::stdin()).ok();
        match ctrlc::try_set_handler(move || on_signal(&phase, &raise, terminal.as_ref())) {
            // Whoever started the console has one of the signals ignored (nohup, a script's
            // background): then they stay as they are.
            Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(interrupt),
            Err(error) => Err(error).context("cannot handle signals"),
        }
    }

    /// One that no signal reaches, for a wait that a signal must not end.
    ///
    /// # Errors
    /// When descriptors are short.
    pub fn deaf() -> io::Result<Self> {
        Ok(Self::pair()?.0)
    }

    /// One that no signal reaches.
    #[cfg(test)]
    pub fn none() -> Self {
        Self::deaf().expect("a socket pair")
    }

    fn pair() -> io::Result<(Self, UnixStream)> {
        let (signalled, raise) = UnixStream::pair()?;
        signalled.set_nonblocking(true)?;
        raise.set_nonblocking(true)?;
        let interrupt = Interrupt {
            phase: Arc::new(AtomicU8::new(IDLE)),
            once: false,
            signalled,
            _raise: raise.try_clone()?,
        };
        Ok((interrupt, raise))
    }

    /// For as long as the returned value lives, a signal makes [`Interrupt::poll_fd`] readable. A wait
    /// that is part of a longer one hears of the signals to that.
    pub fn waiting(&self) -> Phase {
        if self.phase.load(Ordering::SeqCst) != WAITING {
            // What came before this wait was meant for another.
            while matches!((&self.signalled).read(&mut [0; 16]), Ok(1..)) {}
        }
        Phase::enter(&self.phase, WAITING)
    }

    /// For as long as the returned value lives, signals are somebody else's. To the end of the process if
    /// that comes next: one that has ended the program may be heard of here only after that.
    pub fn relaying(&self) -> Phase {
        let mut phase = Phase::enter(&self.phase, RELAYING);
        if self.once {
            phase.before = RELAYING;
        }
        phase
    }

    /// Readable once a signal came during a wait.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.signalled.as_fd()
    }

    /// To be polled in a wait.
    pub fn poll_fd(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.signalled.as_fd(), PollFlags::IN)
    }
}

/// What a signal means, until dropped.
#[derive(Debug)]
pub struct Phase {
    phase: Arc<AtomicU8>,
    before: u8,
}

impl Phase {
    fn enter(phase: &Arc<AtomicU8>, now: u8) -> Self {
        Phase {
            phase: phase.clone(),
            before: phase.swap(now, Ordering::SeqCst),
        }
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        self.phase.store(self.before, Ordering::SeqCst);
    }
}

/// Runs on a thread of its own, not in the signal's handler.
fn on_signal(phase: &AtomicU8, mut raise: &UnixStream, terminal: Option<&Termios>) {
    match phase.load(Ordering::SeqCst) {
        RELAYING => {}
        // A full pipe says the same already.
        WAITING => drop(raise.write(&[1])),
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
    fn a_signal_that_is_heard_of_after_its_program_has_ended_ends_no_command() {
        let mut interrupt = Interrupt::none();
        let is_relaying = |interrupt: &Interrupt| {
            drop(interrupt.relaying());
            interrupt.phase.load(Ordering::SeqCst) == RELAYING
        };
        // At the prompt another command follows.
        assert!(!is_relaying(&interrupt));
        interrupt.once = true;
        assert!(is_relaying(&interrupt));
    }
}
