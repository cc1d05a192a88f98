//! The processes that coordinate applications: the system's side of [`vm_machine`]'s coordinators.
//!
//! Each coordinator has a socket pair. The daemon keeps one end. The other end goes with the
//! Welcome to a master, whose library forks the coordinator's process, or to a process of the
//! daemon's own program (`vmd helper coordinator`). The end of the socket means the end of the
//! coordinator, for both sides. A coordinator that is no longer needed is killed if it is a child
//! of this daemon, because it may be stopped; else it ends when it reads the end of its socket.

use crate::{
    context::{Context, Source},
    fault::{self, Strike},
    net::sockets::{READ_MIN, Read, read_into},
    process::{helper, helper_job::HelperJob, starter::Starter},
};
use mio::{Waker, unix::SourceFd};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    io::Errno,
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, waitid},
};
use slab::Slab;
use std::{
    collections::HashMap,
    io,
    process::{Command, Stdio},
    sync::Arc,
};
use vm_machine::{Input, ProcessInput};
use vm_wire::{Frame, FrameReader, Message, Op, Tid, coordinator::CoordinatorReady, limits};

/// Bound on the bytes that wait for a coordinator. A coordinator that does not read is treated as
/// lost.
const WAITING_MAX: usize = limits::SNAPSHOT_MAX;

#[derive(Debug)]
struct Coordinator {
    number: u64,
    socket: OwnedFd,
    reader: FrameReader,
    /// Bytes for which the socket had no room.
    waiting: Vec<u8>,
    /// A pidfd of the process, once the coordinator has reported its process number.
    process: Option<OwnedFd>,
    /// The number of the process.
    pid: Option<Pid>,
}

/// The coordinators' processes that are connected to this daemon.
#[derive(Debug)]
pub struct Coordinators {
    starter: Starter<Command, (), io::Error>,
    table: Slab<Coordinator>,
    places: HashMap<u64, usize>,
}

/// The work of a coordinator's process, over the socket that is standard input.
///
/// # Errors
/// The error of the system call.
pub fn coordinate() -> io::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    vm_coordinator::run(&socket)
}

