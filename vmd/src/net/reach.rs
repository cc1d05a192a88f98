//! The address at which this daemon is reached, and the check of daemons that want to join.
//!
//! A published address that leads other daemons elsewhere, above all to themselves, would make
//! links fail later, without a message to the user. So such an address is refused at the join.
//!
//! A daemon that listens on all addresses, and whose user gave no address, chooses one of the
//! computer's addresses ([`crate::net::interfaces`]). It may learn a better one: the address at
//! which a host that joins from another computer has reached it is right for other hosts, too.

use crate::net::interfaces::{Kind, Own, kind};
use std::net::{IpAddr, SocketAddr};
use vm_wire::{HostId, agreed::HostFacts};

/// A daemon that wants to join.
#[derive(Debug, Clone, Copy)]
pub struct SpawnRequester<'a> {
    /// The address that it comes from.
    pub from: IpAddr,
    /// The address at which it has reached this daemon.
    pub reached: IpAddr,
    /// The facts that it publishes.
    pub facts: &'a HostFacts,
}

/// The result of the check of a joining daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The request goes to the machine, which decides.
    Ask,
    /// The request goes to the machine after this daemon has published that address as its own.
    Tell(SocketAddr),
    /// The daemon is refused, for this reason.
    Refuse(String),
}

/// The address that this daemon may publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The port to publish with a better address; none if the user chose the address.
    pub learns: Option<u16>,
}

impl Reach {
    /// Judges a join request. `own` are the addresses of this computer, `me` is the host of this
    /// daemon, `hosts` are the hosts of the machine.
    pub fn judge<'a>(
        self,
        requester: SpawnRequester<'_>,
        own: &[Own],
        me: HostId,
        hosts: impl Iterator<Item = (HostId, &'a HostFacts)>,
    ) -> Verdict {
        let is_here = |ip: IpAddr| kind(own, ip).is_some();
        let hosts: Vec<_> = hosts
            .map(|(host, facts)| (host, facts, ip_of(facts)))
            .collect();
        let loopback = |ip: &Option<IpAddr>| ip.is_some_and(|ip| ip.is_loopback());
        let requester_ip = ip_of(requester.facts);
        if is_here(requester.from) {
            let far = hosts
                .iter()
                .find(|(_, _, ip)| ip.is_some_and(|ip| !is_here(ip)));
            return match far {
                Some((_, far, _)) if loopback(&requester_ip) => Verdict::Refuse(format!(
                    "the joining daemon publishes the address {}, which leads the host '{}' to \
                     itself: start it with another --listen, or with --advertise ADDR",
                    requester.facts.addr, far.name
                )),
                _ => Verdict::Ask,
            };
        }
        if loopback(&requester_ip) {
            return Verdict::Refuse(format!(
                "the joining daemon publishes the address {}, which leads other hosts to \
                 themselves: start it with another --listen, or with --advertise ADDR",
                requester.facts.addr
            ));
        }
        let alone = hosts.len() == 1;
        let mine = hosts.iter().find(|(host, ..)| *host == me);
        let mine = mine.and_then(|(_, _, ip)| *ip);
        if let Some(port) = self.learns
            && let Some(reached) = kind(own, requester.reached)
            && reached > Kind::Loopback
            && !is_of_one_cable(requester.reached)
            && mine != Some(requester.reached)
        {
            let told = mine.and_then(|mine| kind(own, mine));
            let better = told.is_none_or(|told| told == Kind::Loopback || alone && reached >= told);
            if better {
                return Verdict::Tell(SocketAddr::new(requester.reached, port));
            }
        }
        match hosts.iter().find(|(_, _, ip)| loopback(ip)) {
            Some((host, facts, _)) => Verdict::Refuse(format!(
                "the host '{}' ({host}) publishes the address {}, which only its own computer \
                 reaches: start that daemon with another --listen, or with --advertise ADDR",
                facts.name, facts.addr
            )),
            None => Verdict::Ask,
        }
    }
}

/// The published IP address of a host.
pub fn ip_of(facts: &HostFacts) -> Option<IpAddr> {
    let addr: Option<SocketAddr> = facts.addr.parse().ok();
    addr.map(|addr| addr.ip().to_canonical())
}

