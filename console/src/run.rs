//! `vm run`: a program elsewhere that behaves as if it were here.
//!
//! The console is a relay: what is typed goes to the master, what the application writes comes
//! here, signals sent to the console are passed on, and in the end the console exits as the master
//! did. If the console itself goes, the daemon sees the connection close and sends the master
//! SIGHUP, as the end of a terminal would.
//!
//! The relay never blocks on the daemon: standard input is read only while little of it waits to
//! be sent, so a program that reads slowly stops its writer, not the console. The daemon does not
//! read a console whose program does not read; so each signal takes a connection of its own.

use crate::{
    ask::{self, Restart},
    client::{self, Client},
    connection::Connection,
    event::Event,
    exit,
    failure::{Begun, ClientError},
    interrupt::Interrupt,
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
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};
use vm_wire::{
    Frame, Message, Op, Tid,
    agreed::ExitStatus,
    checkpoint::Policy,
    console::{Conf, Input, Output, RunEnd, RunSignal, RunStopped, WindowSize},
    task::{FailKind, Spawn},
};

/// Signals that the master gets in the console's stead. SIGTSTP is treated on its own.
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
/// How long the daemon may take to answer on the connection of a signal.
const SIGNAL_TIME: Duration = Duration::from_secs(5);
/// How long the master may take to be stopped before the console stops without it.
const STOP_TIME: Duration = Duration::from_secs(1);
/// How often a console in the background looks whether it is in the foreground again.
const BACKGROUND_LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// Starts a master, of whose application checkpoints may be made, and relays until it ends. Returns the console's exit code.
///
/// # Errors
/// When the console itself fails: the daemon is lost, or nobody reads its output any more.
pub fn run(
    dir: &Path,
    interrupt: &Rc<Interrupt>,
    what: (Spawn, Option<Policy>),
    with_terminal: bool,
    input: Option<BorrowedFd>,
    renderer: &mut Renderer,
) -> anyhow::Result<u8> {
    let client = Client::connect(dir, interrupt.clone())?;
    let signal_past = signal_past(dir);
    run_over(
        client,
        interrupt,
        what,
        with_terminal,
        input,
        &signal_past,
        renderer,
    )
}

/// Brings an application back and relays what it writes until its master ends. Returns the console's
/// exit code.
///
/// # Errors
/// When it cannot be brought back, or as [`run`].
pub fn restart(
    dir: &Path,
    interrupt: &Rc<Interrupt>,
    (restart, policy): (Restart, Option<Policy>),
    conf: &Conf,
    renderer: &mut Renderer,
) -> anyhow::Result<u8> {
    let mut client = Client::connect(dir, interrupt.clone())?;
    let signal_past = signal_past(dir);
    let report = client.ask(ask::restart(restart))?;
    let follow = |renderer: &mut Renderer| {
        renderer.restarted(&report, conf)?;
        set_policy(&mut client, report.app, policy)?;
        let _relaying = interrupt.relaying();
        let mut relay = Relay::new(client, report.app, None, &signal_past)?;
        let status = relay.relay(renderer)?;
        renderer.show(&Event::RunEnded(report.app, status))?;
        Ok(exit::of_run(status))
    };
    let followed: anyhow::Result<u8> = follow(renderer);
    followed.context(Begun)
}

/// Has checkpoints of an application made so, if it has not ended already.
fn set_policy(client: &mut Client, master: Tid, policy: Option<Policy>) -> Result<(), ClientError> {
    let Some(policy) = policy else {
        return Ok(());
    };
    match client.ask(ask::policy(master, policy)) {
        Err(ClientError::Refused(failed)) if failed.kind == FailKind::NoSuchTask => Ok(()),
        set => set,
    }
}

/// Sends signals to a master.
fn signal_past(dir: &Path) -> impl Fn(Tid, i32) -> Result<(), ClientError> {
    move |master, signal| {
        // The next signal waits until this one is on its way.
        let deaf = Rc::new(Interrupt::deaf().map_err(ClientError::Wait)?);
        let mut client = Client::connect_within(dir, deaf, Some(SIGNAL_TIME))?;
        client.ask_within(ask::signal(master, signal), SIGNAL_TIME)
    }
}

