//! Signals to the daemon, as readiness of a socket.
//!
//! Every signal whose default action ends a process is caught, except SIGKILL and the signals of a
//! process's own faults (such as SIGSEGV). A batch system may use any of them as a warning, and a
//! daemon that was ended by a signal would take its tasks with it. A signal that is ignored when
//! the daemon starts (`nohup`, or the background of a shell without job control) stays ignored.

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

/// Signals that announce an end, and so ask the daemon to leave its machine: those of terminals and
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
/// Signals without a meaning for the daemon, which are logged. So are the real-time signals.
const NOTED: [i32; 6] = [SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGXFSZ, libc::SIGSTKFLT];

/// The requests of the signals that came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Leave the machine, because of this signal.
    pub stop: Option<i32>,
    /// Wait for children that have ended, because of SIGCHLD.
    pub reap: bool,
    /// Carry out the fault of a test, because of SIGUSR1; see [`crate::fault`].
    pub fault: bool,
    /// Signals that are logged and change nothing.
    pub noted: Vec<i32>,
}

/// The caught signals. The Rust runtime ignores SIGPIPE from the start.
#[derive(Debug)]
pub struct Signals {
    caught: SignalDelivery<UnixStream, SignalOnly>,
    /// Whether SIGUSR1 requests the fault of a test.
    has_fault: bool,
}

impl Signals {
    /// Catches the signals from now on.
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
                // An emulator of another processor keeps some signals for itself.
                log::debug!("{} is not caught: {error}", name(signal));
            }
        }
        Ok(Signals { caught, has_fault })
    }

    /// Takes the requests since the last call.
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

/// All signals that a program can catch and that would end it.
pub fn catchable() -> impl Iterator<Item = i32> {
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    STOPS.into_iter().chain(NOTED).chain(real_time)
}

/// The signals that this process ignores.
#[derive(Debug, Clone, Copy)]
pub struct Ignored(u64);

impl Ignored {
    /// The ignored signals at this moment; none if the system does not report them.
    pub fn now() -> Ignored {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut lines = status.lines();
        let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        Ignored(mask.unwrap_or(0))
    }

    /// Whether that signal is ignored.
    pub fn has(self, signal: i32) -> bool {
        let bit = u32::try_from(signal - 1).ok();
        bit.and_then(|bit| self.0.checked_shr(bit))
            .is_some_and(|mask| mask & 1 != 0)
    }
}

/// The name of a signal.
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
        // The Rust runtime ignores SIGPIPE.
        assert!(Ignored::now().has(libc::SIGPIPE) && !Ignored::now().has(SIGTERM));
    }
}
