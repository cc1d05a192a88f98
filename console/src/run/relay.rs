//! The relay between this console and a master: input and output, signals, stops.
//!
//! The relay never blocks on the daemon. Standard input is read only while little of it waits to be
//! sent, so a program that reads slowly stops the writer of its input, not the console. The daemon
//! does not read a console whose program does not read; so each signal takes a connection of its
//! own.

use crate::{
    client::{self, Client},
    connection::Connection,
    event::Event,
    failure::ClientError,
    render::Renderer,
    terminal::{self, Raw},
};
use anyhow::Context;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Signal, getpid, kill_current_process_group, kill_process},
};
use signal_hook::iterator::{backend::SignalDelivery, exfiltrator::SignalOnly};
use std::{
    collections::VecDeque,
    io,
    os::{fd::BorrowedFd, unix::net::UnixStream},
    time::{Duration, Instant},
};
use vm_wire::{
    Frame, Message, Op, Tid,
    agreed::ExitStatus,
    console::{Input, Output, RunEnd, RunSignal, RunStopped, WindowSize},
    task::FailKind,
};

/// Signals that are passed on to the master. SIGTSTP is handled apart.
const RELAYED: [i32; 6] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
];
/// Bytes read of standard input at a time.
const INPUT_BYTES: usize = 32 * 1024;
/// Standard input is not read while this much waits for the daemon. Bytes.
const UNSENT_MAX: usize = 256 * 1024;
/// How long the console waits for the stop of the master before it stops without the master.
const STOP_TIME: Duration = Duration::from_secs(1);
/// How often a console in the background checks whether it is in the foreground again.
const BACKGROUND_LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// Sends a signal to the master over a connection of its own, past all input.
pub(super) type SignalPast<'a> = dyn Fn(Tid, i32) -> Result<(), ClientError> + 'a;

/// One run, seen from its console.
pub(super) struct Relay<'a> {
    master: Tid,
    signal_past: &'a SignalPast<'a>,
    connection: Connection,
    /// Bytes that the socket has not taken yet.
    unsent: VecDeque<u8>,
    /// Standard input, until its end.
    input: Option<BorrowedFd<'a>>,
    signals: SignalDelivery<UnixStream, SignalOnly>,
    /// The terminal, in raw mode, if the master has one too.
    terminal: Option<Raw>,
    stopping: Stopping,
}

/// The stop of a master and of this console, which share a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    /// Both run.
    No,
    /// The console got a stop signal. It waits for the stop of the master, at most until this time.
    Asked(Instant),
    /// The master is stopped, and the console's whole job got a stop signal.
    Told,
    /// The console was stopped without the master: a late stop of the master is undone.
    Missed,
}

impl<'a> Relay<'a> {
    /// Handles the console's signals from now on, and tells the master if it gets no input.
    pub(super) fn new(
        client: Client,
        master: Tid,
        input: Option<BorrowedFd<'a>>,
        signal_past: &'a SignalPast<'a>,
    ) -> anyhow::Result<Self> {
        let connection = client.into_connection();
        connection
            .set_nonblocking()
            .context("cannot use the connection")?;
        let (read, write) = UnixStream::pair().context("cannot handle signals")?;
        let handled = RELAYED.iter().chain(&[libc::SIGTSTP, libc::SIGWINCH]);
        let signals = SignalDelivery::with_pipe(read, write, SignalOnly, handled)
            .context("cannot handle signals")?;
        let mut relay = Relay {
            master,
            signal_past,
            connection,
            unsent: VecDeque::new(),
            input,
            signals,
            terminal: None,
            stopping: Stopping::No,
        };
        if relay.input.is_none() {
            relay.send_input(&[]);
        }
        Ok(relay)
    }

