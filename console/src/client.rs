//! The console's connection to its daemon.
//!
//! Requests are numbered. A reply carries the number of its request, so a reply to a request that
//! was given up is recognised and dropped. Every wait ends when the daemon is lost, when the
//! caller's time is over, or when the user interrupts it.

use crate::{
    ask::{self, Ask, DaemonFacts},
    connection::Connection,
    failure::ClientError,
    interrupt::Interrupt,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{
    io,
    os::unix::net::UnixStream,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};
use vm_local::ConnectError;
use vm_wire::{
    Frame, HostId, MachineId, Message, Op,
    console::{Answer, Request},
    place,
};

/// How a wait for the daemon ended.
enum Wait {
    /// The daemon sent bytes, or is lost.
    Readable,
    /// The time is over.
    Over,
    /// A signal woke the wait; the daemon has sent nothing.
    Woken,
}

/// A connection on which both ends know each other's version.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    last_request: u64,
    /// The request whose reply is kept if it comes while another reply is awaited.
    awaited: Option<u64>,
    interrupt: Rc<Interrupt>,
    daemon: DaemonFacts,
}

/// A request that was sent, and whose reply is taken when it comes.
#[derive(Debug)]
pub struct Pending<R> {
    number: u64,
    read: fn(Answer) -> Option<R>,
}

/// A reply to one of several requests.
#[derive(Debug)]
pub struct Reply {
    number: u64,
    answer: Answer,
}

impl<R> Pending<R> {
    /// The value of `reply`, if that is the reply to this request.
    pub fn take(&self, reply: &Reply) -> Option<Result<R, ClientError>> {
        (reply.number == self.number).then(|| value(reply.answer.clone(), self.read))
    }
}