fn is_of_one_cable(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEARNS: Reach = Reach { learns: Some(7170) };
    const TOLD: Reach = Reach { learns: None };

    fn facts(name: &str, addr: &str) -> HostFacts {
        HostFacts {
            name: name.to_owned(),
            addr: addr.to_owned(),
            cpus: 1,
            tasks_max: 1,
            arch: "any".to_owned(),
            store_local: false,
        }
    }

    /// The verdict of the first daemon of a machine with the addresses `hosts` on a daemon that
    /// comes from `from`, has reached it at `reached`, and publishes `addr`.
    fn judge(reach: Reach, hosts: &[&str], (from, reached, addr): (&str, &str, &str)) -> Verdict {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let own = [
            ("127.0.0.1", Kind::Loopback),
            ("10.0.0.1", Kind::Network),
            ("10.1.0.1", Kind::Network),
            ("172.17.0.1", Kind::Containers),
            ("fe80::1", Kind::Local),
        ];
        let own = own.map(|(text, kind)| Own { ip: ip(text), kind });
        let facts_of = |(number, addr): (usize, &&str)| facts(&format!("n{}", number + 1), addr);
        let all: Vec<HostFacts> = hosts.iter().enumerate().map(facts_of).collect();
        let hosts = (1..).map(HostId).zip(&all);
        let joiner = facts("joiner", addr);
        let requester = SpawnRequester {
            from: ip(from),
            reached: ip(reached),
            facts: &joiner,
        };
        reach.judge(requester, &own, HostId(1), hosts)
    }

    fn refusal(verdict: Verdict) -> String {
        match verdict {
            Verdict::Refuse(why) => why,
            other => panic!("{other:?}"),
        }
    }

    fn tells(text: &str) -> Verdict {
        Verdict::Tell(text.parse().expect("an address"))
    }

    #[test]
    fn loopback_is_published_until_a_host_joins_from_another_computer() {
        let far = ("10.0.0.2", "10.0.0.1", "10.0.0.2:7170");
        let near = ("127.0.0.1", "127.0.0.1", "127.0.0.1:7171");
        for hosts in [
            &["127.0.0.1:7170"][..],
            &["127.0.0.1:7170", "127.0.0.1:7171"],
        ] {
            assert_eq!(judge(LEARNS, hosts, near), Verdict::Ask);
            assert_eq!(judge(LEARNS, hosts, far), tells("10.0.0.1:7170"));
            let why = refusal(judge(TOLD, hosts, far));
            assert!(
                why.contains("'n1'") && why.contains("127.0.0.1:7170"),
                "{why}"
            );
        }
        // The other daemon on this computer has not learned a better address yet.
        let why = refusal(judge(LEARNS, &["10.0.0.1:7170", "127.0.0.1:7171"], far));
        assert!(why.contains("'n2'") && why.contains("--listen"), "{why}");
    }

    #[test]
    fn a_daemon_at_loopback_joins_no_machine_of_several_computers() {
        let far = ("10.0.0.2", "10.0.0.1", "127.0.0.1:7170");
        let why = refusal(judge(LEARNS, &["10.0.0.1:7170"], far));
        assert!(why.contains("--listen"), "{why}");
        let near = ("10.0.0.1", "10.0.0.1", "127.0.0.1:7171");
        assert_eq!(judge(LEARNS, &["10.0.0.1:7170"], near), Verdict::Ask);
        let hosts = ["10.0.0.1:7170", "10.0.0.2:7170"];
        let why = refusal(judge(LEARNS, &hosts, near));
        assert!(why.contains("'n2'"), "{why}");
        let near = ("127.0.0.1", "127.0.0.1", "10.0.0.1:7171");
        assert_eq!(judge(LEARNS, &hosts, near), Verdict::Ask);
    }

    #[test]
    fn the_first_joining_host_shows_which_address_is_reached() {
        let by = |reached| ("10.1.0.2", reached, "10.1.0.2:7170");
        let alone = ["10.0.0.1:7170"];
        assert_eq!(judge(LEARNS, &alone, by("10.0.0.1")), Verdict::Ask);
        assert_eq!(
            judge(LEARNS, &alone, by("10.1.0.1")),
            tells("10.1.0.1:7170")
        );
        assert_eq!(judge(TOLD, &alone, by("10.1.0.1")), Verdict::Ask);
        // The address of a container of this computer, or of a neighbour on the cable, is not one
        // that other hosts reach.
        assert_eq!(judge(LEARNS, &alone, by("172.17.0.1")), Verdict::Ask);
        assert_eq!(judge(LEARNS, &alone, by("fe80::1")), Verdict::Ask);
        let containers = ["172.17.0.1:7170"];
        assert_eq!(
            judge(LEARNS, &containers, by("10.0.0.1")),
            tells("10.0.0.1:7170")
        );
        // Other hosts have used the published address.
        let several = ["10.0.0.1:7170", "10.0.0.2:7170"];
        assert_eq!(judge(LEARNS, &several, by("10.1.0.1")), Verdict::Ask);
    }
}
