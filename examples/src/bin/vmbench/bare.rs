//! The side without the machine: partners that are bare processes at the end of a socket, with or
//! without relays in between.
//!
//! Before each turn the measuring process sends one [`Turn`]. After that only the messages
//! themselves cross the socket, all of the size in the turn.

use crate::plans::{Hosts, Plan, What};
use anyhow::{Context, Result, ensure};
use rustix::stdio::stdin;
use std::{
    env,
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Command, Stdio},
};

/// Bytes that a partner takes in one read.
const READ_BYTES: usize = 256 * 1024;

/// A socket to a partner, and the processes at its other end.
pub struct Bare {
    socket: Box<dyn Socket>,
    processes: Vec<Child>,
}

trait Socket: Read + Write {}

impl<S: Read + Write> Socket for S {}

impl Bare {
    /// One socket from end to end: UNIX on one host, TCP between two.
    pub fn raw(hosts: Hosts) -> Result<Self> {
        match hosts {
            Hosts::One => {
                let (here, there) = UnixStream::pair()?;
                Ok(Bare {
                    socket: Box::new(here),
                    processes: vec![partner_at(there)?],
                })
            }
            Hosts::Two | Hosts::TwoPlain => {
                let (here, there) = tcp_pair()?;
                Ok(Bare {
                    socket: Box::new(here),
                    processes: vec![partner_at(there)?],
                })
            }
        }
    }

    /// Sockets with a relay in the place of each daemon.
    pub fn relayed(hosts: Hosts) -> Result<Self> {
        let (here, near_end) = UnixStream::pair()?;
        let (far_end, there) = UnixStream::pair()?;
        let mut processes = Vec::new();
        match hosts {
            Hosts::One => processes.push(relay_between(near_end, far_end)?),
            Hosts::Two | Hosts::TwoPlain => {
                let (near_link, far_link) = tcp_pair()?;
                processes.push(relay_between(near_end, near_link)?);
                processes.push(relay_between(far_link, far_end)?);
            }
        }
        processes.push(partner_at(there)?);
        Ok(Bare {
            socket: Box::new(here),
            processes,
        })
    }

    /// Runs one turn of a row.
    pub fn run(&mut self, plan: &Plan) -> Result<()> {
        let turn = Turn {
            echo: plan.what == What::RoundTrip,
            size: plan.size as u64,
            count: plan.count as u64,
        };
        self.socket.write_all(&turn.to_bytes())?;
        let mut message = vec![0; plan.size];
        for _ in 0..plan.count {
            self.socket.write_all(&message)?;
            if turn.echo {
                self.socket.read_exact(&mut message)?;
            }
        }
        if !turn.echo {
            self.socket.read_exact(&mut [0])?;
        }
        Ok(())
    }

    /// Closes the socket. The processes then end one after the other.
    pub fn end(self) -> Result<()> {
        drop(self.socket);
        for mut process in self.processes {
            let status = process.wait()?;
            ensure!(status.success(), "a bare process ended with {status}");
        }
        Ok(())
    }
}

/// The two ends of a connection on the loopback address.
pub fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    let (there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    Ok((here, there))
}

fn partner_at(socket: impl Into<OwnedFd>) -> Result<Child> {
    Ok(Command::new(env::current_exe()?)
        .arg("bare-partner")
        .stdin(socket.into())
        .spawn()?)
}

fn relay_between(one: impl Into<OwnedFd>, other: impl Into<OwnedFd>) -> Result<Child> {
    let mut relay = Command::new(env::current_exe()?);
    Ok(relay
        .arg("relay")
        .stdin(one.into())
        .stdout(other.into())
        .spawn()?)
}

/// The next order for a partner.
struct Turn {
    /// Whether to return each message; else one byte acknowledges all of them.
    echo: bool,
    /// Size of a message. Bytes.
    size: u64,
    count: u64,
}

impl Turn {
    const LEN: usize = 24;

    fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let words = [u64::from(self.echo), self.size, self.count];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            u64::from_le_bytes(word)
        };
        Turn {
            echo: word(0) == 1,
            size: word(1),
            count: word(2),
        }
    }
}

/// The work of a partner: does the turns that come on its standard input, until the input ends.
pub fn partner() -> Result<()> {
    // Read and written like a file, so that UNIX and TCP sockets are treated alike.
    let mut socket = std::fs::File::from(stdin().as_fd().try_clone_to_owned()?);
    let mut head = [0; Turn::LEN];
    loop {
        match socket.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let turn = Turn::from_bytes(&head);
        if turn.echo {
            let mut message = vec![0; usize::try_from(turn.size)?];
            for _ in 0..turn.count {
                socket.read_exact(&mut message)?;
                socket.write_all(&message)?;
            }
        } else {
            let mut buffer = vec![0; READ_BYTES];
            let mut left = turn.size * turn.count;
            while left > 0 {
                let part = left.min(READ_BYTES as u64) as usize;
                let read = socket.read(&mut buffer[..part])?;
                ensure!(read > 0, "the socket ended within a turn");
                left -= read as u64;
            }
            socket.write_all(&[0])?;
        }
    }
}

/// Starts `count` processes at once, and waits until each has reported its start.
pub fn spawn(count: usize) -> Result<()> {
    let mut greeters = Vec::new();
    for _ in 0..count {
        let mut greeter = Command::new(env::current_exe()?);
        greeters.push(greeter.arg("bare-greeter").stdout(Stdio::piped()).spawn()?);
    }
    for mut greeter in greeters {
        let mut output = greeter.stdout.take().context("the greeter's output")?;
        output.read_exact(&mut [0])?;
        greeter.wait()?;
    }
    Ok(())
}

/// Reports that this process has started.
pub fn greet() -> Result<()> {
    Ok(io::stdout().write_all(&[0])?)
}
