//! Hello, the first frame of each daemon on a link, and the check whether the other daemon is
//! accepted.

use crate::{net::secure::Mode, start::secret::Secret};
use vm_wire::{
    Frame, HostId, MachineId, Message, Op,
    peer::Hello,
    task::{FailKind, Failed},
    version::Offer,
};

/// The identity of this daemon, and the keys and mode of its links.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The machine.
    pub machine: MachineId,
    /// The number of this host.
    pub host: HostId,
    /// The name of this host.
    pub name: String,
    /// The machine's secret.
    pub secret: Secret,
    /// Whether links are encrypted.
    pub mode: Mode,
}

impl Identity {
    /// The Hello of this daemon.
    pub fn hello(&self) -> Frame {
        Hello {
            offer: Offer::OURS,
            machine: Some(self.machine),
            host: self.host,
            name: self.name.clone(),
        }
        .frame()
    }

    /// Checks the Hello of the other end. Returns its host, or [`HostId::NONE`] for a daemon that
    /// wants to join.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub fn greet(&self, wanted: Option<HostId>, hello: &Hello) -> Result<HostId, Failed> {
        if let Err(error) = Offer::OURS.choose(hello.offer) {
            return Err(Failed::new(FailKind::Version, error.to_string()));
        }
        let refused = |text: String| Err(Failed::new(FailKind::Refused, text));
        match (hello.machine, hello.host, wanted) {
            (None, HostId::NONE, None) => Ok(HostId::NONE),
            (Some(machine), _, _) if machine != self.machine => refused(format!(
                "it belongs to machine {machine}, this is machine {}",
                self.machine
            )),
            (Some(_), host, _) if host == self.host => {
                refused(format!("it says that it is {host}, which is this daemon"))
            }
            (Some(_), host, Some(wanted)) if host != wanted => refused(format!(
                "at this address {wanted} was expected, and {host} answers"
            )),
            (Some(_), host, _) if host != HostId::NONE => Ok(host),
            _ => refused("its Hello makes no sense".to_owned()),
        }
    }
}

/// Whether a frame of this operation may come over a link after Hello. Operations of tasks and
/// consoles may not. Orders between daemons are sent as data.
pub fn is_from_host(op: Op) -> bool {
    // Located: a frame of a task could not be delivered at the other host, which sends the task's
    // present host.
    let routed = (Op::Data..=Op::Resend).contains(&op) || op == Op::Located;
    routed || (Op::Raft..=Op::Grant).contains(&op)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us() -> Identity {
        Identity {
            machine: MachineId::from_bits(7),
            host: HostId(3),
            name: "us".to_owned(),
            secret: Secret::from_text("0123456789abcdef").expect("long enough"),
            mode: Mode::Encrypted,
        }
    }

    fn them(machine: Option<u32>, host: u16) -> Hello {
        Hello {
            offer: Offer::OURS,
            machine: machine.map(MachineId::from_bits),
            host: HostId(host),
            name: "them".to_owned(),
        }
    }

    #[test]
    fn hosts_of_the_machine_and_joiners_are_greeted() {
        assert_eq!(us().greet(None, &them(Some(7), 4)), Ok(HostId(4)));
        assert_eq!(
            us().greet(Some(HostId(4)), &them(Some(7), 4)),
            Ok(HostId(4))
        );
        assert_eq!(us().greet(None, &them(None, 0)), Ok(HostId::NONE));
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        for (wanted, hello, says) in [
            (None, them(Some(8), 4), "belongs to machine"),
            (None, them(Some(7), 3), "this daemon"),
            (None, them(Some(7), 0), "no sense"),
            (None, them(None, 4), "no sense"),
            (Some(HostId(5)), them(Some(7), 4), "was expected"),
            (Some(HostId(5)), them(None, 0), "no sense"),
        ] {
            let why = us().greet(wanted, &hello).expect_err(says).text;
            assert!(why.contains(says), "{why}");
        }
        let mut old = them(Some(7), 4);
        old.offer = Offer {
            oldest: 900,
            newest: 901,
        };
        let why = us().greet(None, &old).expect_err("no version in common");
        assert_eq!(why.kind, FailKind::Version);
    }

    #[test]
    fn operations_of_local_peers_are_refused_from_the_network() {
        for op in [
            Op::Spawn,
            Op::Signal,
            Op::Exit,
            Op::ConsoleRequest,
            Op::Hello,
        ] {
            assert!(!is_from_host(op), "{op:?}");
        }
        assert!(is_from_host(Op::Located));
        assert!(is_from_host(Op::Data) && is_from_host(Op::Raft) && is_from_host(Op::Grant));
    }
}
