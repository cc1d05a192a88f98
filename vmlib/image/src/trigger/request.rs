//! How one process asks another one for its image, and hears what becomes of it.
//!
//! Whoever asks listens at a socket without a file, whose name is a number that nobody can foresee, and
//! sends [`TRIGGER`] with that number. The process that gets it connects, is handed the descriptor of
//! the image's file and the modes, and says over the socket how the save ended. So it needs to know no
//! path, and no rights to the folder. Both look who is at the other end: the process takes a
//! descriptor from root and from its own user alone, and whoever asks gives one to that process alone.
//!
//! While the rounds of a save last, the process has no descriptor for it: it connects once more for the
//! rest.
//!
//! The signal ends a process that has no handler for it. So whoever asks looks before ([`Request::send`]).
//!
//! [`crate::trigger::asked`] is the end in the process that is asked.

use crate::{
    frozen::{queued_signal, signal::TRIGGER},
    raw::sys::{self, nr},
    trigger::{
        image_path,
        packet::{MARK, Modes, PACKET, Word, name_of},
        process_status::Look,
        request_error::{ANSWER, AskError, not_allowed, system},
    },
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recv, send, sendmsg,
        socket_with, sockopt::socket_peercred,
    },
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    io,
    io::IoSlice,
    mem::MaybeUninit,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

/// A process has given its image.
#[derive(Debug)]
#[must_use = "the process may wait for a word"]
pub struct News {
    /// Bytes of the image; 0 if a copy of the process has written it.
    pub bytes: u64,
    /// How long it stood still.
    pub freeze: Duration,
    connection: OwnedFd,
}

impl News {
    /// The image has its name now: a process that was to end does.
    pub fn image_is_kept(self) {
        // It may be gone already.
        let _ = send(&self.connection, &[1], SendFlags::NOSIGNAL);
    }
}

/// A process was asked for its image.
#[derive(Debug)]
pub struct Request<'a> {
    pid: i32,
    image: BorrowedFd<'a>,
    modes: Modes,
    process: OwnedFd,
    listener: OwnedFd,
    /// Until when it has to answer; none once it has.
    until: Option<Instant>,
}

impl<'a> Request<'a> {
    /// Asks a process to write its image there, after a look whether it can be asked.
    ///
    /// # Errors
    /// Why it was not asked.
    pub fn send(pid: i32, image: BorrowedFd<'a>, modes: Modes) -> Result<Self, AskError> {
        let gone = |error| match error {
            Errno::SRCH | Errno::INVAL => AskError::NoProcess(pid),
            error => {
                let error = io::Error::from(error);
                let text = format!("pidfd_open is refused: {error}");
                not_allowed(pid, io::Error::new(error.kind(), text))
            }
        };
        let id = Pid::from_raw(pid).ok_or(AskError::NoProcess(pid))?;
        // From here on its number means nobody else.
        let process = pidfd_open(id, PidfdFlags::empty()).map_err(gone)?;
        Look::at(pid)?.check()?;
        let (listener, token) = listener()?;
        signal_process(pid, &process, token)?;
        Ok(Request {
            pid,
            image,
            modes,
            process,
            listener,
            until: Some(Instant::now() + ANSWER),
        })
    }

    /// Waits until the image is whole, or until something can be read from `interrupt`.
    ///
    /// # Errors
    /// Why there is no image.
    pub fn finish(mut self, interrupt: BorrowedFd<'_>) -> Result<News, AskError> {
        let mut connection = None;
        loop {
            let fd = match &connection {
                Some(connection) => OwnedFd::as_fd(connection),
                None => self.listener.as_fd(),
            };
            let mut fds = [
                PollFd::from_borrowed_fd(fd, PollFlags::IN),
                PollFd::from_borrowed_fd(interrupt, PollFlags::IN),
                PollFd::new(&self.process, PollFlags::IN),
            ];
            let left = self
                .until
                .map(|until| until.saturating_duration_since(Instant::now()));
            let time = left.map(|left| Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut fds, time.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(error) => return Err(system("waiting for the process", error)),
                Ok(0) => return Err(self.silent()),
                Ok(_) => {}
            }
            let [is_told, is_interrupted, has_ended] = fds.map(|fd| !fd.revents().is_empty());
            if is_interrupted {
                return Err(AskError::Interrupted);
            }
            match (is_told, connection.take()) {
                (true, None) => connection = self.accept()?,
                (true, Some(told)) => match self.hear(told)? {
                    Some(news) => return Ok(news),
                    // It connects again when the rounds are over.
                    None => connection = None,
                },
                // What it said before is heard first.
                (false, _) if has_ended => return Err(AskError::Ended(self.pid)),
                (false, waiting) => connection = waiting,
            }
        }
    }

