//! The port that other daemons connect to, and the address that they are told.

use crate::args::Listen;
use anyhow::{Context, bail};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket},
};

/// Listens on the first port of the range that is free.
///
/// # Errors
/// When none is; the text names the range.
pub fn listen(at: &Listen) -> anyhow::Result<TcpListener> {
    for port in at.ports.0..=at.ports.1 {
        match TcpListener::bind((at.ip, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port < at.ports.1 => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                bail!("no port is free at {at}: choose another --listen ADDR:PORT[-PORT]");
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot listen on {at} (--listen)"));
            }
        }
    }
    unreachable!("a range of ports has a last one")
}

/// The address to tell others: what the user says, or the one listened on, or, where that is any,
/// `seen`: one that is known to lead here.
///
/// # Errors
/// When what the user says is no address.
pub fn advertised(
    advertise: Option<&str>,
    listening: SocketAddr,
    seen: impl FnOnce() -> IpAddr,
) -> anyhow::Result<SocketAddr> {
    let port = listening.port();
    match advertise {
        Some(text) => resolve(text, port)
            .with_context(|| format!("--advertise {text}: write it as ADDR or ADDR:PORT")),
        None if listening.ip().is_unspecified() => Ok(SocketAddr::new(seen(), port)),
        None => Ok(listening),
    }
}

/// Names are resolved once, here: others are told numbers, so that no daemon ever waits for a name
/// service.
fn resolve(text: &str, port: u16) -> io::Result<SocketAddr> {
    let mut found = text
        .to_socket_addrs()
        .or_else(|_| (text, port).to_socket_addrs())?;
    found
        .next()
        .ok_or_else(|| io::Error::other("the name has no address"))
}

/// This computer's address on its way to the rest of the network; loopback if there is none.
pub fn outward(listening: SocketAddr) -> IpAddr {
    // Addresses kept for documentation: nothing is sent, the system only chooses its own end.
    let (any, far): (IpAddr, IpAddr) = if listening.is_ipv4() {
        (
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
        )
    } else {
        let far = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        (Ipv6Addr::UNSPECIFIED.into(), far.into())
    };
    let own = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((far, 9))?;
        socket.local_addr()
    });
    match own {
        Ok(own) if !own.ip().is_unspecified() => own.ip(),
        _ if listening.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv6Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_port_of_a_range_is_taken() {
        let any: Listen = "127.0.0.1:0".parse().expect("an address");
        // Of two neighbouring ports the first is in use; other programs may get in the way.
        for _ in 0..100 {
            let taken = listen(&any).expect("any port");
            let port = taken.local_addr().expect("an address").port();
            let range = format!("127.0.0.1:{port}-{}", port.saturating_add(1));
            let Ok(range) = range.parse::<Listen>() else {
                continue;
            };
            let Ok(next) = listen(&range) else { continue };
            assert_eq!(next.local_addr().expect("an address").port(), port + 1);
            let error = listen(&range).expect_err("both are in use").to_string();
            assert!(error.contains("--listen"), "{error}");
            return;
        }
        panic!("no two neighbouring ports were free");
    }

    #[test]
    fn what_others_are_told_is_numeric_and_reachable() {
        let seen = || IpAddr::from([10, 0, 0, 7]);
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let told = |advertise, listening| {
            advertised(advertise, at(listening), seen).map(|addr| addr.to_string())
        };
        assert_eq!(
            told(None, "127.0.0.1:5").ok().as_deref(),
            Some("127.0.0.1:5")
        );
        assert_eq!(told(None, "0.0.0.0:5").ok().as_deref(), Some("10.0.0.7:5"));
        assert_eq!(
            told(Some("1.2.3.4"), "0.0.0.0:5").ok().as_deref(),
            Some("1.2.3.4:5")
        );
        assert_eq!(
            told(Some("1.2.3.4:6"), "0.0.0.0:5").ok().as_deref(),
            Some("1.2.3.4:6")
        );
        assert!(told(Some("no such name"), "0.0.0.0:5").is_err());
        assert!(!outward(at("0.0.0.0:5")).is_unspecified());
    }
}
