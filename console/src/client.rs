//! The console's connection to its daemon.
//!
//! Requests are numbered; an answer carries the number of its request, so answers that nobody
//! waits for any more are recognised and dropped. Every wait ends when the daemon is gone, when
//! the caller's time is over, or when the user interrupts it.

use crate::{failure::ClientError, interrupt::Interrupt};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};
use vm_local::ConnectError;
use vm_wire::{
    Frame, FrameReader, HostId, MachineId, Message, Op,
    console::{Answer, Request},
    place,
    version::Offer,
};

/// Bytes asked of the socket at a time.
const READ_BYTES: usize = 64 * 1024;

/// How a wait for the daemon went.
enum Wait {
    /// It sent something, or is gone.
    Readable,
    /// The time is over.
    Over,
    /// A signal woke the wait; nothing is known.
    Again,
}

/// Who answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonFacts {
    /// The version of the protocol that both speak.
    pub protocol: u16,
    /// Its release.
    pub release: String,
    /// Its machine.
    pub machine: MachineId,
    /// Its host.
    pub host: HostId,
}

/// A connection on which both ends know each other's version.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    reader: FrameReader,
    /// Frames that came while another was awaited.
    early: VecDeque<Frame>,
    last_request: u64,
    /// The request whose answer is kept when it comes while another is awaited.
    awaited: Option<u64>,
    interrupt: Rc<Interrupt>,
    daemon: DaemonFacts,
}

