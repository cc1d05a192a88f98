//! Joins a machine: one connection to a daemon of the machine, and a join request that is repeated
//! until a reply comes.
//!
//! This happens before the event loop starts, and may block: the daemon serves no task and no
//! console yet. The connection is closed after the reply; the event loop makes the links to other
//! daemons. If the target is a name, all its addresses are tried. Errors that may pass (the other
//! daemon is starting at the same time, the machine has no leader at the moment) lead to new
//! attempts for a while. Errors that cannot pass (a different secret, a refusal) end the attempts
//! at once.

use crate::{
    net::{
        interfaces,
        secure::{Mode, SEALED_MAX, Secure},
        secure_error::SecureError,
        sockets::tune_link,
    },
    start::secret::Secret,
};
use anyhow::{Context as _, bail};
use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    thread,
    time::{Duration, Instant},
};
use vm_wire::{
    Frame, FrameError, FrameReader, HostId, Message, Op,
    agreed::HostFacts,
    limits::REQUEST_RETRY,
    peer::{Hello, Join, Joined, Refused},
    version::{Offer, VersionError},
};

/// How long joining is tried. Longer than the 5 seconds after which the name of a lost host is free
/// again.
pub const JOIN_TIME: Duration = Duration::from_secs(30);
/// Time limit for a connection to the other daemon.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// The parameters of a join.
#[derive(Debug)]
pub struct Joiner<'a> {
    /// `HOST:PORT` of a daemon of the machine.
    pub target: &'a str,
    /// The listener's address of this daemon.
    pub listening: SocketAddr,
    /// The machine's secret.
    pub secret: &'a Secret,
    /// Whether links are encrypted.
    pub mode: Mode,
    /// A random number that stays the same in all attempts, so that a repeated request counts as
    /// the same request.
    pub nonce: u64,
}

/// Why one attempt failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("{0}")]
    Link(#[from] SecureError),
    #[error("{0}")]
    Version(#[from] VersionError),
    #[error("it refuses: {}", .0.why)]
    Refused(Box<Refused>),
    #[error("it sent no valid reply: {0}")]
    Nonsense(String),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it did not reply in time")]
    Late,
    #[error(
        "that is this daemon itself: give --join an address of the machine's daemon that leads \
         there from here"
    )]
    Oneself,
    #[error("{0} (the address is this computer's, and no process listens on that port)")]
    Here(io::Error),
}

impl From<FrameError> for AttemptError {
    fn from(error: FrameError) -> Self {
        AttemptError::Nonsense(error.to_string())
    }
}

impl From<vm_wire::CodecError> for AttemptError {
    fn from(error: vm_wire::CodecError) -> Self {
        AttemptError::Nonsense(error.to_string())
    }
}

impl AttemptError {
    fn may_pass(&self) -> bool {
        use AttemptError::{Here, Io, Late};
        matches!(self, Io(_) | Late | Here(_))
    }
}