impl Client {
    /// Connects to the daemon whose folder is `dir`.
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`] if no daemon listens there; the others as they say.
    pub fn connect(dir: &Path, interrupt: Rc<Interrupt>) -> Result<Self, ClientError> {
        Self::connect_within(dir, interrupt, None)
    }

    /// As [`Client::connect`], but waits no longer than `time` for the daemon's version.
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
            // A daemon that died leaves its socket; the next daemon takes it over.
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
        Self::over(stream, interrupt, time).map_err(|error| match error {
            ClientError::Frame(_) => ClientError::NotDaemon {
                socket: place::socket(dir),
            },
            ClientError::Codec(_) => ClientError::OtherRelease {
                socket: place::socket(dir),
            },
            error => error,
        })
    }

    /// Requests the version over a connection that exists.
    ///
    /// # Errors
    /// As for [`Client::ask_within`].
    pub fn over(
        stream: UnixStream,
        interrupt: Rc<Interrupt>,
        time: Option<Duration>,
    ) -> Result<Self, ClientError> {
        let mut client = Client {
            connection: Connection::new(stream),
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
        let pending = client.begin(ask::version())?;
        client.daemon = client.reply(&pending, time)?;
        Ok(client)
    }

    /// The daemon at the other end.
    pub fn daemon(&self) -> &DaemonFacts {
        &self.daemon
    }

    /// Sends a request and does not wait for the reply: see [`Client::next_reply`].
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn begin<R>(&mut self, ask: Ask<R>) -> Result<Pending<R>, ClientError> {
        let number = self.send(&ask.request)?;
        let read = ask.read;
        Ok(Pending { number, read })
    }

    fn send(&mut self, request: &Request) -> Result<u64, ClientError> {
        self.last_request += 1;
        let number = self.last_request;
        self.connection.send(&request.frame().asked(number))?;
        Ok(number)
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the daemon refuses the request, the others if the connection
    /// fails.
    pub fn ask<R>(&mut self, ask: Ask<R>) -> Result<R, ClientError> {
        let pending = self.begin(ask)?;
        self.reply(&pending, None)
    }

    /// As [`Client::ask`], but waits no longer than `time`.
    ///
    /// # Errors
    /// Also [`ClientError::Late`].
    pub fn ask_within<R>(&mut self, ask: Ask<R>, time: Duration) -> Result<R, ClientError> {
        let pending = self.begin(ask)?;
        self.reply(&pending, Some(time))
    }

    /// As [`Client::ask`]; calls `meanwhile` every `pace` until the reply is there.
    ///
    /// # Errors
    /// Also those of `meanwhile`.
    pub fn ask_while<R>(
        &mut self,
        ask: Ask<R>,
        pace: Duration,
        mut meanwhile: impl FnMut(&mut Self) -> Result<(), ClientError>,
    ) -> Result<R, ClientError> {
        // Begins before the request is sent, so that no interrupt between the waits is missed.
        let _waiting = self.interrupt.waiting();
        let pending = self.begin(ask)?;
        self.awaited = Some(pending.number);
        let reply = loop {
            match self.reply(&pending, Some(pace)) {
                Err(ClientError::Late(_)) => {}
                reply => break reply,
            }
            if let Err(error) = meanwhile(self) {
                break Err(error);
            }
        };
        self.awaited = None;
        reply
    }

    /// The next reply to any request that was begun, or `None` when `time` is over.
    ///
    /// # Errors
    /// [`ClientError::Unexpected`] if something else than a reply comes, the others if the
    /// connection fails.
    pub fn next_reply(&mut self, time: Duration) -> Result<Option<Reply>, ClientError> {
        let Some(frame) = self.next_frame(Some(time))? else {
            return Ok(None);
        };
        if frame.header.op != Op::ConsoleAnswer {
            return Err(ClientError::Unexpected);
        }
        refuse_if_final(&frame)?;
        Ok(Some(Reply {
            number: frame.header.request,
            answer: Answer::read(&frame)?,
        }))
    }

    /// Waits until the daemon has closed the connection.
    ///
    /// # Errors
    /// [`ClientError::Late`] if it sends nothing for so long and stays.
    pub fn await_end(mut self, time: Duration) -> Result<(), ClientError> {
        loop {
            match self.next_frame(Some(time)) {
                Ok(Some(_)) => {}
                Ok(None) => return Err(ClientError::Late(time)),
                Err(error) if error.is_lost() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The connection alone: for a run, which waits for more than the daemon.
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    /// Waits for a reply; keeps other frames.
    fn reply<R>(&mut self, ask: &Pending<R>, time: Option<Duration>) -> Result<R, ClientError> {
        let number = ask.number;
        let end = time.map(|time| Instant::now() + time);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let kept = self.connection.take_kept(|frame| replies(frame, number));
            let frame = match kept {
                Some(frame) => frame,
                None => match self.fresh_frame(left)? {
                    Some(frame) => frame,
                    None => return Err(ClientError::Late(time.unwrap_or_default())),
                },
            };
            let is_awaited = |it| it != number && replies(&frame, it);
            match frame.header.op {
                Op::ConsoleAnswer if self.awaited.is_some_and(is_awaited) => {
                    self.connection.keep(frame);
                }
                Op::ConsoleAnswer if frame.header.request == number => {
                    return value(Answer::read(&frame)?, ask.read);
                }
                // A reply to a request that was given up, or the reason why the daemon closes the
                // connection.
                Op::ConsoleAnswer => refuse_if_final(&frame)?,
                _ => self.connection.keep(frame),
            }
        }
    }

    /// The next frame, or `None` when `time` is over; kept frames first.
    fn next_frame(&mut self, time: Option<Duration>) -> Result<Option<Frame>, ClientError> {
        match self.connection.take_kept(|_| true) {
            Some(frame) => Ok(Some(frame)),
            None => self.fresh_frame(time),
        }
    }

    fn fresh_frame(&mut self, time: Option<Duration>) -> Result<Option<Frame>, ClientError> {
        let end = time.map(|time| Instant::now() + time);
        let _waiting = self.interrupt.waiting();
        loop {
            if let Some(frame) = self.connection.fresh_frame()? {
                return Ok(Some(frame));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            match self.wait(left)? {
                Wait::Over => return Ok(None),
                Wait::Readable => self.connection.read_some()?,
                Wait::Woken => {}
            }
        }
    }

    fn wait(&self, left: Option<Duration>) -> Result<Wait, ClientError> {
        let left = left.map(|left| Timespec::try_from(left).expect("a wait of console length"));
        let mut fds = [
            PollFd::new(&self.connection, PollFlags::IN),
            self.interrupt.poll_fd(),
        ];
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => Ok(Wait::Over),
            Ok(_) if !fds[1].revents().is_empty() => Err(ClientError::Interrupted),
            Ok(_) => Ok(Wait::Readable),
            Err(Errno::INTR) => Ok(Wait::Woken),
            Err(cause) => Err(ClientError::Wait(cause.into())),
        }
    }
}

/// Whether a frame is the reply to request `number`.
fn replies(frame: &Frame, number: u64) -> bool {
    frame.header.op == Op::ConsoleAnswer && frame.header.request == number
}

/// The value in a reply.
fn value<R>(answer: Answer, read: fn(Answer) -> Option<R>) -> Result<R, ClientError> {
    match answer {
        Answer::Failed(failed) => Err(ClientError::Refused(failed)),
        answer => read(answer).ok_or(ClientError::Unexpected),
    }
}

/// Fails if a reply has no number: then it belongs to no request, and says why the daemon closes
/// the connection.
///
/// # Errors
/// [`ClientError::Refused`] with the daemon's reason.
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
    fn the_version_is_requested_first_and_requests_are_numbered() {
        let (client, daemon) = client(|mut daemon| {
            daemon.greet();
            let (number, request) = daemon.request();
            assert_eq!((number, request), (2, Request::Ps(None)));
            daemon.answer(number, &Answer::Ps(Vec::new()));
            assert_eq!(daemon.request().0, 3);
        });
        let mut client = client.unwrap();
        assert_eq!(client.daemon().machine, fake::HERE);
        assert_eq!(client.ask(ask::tasks(None)).unwrap(), []);
        client.begin(ask::halt()).unwrap();
        daemon.join().unwrap();
    }

    #[test]
    fn a_refusal_has_the_text_and_kind_of_the_daemon() {
        let (client, daemon) = client(|mut daemon| {
            daemon.greet();
            daemon.answer_next(&Answer::Failed(Failed::new(
                FailKind::NoSuchTask,
                "no task t1.9 is alive",
            )));
        });
        let error = client.unwrap().ask(ask::check(tid(1, 9))).unwrap_err();
        assert_eq!(error.to_string(), "no task t1.9 is alive");
        assert_eq!(error.kind(), "NoSuchTask");
        daemon.join().unwrap();
    }

    #[test]
    fn a_late_reply_is_not_taken_for_the_next_one() {
        let (client, daemon) = client(|mut daemon| {
            daemon.greet();
            let (late, _) = daemon.request();
            let (number, _) = daemon.request();
            daemon.answer(late, &Answer::Ps(Vec::new()));
            daemon.answer(number, &Answer::Done);
        });
        let mut client = client.unwrap();
        let late = client.ask_within(ask::tasks(None), Duration::ZERO);
        assert!(matches!(late, Err(ClientError::Late(_))));
        client.ask(ask::halt()).unwrap();
        daemon.join().unwrap();
    }

    #[test]
    fn a_reply_that_does_not_belong_to_the_request_is_an_error() {
        let (client, daemon) = client(|mut daemon| {
            daemon.greet();
            daemon.answer_next(&Answer::Done);
        });
        let error = client.unwrap().ask(ask::tasks(None)).unwrap_err();
        assert!(matches!(error, ClientError::Unexpected), "{error}");
        daemon.join().unwrap();
    }

    #[test]
    fn the_reason_why_a_daemon_closes_the_connection_is_shown() {
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
    fn the_end_of_the_daemon_ends_a_wait() {
        let (client, daemon) = client(|mut daemon| daemon.greet());
        let mut client = client.unwrap();
        daemon.join().unwrap();
        assert!(client.ask(ask::conf()).unwrap_err().is_lost());
    }

    #[test]
    fn bytes_that_are_no_frame_are_an_error() {
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
    fn without_a_listener_at_the_socket_there_is_no_daemon() {
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
