//! The addresses of this computer, and the choice of the one to publish.

use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

/// Folder in which the system describes its interfaces.
const SYSTEM: &str = "/sys/class/net";

/// How far an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Leads every computer to itself.
    Loopback,
    /// The address of a bridge that leads to no network, only to containers or virtual machines of
    /// this computer. Other computers may have the same address.
    Containers,
    /// A link-local address: made up because the computer got no other, or valid on one cable only.
    Local,
    /// An address at which other computers may reach this one.
    Network,
}

/// An address of this computer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// The address.
    pub ip: IpAddr,
    /// How far the address leads.
    pub kind: Kind,
}

/// All addresses of the interfaces that are up. Empty if the system does not report them.
pub fn own() -> Vec<Own> {
    let Ok(found) = getifaddrs() else {
        return Vec::new();
    };
    let own = found.filter(|it| it.flags.contains(InterfaceFlags::IFF_UP));
    own.filter_map(|it| {
        let address = it.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = || address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
        let ip = v4.or_else(v6)?;
        let bridge = || leads_to_containers(&Path::new(SYSTEM).join(&it.interface_name));
        let kind = kind_of(ip, bridge);
        Some(Own { ip, kind })
    })
    .collect()
}

fn kind_of(ip: IpAddr, is_bridge: impl FnOnce() -> bool) -> Kind {
    match ip {
        ip if ip.is_loopback() || ip.is_unspecified() => Kind::Loopback,
        _ if is_bridge() => Kind::Containers,
        IpAddr::V4(v4) if v4.is_link_local() => Kind::Local,
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Kind::Local,
        _ => Kind::Network,
    }
}

/// Whether an interface is a bridge none of whose ports is a device, or a virtual equivalent of a
/// device.
fn leads_to_containers(interface: &Path) -> bool {
    if !interface.join("bridge").exists() {
        return false;
    }
    let Ok(ports) = fs::read_dir(interface.join("brif")) else {
        return false;
    };
    let leads_on = |port: &Path| {
        let about = fs::read_to_string(port.join("uevent")).unwrap_or_default();
        let stands_for = ["DEVTYPE=vlan", "DEVTYPE=bond"];
        port.join("device").exists() || about.lines().any(|line| stands_for.contains(&line))
    };
    // The folder of a port stands beside the folder of the bridge.
    let above = interface.parent().unwrap_or(interface);
    !ports
        .flatten()
        .any(|port| leads_on(&above.join(port.file_name())))
}

/// The address to publish, chosen from `own`: the address that leads farthest. Of several, an
/// address from which this computer sends to the rest of the network comes first, then IPv4, then
/// the order of the list. None if no other computer reaches any of them. IPv6 addresses are
/// considered only `with_ipv6`.
pub fn choose(own: &[Own], outward: &[IpAddr], with_ipv6: bool) -> Option<IpAddr> {
    let usable = |own: &&Own| {
        // A link-local address of IPv6 is incomplete without the name of its interface.
        let is_whole = own.ip.is_ipv4() || own.kind != Kind::Local;
        own.kind > Kind::Loopback && is_whole && (with_ipv6 || own.ip.is_ipv4())
    };
    let rank = |own: &Own| (own.kind, outward.contains(&own.ip), own.ip.is_ipv4());
    // `max_by_key` takes the last of equals, so the reversed order yields the first.
    let best = own.iter().rev().filter(usable).max_by_key(|own| rank(own));
    best.map(|own| own.ip)
}

/// How far an address of this computer leads; none if this computer does not have the address.
pub fn kind(own: &[Own], ip: IpAddr) -> Option<Kind> {
    let found = own.iter().find(|own| own.ip == ip);
    found
        .map(|own| own.kind)
        .or(ip.is_loopback().then_some(Kind::Loopback))
}