    /// Hands the process what it needs. None if it is another one.
    fn accept(&mut self) -> Result<Option<OwnedFd>, AskError> {
        let connection = match accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(connection) => connection,
            Err(Errno::INTR | Errno::CONNABORTED | Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(system("hearing of the process", error)),
        };
        let peer =
            socket_peercred(&connection).map_err(|error| system("looking who answers", error))?;
        if peer.pid.as_raw_pid() != self.pid {
            return Ok(None);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [self.image];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let modes = self.modes.bits().to_le_bytes();
        let sent = sendmsg(
            &connection,
            &[IoSlice::new(&modes)],
            &mut control,
            SendFlags::NOSIGNAL,
        );
        self.until = None;
        match sent {
            Ok(_) => Ok(Some(connection)),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(None),
            Err(error) => Err(system("handing over the image's file", error)),
        }
    }

    /// What the process says; none: its rounds have begun.
    fn hear(&self, connection: OwnedFd) -> Result<Option<News>, AskError> {
        let mut packet = [0; PACKET];
        let len = match recv(&connection, &mut packet, RecvFlags::empty()) {
            Ok((len, _)) => len,
            Err(Errno::CONNRESET) => 0,
            Err(error) => return Err(system("hearing of the process", error)),
        };
        match Word::read(&packet[..len]) {
            Some(Word::Begun) => Ok(None),
            Some(Word::Saved { bytes, ns }) => Ok(Some(News {
                bytes,
                freeze: Duration::from_nanos(ns),
                connection,
            })),
            Some(Word::Refused(why)) => Err(AskError::Refused {
                pid: self.pid,
                why: String::from_utf8_lossy(why).into_owned(),
            }),
            None => Err(AskError::Ended(self.pid)),
        }
    }

    /// Why there is no answer.
    fn silent(&self) -> AskError {
        let Ok(look) = Look::at(self.pid) else {
            return AskError::NoProcess(self.pid);
        };
        let name = look.name.clone();
        match look.check() {
            Err(why) => why,
            Ok(()) if look.waits() => AskError::DoesNotRun {
                pid: self.pid,
                name,
                what: "has not taken the signal yet: it waits for something in the kernel; it was not saved",
            },
            Ok(()) => AskError::Silent {
                pid: self.pid,
                name,
            },
        }
    }
}

/// A socket of a name that nobody can foresee, and the number that tells it.
fn listener() -> Result<(OwnedFd, u64), AskError> {
    let token = MARK | image_path::random() >> 16;
    let made = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(
            &socket,
            &SocketAddrUnix::new_abstract_name(&name_of(token))?,
        )?;
        listen(&socket, 4)?;
        Ok(socket)
    };
    let made = made().map_err(|error| system("making a socket for the process", error));
    made.map(|socket| (socket, token))
}

/// Sends the signal with that number.
fn signal_process(pid: i32, process: &OwnedFd, token: u64) -> Result<(), AskError> {
    let told = queued_signal::queued(TRIGGER, token as usize);
    let (fd, info) = (process.as_raw_fd() as usize, &raw const told as usize);
    // SAFETY: the kernel reads the information.
    let sent = unsafe { sys::call4(nr::PIDFD_SEND_SIGNAL, fd, TRIGGER as usize, info, 0) };
    match sys::check(sent) {
        Ok(_) => Ok(()),
        Err(sys::Errno(libc::ESRCH)) => Err(AskError::NoProcess(pid)),
        Err(error) => Err(not_allowed(pid, io::Error::from_raw_os_error(error.0))),
    }
}