impl Coordinators {
    /// An empty table. The event loop is woken when [`Coordinators::take_started`] has a result.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(waker: Arc<Waker>) -> io::Result<Coordinators> {
        let start = |mut command: Command| Ok((Pid::from_child(&command.spawn()?), ()));
        Ok(Coordinators {
            starter: Starter::new("coordinate", start, waker)?,
            table: Slab::new(),
            places: HashMap::new(),
        })
    }

    /// Makes the socket pair of a coordinator. Returns the end for the process. On failure the
    /// state machine gets the end of the coordinator.
    pub fn open(&mut self, number: u64, context: &mut Context) -> Option<OwnedFd> {
        match self.try_open(number, context) {
            Ok(theirs) => Some(theirs),
            Err(error) => {
                log::warn!("a coordinator gets no socket: {error}");
                context
                    .inbox
                    .push_back(Input::Process(ProcessInput::CoordinatorGone(number)));
                None
            }
        }
    }

    fn try_open(&mut self, number: u64, context: &Context) -> io::Result<OwnedFd> {
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let entry = self.table.vacant_entry();
        let source = Source::Coordinator(entry.key());
        context.register(&mut SourceFd(&socket.as_raw_fd()), source)?;
        self.places.insert(number, entry.key());
        entry.insert(Coordinator {
            number,
            socket,
            reader: FrameReader::new(),
            waiting: Vec::new(),
            process: None,
            pid: None,
        });
        Ok(theirs)
    }

    /// Has the process of a coordinator started from this daemon's own program.
    pub fn start(&mut self, number: u64, app: Tid, context: &mut Context) {
        let Some(socket) = self.open(number, context) else {
            return;
        };
        let mut command = helper::command(&HelperJob::Coordinator {
            app: app.to_string(),
        });
        command
            .env_clear()
            .stdin(socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // The daemon reaps the process like all children that it did not expect.
        self.starter.start(command);
    }

    /// Takes the results of processes that were to be started. Returns whether there was one.
    pub fn take_started(&mut self) -> bool {
        let mut some = false;
        while let Some(answer) = self.starter.answer() {
            some = true;
            if let Err(error) = answer {
                // The process's end of the socket is closed, which reports the end of the
                // coordinator.
                log::warn!("a coordinator cannot be started: {error}");
            }
        }
        some
    }

    /// See [`Starter::may_be_starting`].
    pub fn may_be_starting(&self, child: Pid) -> bool {
        self.starter.may_be_starting(child)
    }

    /// See [`Starter::waited`].
    pub fn waited(&mut self, child: Pid) {
        self.starter.waited(child);
    }

    /// Whether `process` is the process of a coordinator, by the coordinator's own report.
    pub fn has(&self, process: Pid) -> bool {
        self.table.iter().any(|(_, it)| it.pid == Some(process))
    }

    /// Sends a frame to a coordinator. Nothing happens if the coordinator has gone.
    pub fn send(&mut self, number: u64, frame: &Frame, context: &mut Context) {
        let Some(&place) = self.places.get(&number) else {
            return;
        };
        let coordinator = &mut self.table[place];
        coordinator.suffer(fault::at_mail("coordinator", frame));
        frame.write_to(&mut coordinator.waiting);
        if coordinator.waiting.len() > WAITING_MAX || coordinator.flush().is_err() {
            self.lose(place, context);
        }
    }

    /// Handles an event of the coordinator at `place`. Returns whether there may be more to read.
    pub fn serve(&mut self, place: usize, context: &mut Context) -> bool {
        let Some(coordinator) = self.table.get_mut(place) else {
            return false;
        };
        let flushed = coordinator.flush().is_ok();
        match coordinator.read(context) {
            Ok(more) if flushed => more,
            _ => {
                self.lose(place, context);
                false
            }
        }
    }

    /// Reports the end of a coordinator, and removes it.
    fn lose(&mut self, place: usize, context: &mut Context) {
        let number = self.table[place].number;
        self.end(number);
        context
            .inbox
            .push_back(Input::Process(ProcessInput::CoordinatorGone(number)));
    }

    /// Closes the socket of a coordinator and ends its process.
    pub fn end(&mut self, number: u64) {
        let Some(place) = self.places.remove(&number) else {
            return;
        };
        if let Some(process) = self.table.remove(place).process
            && is_child(&process)
        {
            // The process may have ended meanwhile.
            let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
        }
    }
}

impl Coordinator {
    /// Carries out the fault of a test on the coordinator's process.
    fn suffer(&self, strike: Strike) {
        if let Strike::Coordinator(signal) = strike
            && let Some(process) = &self.process
        {
            let _ = rustix::process::pidfd_send_signal(process, signal);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match send(&self.socket, &self.waiting, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.waiting.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads a share. Returns whether there may be more: after any bytes the end may follow.
    fn read(&mut self, context: &mut Context) -> io::Result<bool> {
        let room = self.reader.missing().max(READ_MIN);
        let read = read_into(&self.socket, self.reader.buffer(room), room)?;
        if read == Read::End {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        loop {
            let frame = match self.reader.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => return Err(io::Error::other(error)),
            };
            if frame.header.op == Op::CoordinatorReady
                && let Ok(ready) = CoordinatorReady::read(&frame)
            {
                self.pid = number(ready.pid);
                self.process = self.pid.and_then(open_process);
            }
            self.suffer(fault::at_mail("says", &frame));
            let input = Input::Coordinator(self.number, frame);
            context.inbox.push_back(input);
        }
        Ok(read != Read::Nothing)
    }
}

fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

fn open_process(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Whether a process is a living child of this daemon. A coordinator reports its own number, which
/// is not trusted: only a child may be killed.
fn is_child(process: &OwnedFd) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::PidFd(process.as_fd()), look), Ok(None))
}
