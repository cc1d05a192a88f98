//! Functions that all sockets need: reading into a growing buffer, and accepting at the limit of
//! open files.

use bytes::BytesMut;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read},
};
use std::{fs::File, io, os::fd::AsFd, time::Duration};

/// Least room for one read, so that one call reads many small frames. Bytes.
pub const READ_MIN: usize = 4 * 1024;
/// Bound on the bytes that are read from one socket before other sockets are read.
pub const SERVE_BYTES: usize = 128 * 1024;

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// The room was filled: there may be more bytes.
    Full(usize),
    /// Fewer bytes than the room. There are no more now; an event follows when there are.
    Some(usize),
    /// There are no bytes now.
    Nothing,
    /// The other end has closed.
    End,
}

/// Reads up to `room` bytes and appends them.
///
/// # Errors
/// The error of the system call; the connection cannot be used any more.
pub fn read_into(socket: impl AsFd, buffer: &mut BytesMut, room: usize) -> Result<Read, Errno> {
    let start = buffer.len();
    buffer.resize(start + room, 0);
    let result = loop {
        match read(&socket, &mut buffer[start..]) {
            Err(Errno::INTR) => {}
            result => break result,
        }
    };
    buffer.truncate(start + result.unwrap_or(0));
    match result {
        Ok(0) => Ok(Read::End),
        Ok(count) if count == room => Ok(Read::Full(count)),
        Ok(count) => Ok(Read::Some(count)),
        Err(Errno::AGAIN) => Ok(Read::Nothing),
        Err(error) => Err(error),
    }
}

/// Whether the descriptor can be read now, or is at its end. For a process descriptor: whether the
/// process has ended.
pub fn is_readable(fd: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// A spare descriptor, so that a connection can be accepted and closed when no other descriptor is
/// left. An edge-triggered event reports a waiting connection only once. A connection that is never
/// accepted would wait for ever; a refused one gets a message.
#[derive(Debug)]
pub struct Spare(Option<File>);

impl Spare {
    /// Opens the spare descriptor.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new() -> io::Result<Spare> {
        Ok(Spare(Some(File::open("/dev/null")?)))
    }

    /// Whether the error means that no descriptor is left.
    pub fn is_exhausted(error: &io::Error) -> bool {
        matches!(
            Errno::from_io_error(error),
            Some(Errno::MFILE | Errno::NFILE)
        )
    }

    /// Closes the spare descriptor while `refuse` runs, so that one descriptor is free.
    pub fn lend<T>(&mut self, refuse: impl FnOnce() -> T) -> T {
        self.0 = None;
        let answer = refuse();
        self.0 = File::open("/dev/null").ok();
        answer
    }
}

/// Raises the soft limit of open files to the hard limit. Returns the former limits, which tasks
/// start with: programs that use `select` break with a higher soft limit.
pub fn raise_file_limit() -> rustix::process::Rlimit {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::warn!("cannot raise the limit of open files: {error}");
    }
    before
}

/// How long sent data of a link may stay unacknowledged before the link counts as broken. Longer
/// than a short pause of the network, shorter than the lease.
const USER_TIMEOUT: Duration = Duration::from_millis(2_000);
/// Bound on the unsent bytes in the system's queue of a link. Urgent frames wait behind them.
const UNSENT_BYTES: u32 = 256 * 1024;

/// Sets the socket options of a link.
///
/// # Errors
/// The error of the system call.
pub fn tune_link(socket: &impl AsFd) -> io::Result<()> {
    tune_bulk(socket)?;
    socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_BYTES)
}

/// Sets the socket options of a connection that carries much data.
///
/// # Errors
/// The error of the system call.
pub fn tune_bulk(socket: &impl AsFd) -> io::Result<()> {
    let socket = socket2::SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    let second = Duration::from_secs(1);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(second)
        .with_interval(second);
    socket.set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::unix::net::UnixStream};

    #[test]
    fn a_read_tells_whether_there_may_be_more() {
        let (near, mut far) = UnixStream::pair().expect("a pair of sockets");
        near.set_nonblocking(true).expect("nonblocking");
        let mut buffer = BytesMut::new();
        assert_eq!(read_into(&near, &mut buffer, 4), Ok(Read::Nothing));
        far.write_all(b"123456").expect("written");
        assert_eq!(read_into(&near, &mut buffer, 4), Ok(Read::Full(4)));
        assert_eq!(read_into(&near, &mut buffer, 4), Ok(Read::Some(2)));
        drop(far);
        assert_eq!(read_into(&near, &mut buffer, 4), Ok(Read::End));
        assert_eq!(&buffer[..], b"123456");
    }
}