/// [`run`], over a connection that is there.
fn run_over(
    mut client: Client,
    interrupt: &Interrupt,
    (spawn, policy): (Spawn, Option<Policy>),
    with_terminal: bool,
    input: Option<BorrowedFd>,
    signal_past: &SignalPast,
    renderer: &mut Renderer,
) -> anyhow::Result<u8> {
    let size = if with_terminal {
        terminal::size()
    } else {
        None
    };
    let master = client.ask(ask::run(spawn, size))?;
    let master = master.ok_or(ClientError::Unexpected)?;
    let follow = |renderer: &mut Renderer| {
        set_policy(&mut client, master, policy)?;
        let _relaying = interrupt.relaying();
        let mut relay = Relay::new(client, master, input, signal_past)?;
        if size.is_some() {
            relay.terminal = Some(Raw::enter().context("cannot use the terminal")?);
            renderer.set_raw_terminal(true);
        }
        let end = relay.relay(renderer);
        relay.terminal = None;
        renderer.set_raw_terminal(false);
        let status = end?;
        renderer.show(&Event::RunEnded(master, status))?;
        Ok(exit::of_run(status))
    };
    let followed: anyhow::Result<u8> = follow(renderer);
    followed.context(Begun)
}

/// Sends a signal to the master over a connection of its own, past all input.
type SignalPast<'a> = dyn Fn(Tid, i32) -> Result<(), ClientError> + 'a;

struct Relay<'a> {
    master: Tid,
    signal_past: &'a SignalPast<'a>,
    connection: Connection,
    /// What the daemon has not taken yet.
    unsent: VecDeque<u8>,
    /// Standard input, until its end.
    input: Option<BorrowedFd<'a>>,
    signals: SignalDelivery<UnixStream, SignalOnly>,
    terminal: Option<Raw>,
    stopping: Stopping,
}

/// How far a stop of the master and of this console is, which share a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    /// Both go on.
    No,
    /// The console was told to stop, and the master is to be stopped first; until then at the latest.
    Asked(Instant),
    /// The master is stopped, and this console's whole job was told to stop.
    Told,
    /// The console was stopped without the master: what comes of that stop afterwards is undone.
    Missed,
}

impl<'a> Relay<'a> {
    fn new(
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

    /// Until the master has ended.
    fn relay(&mut self, renderer: &mut Renderer) -> anyhow::Result<Option<ExitStatus>> {
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

    fn wait(&self) -> anyhow::Result<Ready> {
        // A terminal is not read from the background: that would stop us, as it does any program.
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

    /// Shows what has come; how it ended once the run is over.
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

    /// This console was told to stop.
    ///
    /// A master without a terminal has no shell of its own that would continue it, and the kernel ignores
    /// a SIGTSTP for such a process: hence SIGSTOP.
    fn on_stop_signal(&mut self) -> anyhow::Result<()> {
        if self.stopping == Stopping::Told {
            return self.stop();
        }
        self.send_signal(libc::SIGSTOP);
        self.write_unsent();
        if self.terminal.is_none() {
            return self.stop();
        }
        // It is told when the master is stopped: its last output is shown before.
        self.stopping = Stopping::Asked(Instant::now() + STOP_TIME);
        Ok(())
    }

    /// The master, which has a terminal, was stopped, by Ctrl-Z for example, or goes on.
    fn on_master_stopped(&mut self, stopped: bool) -> anyhow::Result<()> {
        match (stopped, self.stopping) {
            (true, Stopping::Asked(_)) => self.stop()?,
            // As the terminal of a local program would: a script that runs this console stops, too, and
            // its shell notices.
            (true, Stopping::No) => {
                self.stopping = Stopping::Told;
                // The shell may notice the script before this console has taken its own signal.
                if let Some(terminal) = &mut self.terminal {
                    terminal.pause();
                }
                kill_current_process_group(Signal::TSTP).context("cannot stop")?;
            }
            // The stop came late, after this console went on; or it never came, and this is a new one.
            (true, Stopping::Missed) => {
                self.stopping = Stopping::No;
                self.send_signal(libc::SIGCONT);
            }
            (false, Stopping::Missed) => self.stopping = Stopping::No,
            _ => {}
        }
        Ok(())
    }

    /// Stops this process; goes on, together with the master, when the shell says so. At once if there is
    /// no shell.
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
            // It may have been sent.
            Err(error @ ClientError::Late(_)) => log::warn!("signal {signal}: {error}"),
            // No connection can be had, for there are too many: behind the input, then.
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
            // The end; or the terminal is gone, which is the end as well.
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
                // The daemon is gone, perhaps after the end of the run: reading will tell.
                Err(_) => {
                    self.unsent.clear();
                    self.input = None;
                }
            }
        }
    }
}

