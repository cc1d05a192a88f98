//! A description of a socket and its addresses for a refusal, so that the reader of the refusal
//! finds the socket in the program.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    frozen::fault::Shown,
    raw::sys::{self, nr},
};
use std::{
    fmt,
    mem::offset_of,
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6},
};

/// A socket of this process. Displayed like "a TCP socket connected to 192.0.2.7:80".
pub struct Socket {
    own: Address,
    peer: Option<Address>,
    is_stream: bool,
    listens: bool,
}

impl Socket {
    /// Reads the state of a socket from the kernel.
    pub fn of(fd: i32) -> Self {
        Socket {
            own: Address::told(nr::GETSOCKNAME, fd).unwrap_or(Address::NONE),
            peer: Address::told(nr::GETPEERNAME, fd),
            is_stream: option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM),
            listens: option(fd, libc::SO_ACCEPTCONN) == Some(1),
        }
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.own.family(), self.is_stream) {
            (libc::AF_UNIX, _) => "a UNIX socket",
            (libc::AF_INET | libc::AF_INET6, true) => "a TCP socket",
            (libc::AF_INET | libc::AF_INET6, false) => "a UDP socket",
            (libc::AF_NETLINK, _) => "a netlink socket",
            _ => "a socket",
        })?;
        match &self.peer {
            Some(peer) => write!(f, " connected to {peer}"),
            None if self.listens => write!(f, " that listens at {}", self.own),
            None => f.write_str(" that is not connected"),
        }
    }
}

/// An address as the kernel writes it.
struct Address {
    bytes: [u8; size_of::<libc::sockaddr_storage>()],
    len: usize,
}

impl Address {
    /// The address of a socket of no known family.
    const NONE: Address = Address {
        bytes: [0; _],
        len: 0,
    };

    /// The address that a call with the arguments of `getsockname` returns.
    fn told(call: usize, fd: i32) -> Option<Self> {
        let mut address = Address::NONE;
        let mut len = size_of_val(&address.bytes) as u32;
        let (to, len_at) = (address.bytes.as_mut_ptr() as usize, &raw mut len as usize);
        // SAFETY: the kernel writes the address and its length.
        let told = unsafe { sys::call3(call, fd as usize, to, len_at) };
        address.len = (len as usize).min(address.bytes.len());
        (told == 0).then_some(address)
    }

    fn family(&self) -> i32 {
        i32::from(u16::from_ne_bytes([self.bytes[0], self.bytes[1]]))
    }

    /// `N` bytes from `at` on.
    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|index| self.bytes[at + index])
    }

    fn port(&self) -> u16 {
        u16::from_be_bytes(self.part(offset_of!(libc::sockaddr_in, sin_port)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family() {
            libc::AF_INET => {
                let ip = self.part::<4>(offset_of!(libc::sockaddr_in, sin_addr));
                SocketAddrV4::new(Ipv4Addr::from(ip), self.port()).fmt(f)
            }
            libc::AF_INET6 => {
                let ip = self.part::<16>(offset_of!(libc::sockaddr_in6, sin6_addr));
                SocketAddrV6::new(Ipv6Addr::from(ip), self.port(), 0, 0).fmt(f)
            }
            libc::AF_UNIX => {
                let path = &self.bytes[offset_of!(libc::sockaddr_un, sun_path)..self.len];
                match path {
                    // An abstract name, without a file: all bytes that follow are the name.
                    [0, name @ ..] if !name.is_empty() => write!(f, "@{}", Shown(name)),
                    _ => match path.split(|byte| *byte == 0).next() {
                        Some(path) if !path.is_empty() => Shown(path).fmt(f),
                        _ => f.write_str("one without a name"),
                    },
                }
            }
            family => write!(f, "an address of family {family}"),
        }
    }
}

/// The value of a socket option that is a number.
fn option(fd: i32, name: i32) -> Option<i32> {
    let mut value = 0i32;
    let mut len = size_of_val(&value) as u32;
    let (level, name) = (libc::SOL_SOCKET as usize, name as usize);
    let (to, len_at) = (&raw mut value as usize, &raw mut len as usize);
    // SAFETY: the kernel writes the number and its length.
    let told = unsafe { sys::call5(nr::GETSOCKOPT, fd as usize, level, name, to, len_at) };
    (told == 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::{TcpListener, TcpStream, UdpSocket},
        os::{
            fd::AsRawFd,
            unix::net::{UnixListener, UnixStream},
        },
    };

    fn shown(socket: &impl AsRawFd) -> String {
        Socket::of(socket.as_raw_fd()).to_string()
    }

    #[test]
    fn a_network_socket_is_described_by_its_addresses() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            // Some hosts have no IPv6.
            let Ok(listener) = TcpListener::bind(any) else {
                continue;
            };
            let at = listener.local_addr().expect("it is bound");
            let stream = TcpStream::connect(at).expect("it listens");
            let wanted = format!("a TCP socket that listens at {at}");
            assert_eq!(shown(&listener), wanted);
            assert_eq!(shown(&stream), format!("a TCP socket connected to {at}"));
        }
        let udp = UdpSocket::bind("127.0.0.1:0").expect("an address");
        assert_eq!(shown(&udp), "a UDP socket that is not connected");
    }

    #[test]
    fn a_unix_socket_is_described_by_the_path_of_the_listener() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).expect("a socket");
        let stream = UnixStream::connect(&path).expect("it listens");
        let (path, pair) = (path.display(), UnixStream::pair().expect("two sockets"));
        let wanted = format!("a UNIX socket that listens at {path}");
        assert_eq!(shown(&listener), wanted);
        let wanted = format!("a UNIX socket connected to {path}");
        assert_eq!(shown(&stream), wanted);
        let wanted = "a UNIX socket connected to one without a name";
        assert_eq!(shown(&pair.0), wanted);
    }
}
