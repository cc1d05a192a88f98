//! Joining a machine: one connection to a daemon of it, and the question "let me in" until it is
//! answered.
//!
//! This comes before the event loop and may block: the daemon serves nobody yet. The connection is
//! given up after the answer; the links to other daemons are made by the event loop. Of a name all
//! addresses are tried. What may pass
//! (the other daemon starts at the same time, the machine is between two leaders) is tried again
//! for a while; what will not (another secret, a refusal) is an error at once.

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

/// How long joining is tried. A name is free again 5 seconds after its host was lost.
pub const JOIN_TIME: Duration = Duration::from_secs(30);
/// How long the other daemon may take to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Pause before another attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// What is needed to join.
#[derive(Debug)]
pub struct Joiner<'a> {
    /// `HOST:PORT` of a daemon of the machine.
    pub target: &'a str,
    /// Where this daemon itself listens.
    pub listening: SocketAddr,
    /// The machine's secret.
    pub secret: &'a Secret,
    /// Encrypted links or not.
    pub mode: Mode,
    /// Drawn once, so that asking again is asking the same.
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
    #[error("it sent what is no answer: {0}")]
    Nonsense(String),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it did not answer in time")]
    Late,
    #[error(
        "that is this daemon itself: give --join an address of the machine's daemon that leads \
         there from here"
    )]
    Oneself,
    #[error("{0} (an address of this computer, where nobody listens on that port)")]
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
    /// Joins, with the facts that `facts` makes of the address by which the other daemon was
    /// reached. Returns them too.
    ///
    /// # Errors
    /// When the machine cannot be reached for half a minute, or says no.
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
            // Whoever has answered and said no stands for all addresses of the name.
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

    /// All addresses of the name, each once.
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

    /// Why the attempts failed; with the address where the user has named a name.
    fn reasons(&self, failed: &[(SocketAddr, AttemptError)]) -> String {
        let is_number = self.target.parse::<SocketAddr>().is_ok();
        let reason = |(address, error): &(SocketAddr, AttemptError)| match is_number {
            true => error.to_string(),
            false => format!("{address}: {error}"),
        };
        failed.iter().map(reason).collect::<Vec<_>>().join("; ")
    }

    /// One attempt; the outer error is about what this host says of itself.
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

    /// Whether this daemon listens at an address of this computer.
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
            // Until the answer, or until it is time to ask again.
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

/// A blocking connection.
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

    /// Waits for bytes, for a limited time.
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
