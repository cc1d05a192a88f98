//! Signals to the daemon, as readiness of a socket.

use crate::context::{Context, Source};
use mio::net::UnixStream;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// What signals ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// Leave the machine: SIGTERM, SIGINT, SIGHUP.
    pub stop: bool,
    /// Look for children that have ended: SIGCHLD.
    pub reap: bool,
    /// The fault of the tests: SIGUSR1, see [`crate::fault`].
    pub fault: bool,
}

/// The signals that are caught. SIGPIPE is ignored from the start, by Rust's own.
#[derive(Debug)]
pub struct Signals {
    socket: UnixStream,
    stop: Arc<AtomicBool>,
    reap: Arc<AtomicBool>,
    fault: Arc<AtomicBool>,
}

impl Signals {
    /// Catches them from now on.
    ///
    /// # Errors
    /// What the system says.
    pub fn catch(context: &Context) -> io::Result<Signals> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let mut signals = Signals {
            socket: UnixStream::from_std(near),
            stop: Arc::default(),
            reap: Arc::default(),
            fault: Arc::default(),
        };
        context.register_readable(&mut signals.socket, Source::Signals)?;
        for (signal, flag) in [
            (SIGTERM, &signals.stop),
            (SIGINT, &signals.stop),
            (SIGHUP, &signals.stop),
            (SIGCHLD, &signals.reap),
            (SIGUSR1, &signals.fault),
        ] {
            // The flag first: it must be up when the socket wakes the loop.
            signal_hook::flag::register(signal, flag.clone())?;
            signal_hook::low_level::pipe::register(signal, far.try_clone()?)?;
        }
        Ok(signals)
    }

    /// What was asked since the last call.
    pub fn take(&mut self) -> Asked {
        let mut bytes = [0; 64];
        while matches!(self.socket.read(&mut bytes), Ok(1..)) {}
        let take = |flag: &AtomicBool| flag.swap(false, Ordering::SeqCst);
        Asked {
            stop: take(&self.stop),
            reap: take(&self.reap),
            fault: take(&self.fault),
        }
    }
}