impl Joiner<'_> {
    /// Joins the machine. `facts` makes the facts of this host from the address at which the other
    /// daemon has seen it. Returns these facts, too.
    ///
    /// # Errors
    /// When the machine cannot be reached within [`JOIN_TIME`], or refuses.
    pub fn join(
        &self,
        facts: impl Fn(IpAddr) -> anyhow::Result<HostFacts>,
    ) -> anyhow::Result<(Joined, HostFacts)> {
        let end = Instant::now() + JOIN_TIME;
        let mut told = false;
        loop {
            let mut failed = Vec::new();
            for address in self.addresses()? {
                match self.attempt(address, end, &facts)? {
                    Ok(joined) => return Ok(joined),
                    Err(error) => failed.push((address, error)),
                }
            }
            // A refusal by the daemon at one address counts for all addresses of the name.
            let says_no = |error: &AttemptError| {
                !(error.may_pass() || matches!(error, AttemptError::Oneself))
            };
            let again = failed.iter().any(|(_, error)| error.may_pass())
                && !failed.iter().any(|(_, error)| says_no(error));
            let why = self.reasons(&failed);
            if !again || Instant::now() + PAUSE >= end {
                bail!("cannot join the machine of {}: {why}", self.target);
            }
            if !told {
                log::warn!("{} cannot be joined yet, trying on: {why}", self.target);
                told = true;
            }
            thread::sleep(PAUSE);
        }
    }

    /// All addresses of the target, each once.
    fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let found = self
            .target
            .to_socket_addrs()
            .with_context(|| format!("--join {}: no such host", self.target))?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            bail!("--join {}: the host has no address", self.target);
        }
        Ok(addresses)
    }

    /// The reasons why the attempts failed. If the target is a name, each with its address.
    fn reasons(&self, failed: &[(SocketAddr, AttemptError)]) -> String {
        let is_number = self.target.parse::<SocketAddr>().is_ok();
        let reason = |(address, error): &(SocketAddr, AttemptError)| match is_number {
            true => error.to_string(),
            false => format!("{address}: {error}"),
        };
        failed.iter().map(reason).collect::<Vec<_>>().join("; ")
    }

    /// One attempt. The outer error means that this host's own facts cannot be determined.
    fn attempt(
        &self,
        address: SocketAddr,
        end: Instant,
        facts: impl Fn(IpAddr) -> anyhow::Result<HostFacts>,
    ) -> anyhow::Result<Result<(Joined, HostFacts), AttemptError>> {
        let is_here = interfaces::kind(&interfaces::own(), address.ip()).is_some();
        if is_here && self.is_own(address) {
            return Ok(Err(AttemptError::Oneself));
        }
        let connected = TcpStream::connect_timeout(&address, CONNECT_TIME)
            .and_then(|stream| Ok((stream.local_addr()?.ip(), stream)));
        match connected {
            Ok((seen, stream)) => {
                let facts = facts(seen.to_canonical())?;
                let result = self.ask(stream, address, end, &facts);
                Ok(result.map(|joined| (joined, facts)))
            }
            Err(error) if is_here && error.kind() == io::ErrorKind::ConnectionRefused => {
                Ok(Err(AttemptError::Here(error)))
            }
            Err(error) => Ok(Err(error.into())),
        }
    }

    /// Whether `address` is this daemon's own listener.
    fn is_own(&self, address: SocketAddr) -> bool {
        let (ip, own) = (address.ip().to_canonical(), self.listening.ip());
        address.port() == self.listening.port() && (own.is_unspecified() || own == ip)
    }

    fn ask(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        end: Instant,
        facts: &HostFacts,
    ) -> Result<Joined, AttemptError> {
        tune_link(&stream)?;
        stream.set_read_timeout(Some(REQUEST_RETRY))?;
        let mut out = Vec::new();
        let mut line = Line {
            secure: Secure::maker(self.secret, self.mode, &mut out),
            stream,
            reader: FrameReader::new(),
            out,
        };
        let join = Join {
            nonce: self.nonce,
            facts: facts.clone(),
        };
        let hello = Hello {
            offer: Offer::OURS,
            machine: None,
            host: HostId::NONE,
            name: facts.name.clone(),
        };
        let mut asked = false;
        loop {
            if line.secure.is_open() {
                if !asked {
                    line.say(&hello.frame());
                    asked = true;
                }
                line.say(&join.frame());
            }
            line.write()?;
            // Waits for the reply, or until the request is to be repeated.
            let ask_again = Instant::now() + REQUEST_RETRY;
            while Instant::now() < ask_again {
                if Instant::now() > end {
                    return Err(AttemptError::Late);
                }
                while let Some(frame) = line.reader.next_frame()? {
                    match frame.header.op {
                        Op::Hello => {
                            Offer::OURS.choose(Hello::read(&frame)?.offer)?;
                            log::info!("asking the daemon at {address} to let this host in");
                        }
                        Op::Joined => return Ok(Joined::read(&frame)?),
                        Op::Refused => {
                            return Err(AttemptError::Refused(Box::new(Refused::read(&frame)?)));
                        }
                        op => return Err(AttemptError::Nonsense(format!("{op:?}"))),
                    }
                }
                let open = line.secure.is_open();
                line.read()?;
                if line.secure.is_open() != open {
                    break;
                }
            }
        }
    }
}

/// A blocking connection to the other daemon.
struct Line {
    stream: TcpStream,
    secure: Secure,
    reader: FrameReader,
    out: Vec<u8>,
}

impl Line {
    fn say(&mut self, frame: &Frame) {
        let mut bytes = Vec::with_capacity(frame.len());
        frame.write_to(&mut bytes);
        if self.secure.sends_plain() {
            self.out.extend_from_slice(&bytes);
        } else {
            for part in bytes.chunks(SEALED_MAX) {
                self.secure.seal(part, &mut self.out);
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Waits for bytes, up to a time limit.
    fn read(&mut self) -> Result<(), AttemptError> {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => {
                self.secure
                    .input(&mut self.reader)
                    .extend_from_slice(&bytes[..count]);
                Ok(self.secure.receive(&mut self.reader, &mut self.out)?)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