    /// Relays until the master has ended. Returns the master's status; none if the application runs
    /// on.
    pub(super) fn relay(&mut self, renderer: &mut Renderer) -> anyhow::Result<Option<ExitStatus>> {
        renderer.show(&Event::RunStarted(self.master))?;
        loop {
            if let Some(end) = self.take_frames(renderer)? {
                return Ok(end.status);
            }
            if self.stopping != Stopping::Told
                && let Some(terminal) = &mut self.terminal
            {
                terminal.again().context("cannot use the terminal")?;
            }
            let ready = self.wait()?;
            if let Stopping::Asked(until) = self.stopping
                && Instant::now() >= until
            {
                self.stop()?;
                self.stopping = Stopping::Missed;
            }
            if ready.signals {
                self.pass_signals()?;
            }
            if ready.input {
                self.read_input();
            }
            self.write_unsent();
            if ready.daemon {
                self.connection.read_some()?;
            }
        }
    }

    /// Puts the console's terminal in raw mode: the master has a terminal too.
    pub(super) fn enter_terminal(&mut self) -> anyhow::Result<()> {
        self.terminal = Some(Raw::enter().context("cannot use the terminal")?);
        Ok(())
    }

    /// Puts the console's terminal back in order.
    pub(super) fn leave_terminal(&mut self) {
        self.terminal = None;
    }

    fn wait(&self) -> anyhow::Result<Ready> {
        // Reading a terminal from the background would stop this process.
        let background = self.input.is_some() && !terminal::in_foreground();
        let input = self
            .input
            .filter(|_| !background && self.unsent.len() < UNSENT_MAX);
        let mut for_daemon = PollFlags::IN;
        for_daemon.set(PollFlags::OUT, !self.unsent.is_empty());
        let mut fds = vec![
            PollFd::new(&self.connection, for_daemon),
            PollFd::new(self.signals.get_read(), PollFlags::IN),
        ];
        if let Some(input) = &input {
            fds.push(PollFd::new(input, PollFlags::IN));
        }
        let looks = background || matches!(self.stopping, Stopping::Asked(_));
        match poll(&mut fds, looks.then_some(&BACKGROUND_LOOK)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(cause) => return Err(ClientError::Wait(cause.into()).into()),
        }
        let readable = |index: usize| {
            let happened = fds.get(index).map_or(PollFlags::empty(), PollFd::revents);
            !(happened - PollFlags::OUT).is_empty()
        };
        Ok(Ready {
            daemon: readable(0),
            signals: readable(1),
            input: readable(2),
        })
    }

    /// Shows the frames that have come; returns the end of the run if it is among them.
    fn take_frames(&mut self, renderer: &mut Renderer) -> anyhow::Result<Option<RunEnd>> {
        loop {
            let Some(frame) = self.connection.next_frame()? else {
                return Ok(None);
            };
            match frame.header.op {
                Op::Output => {
                    let output = Output::read(&frame).map_err(ClientError::from)?;
                    renderer.show(&Event::RunOutput {
                        master: self.master,
                        output: &output,
                    })?;
                }
                Op::RunEnd => {
                    let end = RunEnd::read(&frame).map_err(ClientError::from)?;
                    return Ok(Some(end));
                }
                Op::RunStopped => {
                    let RunStopped { stopped } =
                        RunStopped::read(&frame).map_err(ClientError::from)?;
                    self.on_master_stopped(stopped)?;
                }
                Op::ConsoleAnswer => client::refuse_if_final(&frame)?,
                _ => return Err(ClientError::Unexpected.into()),
            }
        }
    }

    fn pass_signals(&mut self) -> anyhow::Result<()> {
        let came: Vec<i32> = self.signals.pending().collect();
        for signal in came {
            match signal {
                libc::SIGWINCH => self.send_size(),
                libc::SIGTSTP => self.on_stop_signal()?,
                signal => self.send_signal(signal),
            }
        }
        Ok(())
    }

    /// This console got a stop signal.
    ///
    /// The master gets SIGSTOP: a master without a terminal has no shell of its own, and the kernel
    /// ignores a SIGTSTP for such a process.
    fn on_stop_signal(&mut self) -> anyhow::Result<()> {
        if self.stopping == Stopping::Told {
            return self.stop();
        }
        self.send_signal(libc::SIGSTOP);
        self.write_unsent();
        if self.terminal.is_none() {
            return self.stop();
        }
        // The daemon reports the stop of the master after the master's last output.
        self.stopping = Stopping::Asked(Instant::now() + STOP_TIME);
        Ok(())
    }

