//! Requests the image of another process, and reports the result.
//!
//! 1. The requester listens at a socket without a file, whose name is a random number, and sends
//!    [`TRIGGER`] with that number.
//! 2. The process that gets the signal connects, and receives the descriptor of the image's file
//!    and the modes. So the process needs no path, and no rights to the folder.
//! 3. The process reports over the socket how the save ended.
//!
//! Each end checks the process at the other end: the saved process takes a descriptor only from
//! root and from its own user, and the requester gives one only to the process that it signalled.
//!
//! During pre-copy rounds the process has no descriptor for the request; it connects once more for
//! the rest of the image.
//!
//! The signal ends a process that has no handler for it. So [`Request::send`] checks the process
//! first.
//!
//! [`crate::trigger::requester`] is the end in the process that is saved.

use crate::{
    frozen::{file_calls, queued_signal, signal::TRIGGER},
    raw::sys::{self, nr},
    trigger::{
        image_path,
        packet::{MARK, Modes, PACKET, Reply, name_of},
        process_status::ProcessStatus,
        request_error::{ANSWER, RequestError, not_allowed, system},
    },
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recv, send, sendmsg,
        socket_with,
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

/// The result of a request: the process has written its image.
#[derive(Debug)]
#[must_use = "the process may wait for a word"]
pub struct RequestedImage {
    /// Bytes of the image; 0 if a copy of the process has written it.
    pub bytes: u64,
    /// The freeze time.
    pub freeze: Duration,
    connection: OwnedFd,
}

impl RequestedImage {
    /// Reports that the image has its final name. A process that is to end after the save ends now.
    pub fn image_is_kept(self) {
        // The process may have ended already.
        let _ = send(&self.connection, &[1], SendFlags::NOSIGNAL);
    }
}

/// A request that was sent.
#[derive(Debug)]
pub struct Request<'a> {
    pid: i32,
    image: BorrowedFd<'a>,
    modes: Modes,
    process: OwnedFd,
    listener: OwnedFd,
    /// The time limit for the connection; `None` once the process has connected.
    until: Option<Instant>,
}

impl<'a> Request<'a> {
    /// Requests that a process writes its image to `image`. Checks first whether the process would
    /// handle the signal.
    ///
    /// # Errors
    /// Why no signal was sent.
    pub fn send(pid: i32, image: BorrowedFd<'a>, modes: Modes) -> Result<Self, RequestError> {
        let gone = |error| match error {
            Errno::SRCH | Errno::INVAL => RequestError::NoProcess(pid),
            error => {
                let error = io::Error::from(error);
                let text = format!("pidfd_open is refused: {error}");
                not_allowed(pid, io::Error::new(error.kind(), text))
            }
        };
        let id = Pid::from_raw(pid).ok_or(RequestError::NoProcess(pid))?;
        // From here on, the process number cannot mean another process.
        let process = pidfd_open(id, PidfdFlags::empty()).map_err(gone)?;
        ProcessStatus::at(pid)?.check()?;
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

    /// Waits until the image is whole, or until `interrupt` becomes readable.
    ///
    /// # Errors
    /// Why there is no image.
    pub fn finish(mut self, interrupt: BorrowedFd<'_>) -> Result<RequestedImage, RequestError> {
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
                return Err(RequestError::Interrupted);
            }
            match (is_told, connection.take()) {
                (true, None) => connection = self.accept()?,
                (true, Some(told)) => match self.hear(told)? {
                    Some(news) => return Ok(news),
                    // The process connects again when the rounds are over.
                    None => connection = None,
                },
                // A message that the process sent before its end comes first.
                (false, _) if has_ended => return Err(RequestError::Ended(self.pid)),
                (false, waiting) => connection = waiting,
            }
        }
    }

    /// Accepts a connection and hands over descriptor and modes. `None` if the peer is another
    /// process, or is gone.
    fn accept(&mut self) -> Result<Option<OwnedFd>, RequestError> {
        let connection = match accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(connection) => connection,
            Err(Errno::INTR | Errno::CONNABORTED | Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(system("accepting a connection", error)),
        };
        let peer = file_calls::peer(connection.as_raw_fd()).map_err(|error| {
            system(
                "looking who has connected",
                Errno::from_raw_os_error(error.0),
            )
        })?;
        if peer.pid != self.pid {
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

    /// Reads a message of the process; `None`: its rounds have begun.
    fn hear(&self, connection: OwnedFd) -> Result<Option<RequestedImage>, RequestError> {
        let mut packet = [0; PACKET];
        let len = match recv(&connection, &mut packet, RecvFlags::empty()) {
            Ok((len, _)) => len,
            Err(Errno::CONNRESET) => 0,
            Err(error) => return Err(system("receiving from the process", error)),
        };
        match Reply::read(&packet[..len]) {
            Some(Reply::Begun) => Ok(None),
            Some(Reply::Saved { bytes, ns }) => Ok(Some(RequestedImage {
                bytes,
                freeze: Duration::from_nanos(ns),
                connection,
            })),
            Some(Reply::Refused(why)) => Err(RequestError::Refused {
                pid: self.pid,
                why: String::from_utf8_lossy(why).into_owned(),
            }),
            None => Err(RequestError::Ended(self.pid)),
        }
    }

    /// Why the process has not connected in time.
    fn silent(&self) -> RequestError {
        let Ok(look) = ProcessStatus::at(self.pid) else {
            return RequestError::NoProcess(self.pid);
        };
        let name = look.name.clone();
        match look.check() {
            Err(why) => why,
            Ok(()) if look.waits() => RequestError::DoesNotRun {
                pid: self.pid,
                name,
                what: "has not taken the signal yet: it waits for something in the kernel; it was not saved",
            },
            Ok(()) => RequestError::Silent {
                pid: self.pid,
                name,
            },
        }
    }
}

/// A socket with a random name, and the number in that name.
fn listener() -> Result<(OwnedFd, u64), RequestError> {
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

/// Sends the signal with the number.
fn signal_process(pid: i32, process: &OwnedFd, token: u64) -> Result<(), RequestError> {
    let told = queued_signal::queued(TRIGGER, token as usize);
    let (fd, info) = (process.as_raw_fd() as usize, &raw const told as usize);
    // SAFETY: the kernel reads the information.
    let sent = unsafe { sys::call4(nr::PIDFD_SEND_SIGNAL, fd, TRIGGER as usize, info, 0) };
    match sys::check(sent) {
        Ok(_) => Ok(()),
        Err(sys::Errno(libc::ESRCH)) => Err(RequestError::NoProcess(pid)),
        Err(error) => Err(not_allowed(pid, io::Error::from_raw_os_error(error.0))),
    }
}
