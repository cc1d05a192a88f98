//! The processes that coordinate applications: the system's side of [`vm_machine`]'s coordinators.
//!
//! Each has a socket pair. One end stays here; the other goes with the Welcome to a master, whose
//! library forks the process, or to a process that is started from this daemon's own program
//! (`vmd helper coordinator`). The end of the socket is the end of the process, for both sides. One that is
//! not wanted any more, and may be stopped, is killed, if it is a child of this daemon; else it ends
//! when it reads the end of its socket.

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
use vm_machine::Input;
use vm_wire::{Frame, FrameReader, Message, Op, Tid, coordinator::CoordinatorReady, limits};

/// Bytes that wait for one that does not read, at most: then it is as good as gone.
const WAITING_MAX: usize = limits::SNAPSHOT_MAX;

#[derive(Debug)]
struct Coordinator {
    number: u64,
    socket: OwnedFd,
    reader: FrameReader,
    /// What the socket had no room for.
    waiting: Vec<u8>,
    /// Its process, once it has said so.
    process: Option<OwnedFd>,
    /// The number of that process.
    pid: Option<Pid>,
}

/// All of them.
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
    /// None yet. The event loop is woken when [`Coordinators::take_started`] has something.
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

    /// Makes the socket of one: the end for its process. Without one, its end is told.
    pub fn open(&mut self, number: u64, context: &mut Context) -> Option<OwnedFd> {
        match self.try_open(number, context) {
            Ok(theirs) => Some(theirs),
            Err(error) => {
                log::warn!("a coordinator gets no socket: {error}");
                context.inbox.push_back(Input::CoordinatorGone(number));
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

    /// Has the process of one started from this daemon's own program.
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
        // The daemon reaps it like all that it did not expect.
        self.starter.start(command);
    }

    /// Takes in which were started, or cannot be. Returns whether there was one.
    pub fn take_started(&mut self) -> bool {
        let mut some = false;
        while let Some(answer) = self.starter.answer() {
            some = true;
            if let Err(error) = answer {
                // Its end of the socket is closed, which tells the rest.
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

    /// Whether that is the process of one, as it says.
    pub fn has(&self, process: Pid) -> bool {
        self.table.iter().any(|(_, it)| it.pid == Some(process))
    }

    /// Sends a frame; nothing happens if it is gone.
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

    /// The one at `place` can be read or written. Returns whether there may be more to read.
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

    /// It is gone.
    fn lose(&mut self, place: usize, context: &mut Context) {
        let number = self.table[place].number;
        self.end(number);
        context.inbox.push_back(Input::CoordinatorGone(number));
    }

    /// Closes its socket and ends its process.
    pub fn end(&mut self, number: u64) {
        let Some(place) = self.places.remove(&number) else {
            return;
        };
        if let Some(process) = self.table.remove(place).process
            && is_child(&process)
        {
            // It may have ended meanwhile.
            let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
        }
    }
}

impl Coordinator {
    /// A test wants something bad done to its process.
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

    /// Reads a share; whether there may be more, which after any bytes may be their end.
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

/// Whether a process is a living child of this one. What it said of itself is not believed: only a
/// child may be killed.
fn is_child(process: &OwnedFd) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::PidFd(process.as_fd()), look), Ok(None))
}