/// What a wait found.
#[derive(Debug, Default)]
struct Ready {
    daemon: bool,
    signals: bool,
    input: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fake::{self, FakeDaemon, tid},
        render::{Audience, tests::renderer},
    };
    use std::{io::Write as _, os::fd::AsFd};
    use vm_wire::{
        console::{Answer, Request},
        task::{Failed, Place},
    };

    fn spawn() -> Spawn {
        Spawn {
            program: "prog".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            dir: None,
            count: 1,
            place: Place::Any,
        }
    }

    fn started(daemon: &mut FakeDaemon) {
        daemon.greet();
        let request = daemon.answer_next(&Answer::Started(vec![tid(1, 7)]));
        assert!(matches!(request, Request::Run { terminal: None, .. }));
    }

    fn output(tid: Tid, stream: u8, bytes: &[u8]) -> Frame {
        Output {
            tid,
            stream,
            bytes: bytes.to_vec().into(),
            dropped: 0,
        }
        .frame()
    }

    /// Runs against `script`; the result, and what was shown as output and as error.
    fn run_against(
        audience: Audience,
        input: Option<&[u8]>,
        script: impl FnOnce(FakeDaemon) + Send + 'static,
    ) -> (anyhow::Result<u8>, String, String) {
        run_with(audience, input, &|_, _| Ok(()), script)
    }

    fn run_with(
        audience: Audience,
        input: Option<&[u8]>,
        signal_past: &SignalPast,
        script: impl FnOnce(FakeDaemon) + Send + 'static,
    ) -> (anyhow::Result<u8>, String, String) {
        let (stream, daemon) = fake::pair(script);
        let interrupt = Rc::new(Interrupt::none());
        let client = Client::over(stream, interrupt.clone(), None).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(input.unwrap_or_default()).unwrap();
        drop(theirs);
        let (mut renderer, out, errors) = renderer(audience);
        let result = run_over(
            client,
            &interrupt,
            (spawn(), None),
            false,
            input.map(|_| ours.as_fd()),
            signal_past,
            &mut renderer,
        );
        daemon.join().unwrap();
        (result, out.text(), errors.text())
    }

    #[test]
    fn input_goes_to_the_master_and_output_comes_back_before_the_end() {
        let (result, out, errors) =
            run_against(Audience::People, Some(b"question"), |mut daemon| {
                started(&mut daemon);
                let mut read = Vec::new();
                loop {
                    let input: Input = daemon.read();
                    if input.bytes.is_empty() {
                        break;
                    }
                    read.extend_from_slice(&input.bytes);
                }
                assert_eq!(read, b"question");
                daemon.send(&output(tid(1, 7), 1, b"answer\n"));
                daemon.send(&output(tid(2, 1), 2, b"a worker\n"));
                let status = Some(ExitStatus::Code(3));
                daemon.send(&RunEnd { status }.frame());
            });
        assert_eq!(result.unwrap(), 3);
        assert_eq!(out, "answer\n");
        assert_eq!(errors, "[t2.1] a worker\n");
    }

    #[test]
    fn a_run_without_input_tells_the_master_so_at_once() {
        let (result, ..) = run_against(Audience::People, None, |mut daemon| {
            started(&mut daemon);
            let input: Input = daemon.read();
            assert!(input.bytes.is_empty());
            let status = Some(ExitStatus::Signal(libc::SIGTERM));
            daemon.send(&RunEnd { status }.frame());
        });
        assert_eq!(result.unwrap(), 128 + 15);
    }

    #[test]
    fn a_signal_goes_behind_the_input_if_no_connection_can_be_had() {
        let none = |_, _| Err(Failed::new(FailKind::Limit, "too many consoles").into());
        let (result, ..) = run_with(Audience::People, None, &none, |mut daemon| {
            started(&mut daemon);
            // The console sends this once it handles signals.
            let input: Input = daemon.read();
            assert!(input.bytes.is_empty());
            kill_process(getpid(), Signal::USR2).unwrap();
            let RunSignal { signal } = daemon.read();
            let status = Some(ExitStatus::Signal(signal));
            daemon.send(&RunEnd { status }.frame());
        });
        assert_eq!(result.unwrap(), 128 + libc::SIGUSR2 as u8);
    }

    #[test]
    fn programs_see_a_run_as_events() {
        let (result, out, _) = run_against(Audience::Programs, None, |mut daemon| {
            started(&mut daemon);
            daemon.send(&output(tid(1, 7), 1, b"x"));
            let status = Some(ExitStatus::Code(0));
            daemon.send(&RunEnd { status }.frame());
        });
        assert_eq!(result.unwrap(), 0);
        let events: Vec<serde_json::Value> = out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let kinds: Vec<&str> = events
            .iter()
            .map(|event| event["event"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["started", "output", "ended"]);
    }

    #[test]
    fn the_end_is_seen_even_if_input_can_no_longer_be_sent() {
        let (result, ..) = run_against(Audience::People, Some(&[7; 100_000]), |mut daemon| {
            started(&mut daemon);
            let status = Some(ExitStatus::Code(0));
            // Most of the input is never read.
            daemon.send(&RunEnd { status }.frame());
        });
        assert_eq!(result.unwrap(), 0);
    }

    #[test]
    fn each_way_to_end_has_its_exit_code() {
        let ends = [
            (Some(ExitStatus::Left(3)), 3),
            (Some(ExitStatus::Code(75)), 75),
            (Some(ExitStatus::Signal(libc::SIGKILL)), 137),
            (Some(ExitStatus::Suspended), 75),
            (None, 122),
            (Some(ExitStatus::RolledBack), 124),
            (Some(ExitStatus::HostLost), 125),
            (Some(ExitStatus::NotStarted), 126),
        ];
        for (status, code) in ends {
            let (result, ..) = run_against(Audience::People, None, move |mut daemon| {
                started(&mut daemon);
                daemon.send(&RunEnd { status }.frame());
            });
            assert_eq!(result.unwrap(), code, "{status:?}");
        }
    }

    #[test]
    fn what_is_refused_in_the_midst_of_a_run_is_a_failure_of_the_machine() {
        let (result, ..) = run_against(Audience::People, None, |mut daemon| {
            started(&mut daemon);
            let no = Failed::new(FailKind::Limit, "too much is said");
            daemon.send(&Answer::Failed(no).frame());
        });
        let error = result.unwrap_err();
        assert_eq!(exit::of_failed_run(&error, true), 125);
        assert_eq!(crate::failure::kind(&error), "Limit");
    }

    #[test]
    fn a_lost_daemon_and_a_missing_program_have_codes_of_their_own() {
        let (lost, ..) = run_against(Audience::People, None, |mut daemon| started(&mut daemon));
        assert_eq!(exit::of_failed_run(&lost.unwrap_err(), false), 125);
        let (missing, ..) = run_against(Audience::People, None, |mut daemon| {
            daemon.greet();
            let no = Failed::new(FailKind::NoSuchProgram, "no program prog");
            daemon.answer_next(&Answer::Failed(no));
        });
        assert_eq!(exit::of_failed_run(&missing.unwrap_err(), false), 127);
    }
}
