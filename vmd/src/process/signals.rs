//! Signals to the daemon, as readiness of a socket.
//!
//! Every signal is caught whose default action ends a process, except those by which a process
//! ends for a fault of its own (such as SIGSEGV) and SIGKILL. A batch system picks its warnings
//! from all of them, and a daemon that one of them ended would take its tasks with it. A signal
//! that is ignored when the daemon starts (`nohup`, or the background of a shell without job
//! control) stays ignored.

use crate::context::{Context, Source};
use mio::net::UnixStream;
use signal_hook::{
    consts::{
        SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,
        SIGVTALRM, SIGXCPU, SIGXFSZ,
    },
    iterator::{backend::SignalDelivery, exfiltrator::SignalOnly},
};
use std::{fs, io};

/// They announce an end, and so ask the daemon to leave its machine: the ways of terminals and
/// service managers, and the warnings of batch systems.
const STOPS: [i32; 8] = [
    SIGTERM,
    SIGINT,
    SIGHUP,
    SIGQUIT,
    SIGXCPU,
    SIGUSR1,
    SIGUSR2,
    libc::SIGPWR,
];
/// They mean nothing to the daemon, and are logged. The real-time signals are, too.
const NOTED: [i32; 6] = [SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGXFSZ, libc::SIGSTKFLT];

/// What signals ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Leave the machine: the signal that says so.
    pub stop: Option<i32>,
    /// Look for children that have ended: SIGCHLD.
    pub reap: bool,
    /// The fault of the tests: SIGUSR1, see [`crate::fault`].
    pub fault: bool,
    /// Signals that are logged and change nothing.
    pub noted: Vec<i32>,
}

/// The signals that are caught. SIGPIPE is ignored from the start, by Rust's own.
#[derive(Debug)]
pub struct Signals {
    caught: SignalDelivery<UnixStream, SignalOnly>,
    /// Whether SIGUSR1 is the fault of a test.
    has_fault: bool,
}

impl Signals {
    /// Catches them from now on.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn catch(context: &Context, has_fault: bool) -> io::Result<Signals> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let mut near = UnixStream::from_std(near);
        context.register_readable(&mut near, Source::Signals)?;
        let ignored = Ignored::now();
        let needed = STOPS.into_iter().filter(|signal| !ignored.has(*signal));
        let needed = needed.chain([SIGCHLD]);
        let caught = SignalDelivery::with_pipe(near, far, SignalOnly, needed)?;
        for signal in NOTED.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
            if !ignored.has(signal)
                && let Err(error) = caught.handle().add_signal(signal)
            {
                // An emulator of another processor keeps some for itself.
                log::debug!("{} is not caught: {error}", name(signal));
            }
        }
        Ok(Signals { caught, has_fault })
    }

    /// What was asked since the last call.
    pub fn take(&mut self) -> Asked {
        let mut asked = Asked::default();
        for signal in self.caught.pending() {
            match signal {
                SIGCHLD => asked.reap = true,
                SIGUSR1 if self.has_fault => asked.fault = true,
                signal if STOPS.contains(&signal) => asked.stop = Some(signal),
                signal => asked.noted.push(signal),
            }
        }
        asked
    }
}

/// All signals that a process of this program can catch and that would end it.
pub fn catchable() -> impl Iterator<Item = i32> {
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    STOPS.into_iter().chain(NOTED).chain(real_time)
}

/// The signals that this process ignores.
#[derive(Debug, Clone, Copy)]
pub struct Ignored(u64);

impl Ignored {
    /// As it is at this moment; none where the system does not say.
    pub fn now() -> Ignored {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut lines = status.lines();
        let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        Ignored(mask.unwrap_or(0))
    }

    /// Whether that signal is one of them.
    pub fn has(self, signal: i32) -> bool {
        let bit = u32::try_from(signal - 1).ok();
        bit.and_then(|bit| self.0.checked_shr(bit))
            .is_some_and(|mask| mask & 1 != 0)
    }
}

/// What a signal is called.
pub fn name(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => name.to_owned(),
        None if signal == libc::SIGPWR => "SIGPWR".to_owned(),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_of_ignored_signals_names_them_by_number() {
        let ignored = Ignored(1 | 1 << 12);
        assert!(ignored.has(1) && ignored.has(13));
        assert!(!ignored.has(2) && !ignored.has(64) && !ignored.has(0) && !ignored.has(65));
        // By Rust's own runtime.
        assert!(Ignored::now().has(libc::SIGPIPE) && !Ignored::now().has(SIGTERM));
    }
}