impl Client {
    /// Connects to the daemon whose folder is `dir`.
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`] when nobody listens there, the others as they say.
    pub fn connect(dir: &Path, interrupt: Rc<Interrupt>) -> Result<Self, ClientError> {
        Self::connect_within(dir, interrupt, None)
    }

    /// As [`Client::connect`], but waits no longer than `time` for the daemon to speak.
    ///
    /// # Errors
    /// Also [`ClientError::Late`].
    pub fn connect_within(
        dir: &Path,
        interrupt: Rc<Interrupt>,
        time: Option<Duration>,
    ) -> Result<Self, ClientError> {
        let socket = place::socket(dir);
        let stream = vm_local::connect(&socket).map_err(|error| match error {
            // A daemon that died leaves its socket; the next one takes it over.
            ConnectError::Connect(cause)
                if matches!(
                    cause.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                ClientError::NoDaemon { socket }
            }
            ConnectError::Connect(cause) => ClientError::Socket { socket, cause },
            ConnectError::Folder(why) => ClientError::Folder {
                dir: dir.to_owned(),
                why,
            },
            ConnectError::Foreign { uid, .. } => ClientError::Foreign { socket, uid },
        })?;
        Self::over(stream, interrupt, time)
    }

    /// Asks the version over a connection that is there.
    ///
    /// # Errors
    /// As for [`Client::ask_within`].
    pub fn over(
        stream: UnixStream,
        interrupt: Rc<Interrupt>,
        time: Option<Duration>,
    ) -> Result<Self, ClientError> {
        let mut client = Client {
            stream,
            reader: FrameReader::new(),
            early: VecDeque::new(),
            last_request: 0,
            awaited: None,
            interrupt,
            daemon: DaemonFacts {
                protocol: 0,
                release: String::new(),
                machine: MachineId::from_bits(0),
                host: HostId::NONE,
            },
        };
        let number = client.send(&Request::Version(Offer::OURS))?;
        match client.answer(number, time)? {
            Answer::Version {
                version,
                release,
                machine,
                host,
            } => {
                client.daemon = DaemonFacts {
                    protocol: version,
                    release,
                    machine,
                    host,
                };
                Ok(client)
            }
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Who answered.
    pub fn daemon(&self) -> &DaemonFacts {
        &self.daemon
    }

    /// Sends a request and returns its number.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn send(&mut self, request: &Request) -> Result<u64, ClientError> {
        self.last_request += 1;
        let number = self.last_request;
        self.send_frame(&request.frame().asked(number))?;
        Ok(number)
    }

    /// Sends a frame of a run.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn send_frame(&mut self, frame: &Frame) -> Result<(), ClientError> {
        let mut bytes = Vec::with_capacity(frame.len());
        frame.write_to(&mut bytes);
        self.stream
            .write_all(&bytes)
            .map_err(|cause| ClientError::Lost(Some(cause)))
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the daemon says no, the others when the talk itself fails.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        let number = self.send(request)?;
        self.answer(number, None)
    }

    /// As [`Client::ask`], but waits no longer than `time`.
    ///
    /// # Errors
    /// Also [`ClientError::Late`].
    pub fn ask_within(&mut self, request: &Request, time: Duration) -> Result<Answer, ClientError> {
        let number = self.send(request)?;
        self.answer(number, Some(time))
    }

    /// As [`Client::ask`], and every `pace` until the answer is there does something else.
    ///
    /// # Errors
    /// Also what that says.
    pub fn ask_while(
        &mut self,
        request: &Request,
        pace: Duration,
        mut meanwhile: impl FnMut(&mut Self) -> Result<(), ClientError>,
    ) -> Result<Answer, ClientError> {
        // From before it is asked: who asked is told when the user does not wait for the answer.
        let _waiting = self.interrupt.waiting();
        let number = self.send(request)?;
        self.awaited = Some(number);
        let answer = loop {
            match self.answer(number, Some(pace)) {
                Err(ClientError::Late(_)) => {}
                answer => break answer,
            }
            if let Err(error) = meanwhile(self) {
                break Err(error);
            }
        };
        self.awaited = None;
        answer
    }

    /// Waits for the answer to request `number`; what else comes is for later.
    fn answer(&mut self, number: u64, time: Option<Duration>) -> Result<Answer, ClientError> {
        let end = time.map(|time| Instant::now() + time);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let early = self.early.iter().position(|frame| answers(frame, number));
            let early = early.and_then(|place| self.early.remove(place));
            let frame = match early {
                Some(frame) => frame,
                None => match self.fresh_frame(left)? {
                    Some(frame) => frame,
                    None => return Err(ClientError::Late(time.unwrap_or_default())),
                },
            };
            match frame.header.op {
                Op::ConsoleAnswer
                    if self
                        .awaited
                        .is_some_and(|it| it != number && answers(&frame, it)) =>
                {
                    self.early.push_back(frame);
                }
                Op::ConsoleAnswer if frame.header.request == number => {
                    return match Answer::read(&frame)? {
                        Answer::Failed(failed) => Err(ClientError::Refused(failed)),
                        answer => Ok(answer),
                    };
                }
                // To a request whose wait was given up; or why the daemon ends the talk.
                Op::ConsoleAnswer => refuse_if_final(&frame)?,
                _ => self.early.push_back(frame),
            }
        }
    }

    /// The next frame, or `None` when `time` is over.
    ///
    /// # Errors
    /// When the talk itself fails.
    pub fn next_frame(&mut self, time: Option<Duration>) -> Result<Option<Frame>, ClientError> {
        match self.early.pop_front() {
            Some(frame) => Ok(Some(frame)),
            None => self.fresh_frame(time),
        }
    }

    fn fresh_frame(&mut self, time: Option<Duration>) -> Result<Option<Frame>, ClientError> {
        let end = time.map(|time| Instant::now() + time);
        let _waiting = self.interrupt.waiting();
        loop {
            if let Some(frame) = self.reader.next_frame()? {
                return Ok(Some(frame));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            match self.wait(left)? {
                Wait::Over => return Ok(None),
                Wait::Readable => self.read_some()?,
                Wait::Again => {}
            }
        }
    }

    fn wait(&self, left: Option<Duration>) -> Result<Wait, ClientError> {
        let left = left.map(|left| Timespec::try_from(left).expect("a wait of console length"));
        let mut fds = [
            PollFd::new(&self.stream, PollFlags::IN),
            self.interrupt.poll_fd(),
        ];
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => Ok(Wait::Over),
            Ok(_) if !fds[1].revents().is_empty() => Err(ClientError::Interrupted),
            Ok(_) => Ok(Wait::Readable),
            Err(Errno::INTR) => Ok(Wait::Again),
            Err(cause) => Err(ClientError::Wait(cause.into())),
        }
    }

    /// The socket, what was read of it, and the frames that came early: for a run, which waits for
    /// more than the daemon.
    pub fn into_parts(self) -> (UnixStream, FrameReader, VecDeque<Frame>) {
        (self.stream, self.reader, self.early)
    }

    /// Reads what is there once; the end of the stream is an error here.
    fn read_some(&mut self) -> Result<(), ClientError> {
        let mut buffer = [0; READ_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(ClientError::Lost(None)),
            Ok(count) => {
                self.reader.push(&buffer[..count]);
                Ok(())
            }
            Err(cause)
                if matches!(
                    cause.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                Ok(())
            }
            Err(cause) => Err(ClientError::Lost(Some(cause))),
        }
    }
}

/// Whether a frame is the answer to request `number`.
fn answers(frame: &Frame, number: u64) -> bool {
    frame.header.op == Op::ConsoleAnswer && frame.header.request == number
}

/// An answer without a number is to no request: the daemon says why it closes the connection.
///
/// # Errors
/// [`ClientError::Refused`] with its words.
pub fn refuse_if_final(frame: &Frame) -> Result<(), ClientError> {
    match Answer::read(frame)? {
        Answer::Failed(failed) if frame.header.request == 0 => Err(ClientError::Refused(failed)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, FakeDaemon, tid};
    use std::thread::JoinHandle;
    use vm_wire::task::{FailKind, Failed};

    fn client(
        script: impl FnOnce(FakeDaemon) + Send + 'static,
    ) -> (Result<Client, ClientError>, JoinHandle<()>) {
        let (stream, daemon) = fake::pair(script);
        let client = Client::over(stream, Rc::new(Interrupt::none()), None);
        (client, daemon)
    }

    #[test]
    fn the_version_is_asked_first_and_requests_are_numbered() {
        let (client, daemon) = client(|mut daemon| {
            daemon.greet();
            let (number, request) = daemon.request();
            assert_eq!((number, request), (2, Request::Ps(None)));
            daemon.answer(number, &Answer::Ps(Vec::new()));
            assert_eq!(daemon.request().0, 3);
        });
        let mut client = client.unwrap();
        assert_eq!(client.daemon().machine, fake::HERE);
        assert_eq!(client.ask(&Request::Ps(None)).unwrap(), Answer::Ps(vec![]));
        client.send(&Request::Halt).unwrap();
        daemon.join().unwrap();
    }

    #[test]
    fn a_refusal_is_the_daemons_own_words() {
        let (client, daemon) = client(|mut daemon| {
            daemon.greet();
            daemon.answer_next(&Answer::Failed(Failed::new(
                FailKind::NoSuchTask,
                "no task t1.9 is alive",
            )));
        });
        let error = client.unwrap().ask(&Request::Check(tid(1, 9))).unwrap_err();
        assert_eq!(error.to_string(), "no task t1.9 is alive");
        assert_eq!(error.kind(), "NoSuchTask");
        daemon.join().unwrap();
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next() {
        let (client, daemon) = client(|mut daemon| {
            daemon.greet();
            let (late, _) = daemon.request();
            let (number, _) = daemon.request();
            daemon.answer(late, &Answer::Ps(Vec::new()));
            daemon.answer(number, &Answer::Done);
        });
        let mut client = client.unwrap();
        let late = client.ask_within(&Request::Ps(None), Duration::ZERO);
        assert!(matches!(late, Err(ClientError::Late(_))));
        assert_eq!(client.ask(&Request::Halt).unwrap(), Answer::Done);
        daemon.join().unwrap();
    }

    #[test]
    fn why_a_daemon_closes_the_connection_is_told() {
        let (client, daemon) = client(|mut daemon| {
            daemon.request();
            let why = Failed::new(FailKind::BadRequest, "too many consoles are connected");
            daemon.answer(0, &Answer::Failed(why));
        });
        let error = client.unwrap_err();
        assert_eq!(error.to_string(), "too many consoles are connected");
        daemon.join().unwrap();
    }

    #[test]
    fn a_daemon_that_goes_is_lost_and_no_hang() {
        let (client, daemon) = client(|mut daemon| daemon.greet());
        let mut client = client.unwrap();
        daemon.join().unwrap();
        assert!(client.ask(&Request::Conf).unwrap_err().is_lost());
    }

    #[test]
    fn what_is_no_vmd_is_told_so() {
        for garbage in [b"HTTP/1.0 400 Bad Request\r\n".repeat(8), vec![0xff; 96]] {
            let (client, daemon) = client(move |mut daemon| {
                daemon.request();
                daemon.send_bytes(&garbage);
            });
            let error = client.unwrap_err();
            assert!(matches!(error, ClientError::Frame(_)), "{error}");
            daemon.join().unwrap();
        }
    }

    #[test]
    fn nobody_at_the_socket_is_no_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let connect = || Client::connect(dir.path(), Rc::new(Interrupt::none()));
        assert!(matches!(connect(), Err(ClientError::NoDaemon { .. })));
        // The socket of a daemon that died without removing it.
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(dir.path(), private).unwrap();
        drop(std::os::unix::net::UnixListener::bind(place::socket(dir.path())).unwrap());
        assert!(matches!(connect(), Err(ClientError::NoDaemon { .. })));
    }
}
