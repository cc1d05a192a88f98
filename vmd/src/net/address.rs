//! The port that other daemons connect to, and the address at which they are told to connect.

use crate::{
    net::interfaces,
    start::args::{Listen, Where},
};
use anyhow::{Context, bail};
use socket2::{Domain, Socket, Type};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs},
};
use vm_wire::limits::BACKLOG;

/// Listens on the first free port of the range.
///
/// # Errors
/// When no port of the range is free, or the name has no address. The text names the range.
pub fn listen(at: &Listen) -> anyhow::Result<TcpListener> {
    let ips = match &at.at {
        Where::Ip(ip) => vec![*ip],
        Where::Name(name) => {
            let found = (name.as_str(), at.ports.0).to_socket_addrs();
            let found = found.with_context(|| format!("--listen {at}: no such host"))?;
            reachable(name, found).with_context(|| format!("--listen {at}"))?
        }
    };
    let mut failed = None;
    for ip in &ips {
        match listen_on(*ip, at) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => bail!("--listen {at}: the host has no address"),
    }
}

fn listen_on(ip: IpAddr, at: &Listen) -> anyhow::Result<TcpListener> {
    for port in at.ports.0..=at.ports.1 {
        match bind(SocketAddr::new(ip, port)) {
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

/// Listens on one port. The unspecified address of IPv6 also takes connections of IPv4. Without
/// IPv6 on this computer, IPv4 alone is used.
fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let open = |addr: SocketAddr| -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        if addr.is_ipv6() {
            socket.set_only_v6(!addr.ip().is_unspecified())?;
        }
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    match open(addr) {
        Err(error)
            if error.kind() != io::ErrorKind::AddrInUse
                && addr.is_ipv6()
                && addr.ip().is_unspecified() =>
        {
            open((Ipv4Addr::UNSPECIFIED, addr.port()).into()).map_err(|_| error)
        }
        result => result,
    }
}

/// The address to publish: the address that the user gave, or the listener's address. If the
/// listener's address is the unspecified one, `seen`, an address that is known to lead to this
/// daemon.
///
/// # Errors
/// When the user's text is no address, or an address that leads no other daemon here.
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

/// The listener's port, if the user chose no address: only then may the daemon publish a better
/// address that it learns.
pub fn learns(advertise: Option<&str>, listening: SocketAddr) -> Option<u16> {
    let chosen = advertise.is_some() || !listening.ip().is_unspecified();
    (!chosen).then_some(listening.port())
}

/// Resolves a name, once: other daemons are told a numeric address, so that no daemon waits for a
/// name service.
fn resolve(text: &str, port: u16) -> anyhow::Result<SocketAddr> {
    // An IPv6 address may stand in brackets without a port, too.
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let found = text
        .to_socket_addrs()
        .or_else(|_| (bare.unwrap_or(text), port).to_socket_addrs())?;
    let found: Vec<SocketAddr> = found.collect();
    let port = found.first().map_or(port, SocketAddr::port);
    let name = text.rsplit_once(':').map_or(text, |(name, _)| name);
    let ips = reachable(name, found.into_iter())?;
    let ip = ips.first().context("the name has no address")?;
    Ok(SocketAddr::new(*ip, port))
}

/// The addresses of a name that other hosts may reach. For a numeric address and for `localhost`,
/// all addresses.
///
/// # Errors
/// When the name has loopback addresses only. Some systems give the computer's own name a loopback
/// address in the hosts file.
fn reachable(name: &str, found: impl Iterator<Item = SocketAddr>) -> anyhow::Result<Vec<IpAddr>> {
    let all: Vec<IpAddr> = found.map(|addr| addr.ip()).collect();
    let is_meant = name == "localhost" || all.iter().any(|ip| name.contains(&ip.to_string()));
    let good: Vec<IpAddr> = match is_meant {
        true => all.clone(),
        false => all.iter().copied().filter(|ip| !ip.is_loopback()).collect(),
    };
    match (good.is_empty(), all.first()) {
        (true, Some(ip)) => bail!(
            "the name {name} stands for {ip} on this computer (see /etc/hosts), which no other \
             computer reaches: give an address"
        ),
        _ => Ok(good),
    }
}

/// The address of this computer to publish before any host has reached it. Loopback, if the
/// computer has no other address.
pub fn best(listening: SocketAddr) -> IpAddr {
    let outward = interfaces::outward();
    let best = interfaces::choose(&interfaces::own(), &outward, listening.is_ipv6());
    best.unwrap_or(Ipv4Addr::LOCALHOST.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_port_of_a_range_is_taken() {
        let any: Listen = "127.0.0.1:0".parse().expect("an address");
        // The first of two neighbouring ports is in use. Other programs may take the second one, so
        // the test tries several times.
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
    fn a_published_address_is_numeric_and_reachable() {
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
        for text in ["fd77::1", "[fd77::1]", "[fd77::1]:5"] {
            let told = told(Some(text), "[::]:5").ok();
            assert_eq!(told.as_deref(), Some("[fd77::1]:5"), "{text}");
        }
        assert!(told(Some("no such name"), "0.0.0.0:5").is_err());
        assert!(!best(at("0.0.0.0:5")).is_unspecified());
        assert_eq!(learns(None, at("[::]:5")), Some(5));
        assert_eq!(learns(None, at("10.0.0.7:5")), None);
        assert_eq!(learns(Some("1.2.3.4"), at("[::]:5")), None);
    }

    #[test]
    fn a_name_with_loopback_addresses_only_is_refused_and_numbers_are_accepted() {
        let addrs = |texts: &[&str]| {
            let addr = |text: &&str| SocketAddr::new(text.parse().expect("an address"), 5);
            texts.iter().map(addr).collect::<Vec<_>>().into_iter()
        };
        let good = |name, texts: &[&str]| {
            reachable(name, addrs(texts))
                .map(|ips| ips.iter().map(IpAddr::to_string).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        let one = |text: &str| Ok(vec![text.to_owned()]);
        assert_eq!(good("node1", &["127.0.1.1", "10.97.0.1"]), one("10.97.0.1"));
        assert_eq!(good("localhost", &["127.0.0.1"]), one("127.0.0.1"));
        assert_eq!(good("127.0.1.1", &["127.0.1.1"]), one("127.0.1.1"));
        let why = good("node1", &["127.0.1.1"]).expect_err("it leads to loopback");
        assert!(
            why.contains("127.0.1.1") && why.contains("/etc/hosts"),
            "{why}"
        );
    }

    #[test]
    fn the_unspecified_address_of_ipv6_includes_ipv4() {
        let any: Listen = "[::]:0".parse().expect("an address");
        let port = listen(&any).and_then(|it| Ok((it.local_addr()?.port(), it)));
        let (port, _listener) = port.expect("a port");
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    }

    #[test]
    fn a_name_can_be_listened_on() {
        let named: Listen = "localhost:0".parse().expect("a name");
        let listener = listen(&named).expect("there is such a host");
        assert!(listener.local_addr().expect("bound").ip().is_loopback());
    }
}