    /// The master, which has a terminal, was stopped, by Ctrl-Z for example, or continued.
    fn on_master_stopped(&mut self, stopped: bool) -> anyhow::Result<()> {
        match (stopped, self.stopping) {
            (true, Stopping::Asked(_)) => self.stop()?,
            // As for a local program on a terminal, a script that runs this console stops too, and its
            // shell notices.
            (true, Stopping::No) => {
                self.stopping = Stopping::Told;
                // The shell may notice the script before this console has taken its own signal.
                if let Some(terminal) = &mut self.terminal {
                    terminal.pause();
                }
                kill_current_process_group(Signal::TSTP).context("cannot stop")?;
            }
            // A late stop, after this console was continued, or a new stop.
            (true, Stopping::Missed) => {
                self.stopping = Stopping::No;
                self.send_signal(libc::SIGCONT);
            }
            (false, Stopping::Missed) => self.stopping = Stopping::No,
            _ => {}
        }
        Ok(())
    }

    /// Stops this process. When the shell continues it, the master is continued too. Without a shell,
    /// only continues the master.
    fn stop(&mut self) -> anyhow::Result<()> {
        if !terminal::is_orphaned() {
            if let Some(terminal) = &mut self.terminal {
                terminal.pause();
            }
            kill_process(getpid(), Signal::STOP).context("cannot stop")?;
            if let Some(terminal) = &mut self.terminal {
                terminal.again().context("cannot use the terminal")?;
            }
        }
        self.stopping = Stopping::No;
        self.send_signal(libc::SIGCONT);
        self.send_size();
        Ok(())
    }

    fn send_signal(&mut self, signal: i32) {
        match (self.signal_past)(self.master, signal) {
            Ok(()) => {}
            Err(ClientError::Refused(failed)) if failed.kind == FailKind::NoSuchTask => {
                log::debug!("signal {signal} came after the end: {failed}");
            }
            // The signal may have been sent.
            Err(error @ ClientError::Late(_)) => log::warn!("signal {signal}: {error}"),
            // No connection for the signal, for example because there are too many: the signal is sent
            // behind the input.
            Err(error) => {
                log::debug!("signal {signal} goes behind the input: {error}");
                self.send(&RunSignal { signal }.frame());
            }
        }
    }

    fn send_size(&mut self) {
        if self.terminal.is_some()
            && let Some(size) = terminal::size()
        {
            self.send(&WindowSize::frame(&size));
        }
    }

    fn read_input(&mut self) {
        let Some(input) = self.input else { return };
        let mut buffer = [0; INPUT_BYTES];
        match rustix::io::read(input, &mut buffer) {
            Ok(count @ 1..) => self.send_input(&buffer[..count]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // The end of the input. A terminal that is gone has ended too.
            Ok(0) | Err(_) => {
                self.input = None;
                self.send_input(&[]);
            }
        }
    }

    fn send_input(&mut self, bytes: &[u8]) {
        let bytes = bytes.to_vec().into();
        self.send(&Input { bytes }.frame());
    }

    fn send(&mut self, frame: &Frame) {
        let mut bytes = Vec::with_capacity(frame.len());
        frame.write_to(&mut bytes);
        self.unsent.extend(bytes);
    }

    fn write_unsent(&mut self) {
        while !self.unsent.is_empty() {
            match self.connection.write(self.unsent.as_slices().0) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                // The daemon is lost, perhaps after the end of the run: the next read shows it.
                Err(_) => {
                    self.unsent.clear();
                    self.input = None;
                }
            }
        }
    }
}

/// The descriptors that are ready after a wait.
#[derive(Debug, Default)]
struct Ready {
    daemon: bool,
    signals: bool,
    input: bool,
}