/// The addresses from which this computer sends to the rest of the network, if there is a route.
pub fn outward() -> Vec<IpAddr> {
    // The addresses are reserved for documentation: nothing is sent, the system only chooses a
    // local address.
    let v4 = Ipv4Addr::new(192, 0, 2, 1).into();
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into();
    let ends = [
        (IpAddr::from(Ipv4Addr::UNSPECIFIED), v4),
        (Ipv6Addr::UNSPECIFIED.into(), v6),
    ];
    let own = ends.map(|(any, far): (IpAddr, IpAddr)| {
        let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
        socket.connect((far, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    });
    own.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn own(all: &[(&str, Kind)]) -> Vec<Own> {
        let own = |(text, kind): &(&str, Kind)| Own {
            ip: ip(text),
            kind: *kind,
        };
        all.iter().map(own).collect()
    }

    #[test]
    fn the_address_that_leads_farthest_is_published() {
        use Kind::*;
        let all = [
            ("127.0.0.1", Loopback),
            ("172.17.0.1", Containers),
            ("169.254.3.4", Local),
            ("fe80::1", Local),
            ("fd00::7", Network),
            ("10.97.0.1", Network),
            ("10.98.0.1", Network),
        ];
        let all = own(&all);
        let chosen = |count: usize, outward: &[&str], with_ipv6| {
            let outward: Vec<IpAddr> = outward.iter().map(|text| ip(text)).collect();
            choose(&all[..count], &outward, with_ipv6).map(|ip| ip.to_string())
        };
        assert_eq!(chosen(1, &[], true), None, "loopback is for nobody else");
        assert_eq!(chosen(2, &[], true).as_deref(), Some("172.17.0.1"));
        assert_eq!(chosen(3, &[], true).as_deref(), Some("169.254.3.4"));
        assert_eq!(chosen(4, &[], true).as_deref(), Some("169.254.3.4"));
        // Hosts that have IPv6 only.
        assert_eq!(chosen(5, &[], true).as_deref(), Some("fd00::7"));
        assert_eq!(chosen(5, &[], false).as_deref(), Some("169.254.3.4"));
        assert_eq!(chosen(7, &[], true).as_deref(), Some("10.97.0.1"));
        assert_eq!(
            chosen(7, &["10.98.0.1"], true).as_deref(),
            Some("10.98.0.1")
        );
        // The bridge of containers has the route to the rest of the network, and the same address
        // on each host.
        assert_eq!(
            chosen(7, &["172.17.0.1"], true).as_deref(),
            Some("10.97.0.1")
        );
        assert_eq!(choose(&own(&[("fe80::1", Local)]), &[], true), None);
    }

    #[test]
    fn a_bridge_leads_to_a_network_if_a_device_is_among_its_ports() {
        let system = tempfile::tempdir().expect("a folder");
        let make = |path: &str| fs::create_dir_all(system.path().join(path)).expect("a folder");
        make("eth0/device");
        make("veth0");
        make("bond0");
        fs::write(system.path().join("bond0/uevent"), "DEVTYPE=bond\n").expect("a file");
        for (bridge, ports) in [
            ("br0", &["veth0", "eth0"][..]),
            ("br1", &["veth0"]),
            ("br2", &[]),
        ] {
            make(&format!("{bridge}/bridge"));
            make(&format!("{bridge}/brif"));
            ports
                .iter()
                .for_each(|port| make(&format!("{bridge}/brif/{port}")));
        }
        make("br3/bridge");
        make("br3/brif/bond0");
        let leads = |name: &str| leads_to_containers(&system.path().join(name));
        assert!(!leads("eth0") && !leads("br0") && !leads("br3"));
        assert!(leads("br1") && leads("br2"));
    }

    #[test]
    fn this_computer_has_a_loopback_address() {
        let own = super::own();
        let loopback = |own: &&Own| own.ip.is_loopback();
        for found in own.iter().filter(loopback) {
            assert_eq!(found.kind, Kind::Loopback);
        }
        assert_eq!(kind(&own, ip("127.0.1.1")), Some(Kind::Loopback));
        assert_eq!(kind(&own, ip("192.0.2.1")), None);
    }
}
