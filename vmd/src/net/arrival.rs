//! How this daemon enters its machine, and how other daemons enter through it: when the entry is
//! complete, which address is published, and which daemons are refused.
//!
//! A daemon that has joined has arrived once it has links to the other hosts. The command that
//! started it in the background ends then. If there is no link to some host within a time limit,
//! the command ends with the reason and the daemon leaves the machine.

use crate::{
    context::Context,
    net::{
        address, interfaces,
        links::{Asked, Links},
        reach::{self, Reach, SpawnRequester, Verdict},
    },
    start::{detach, dir::Handle},
};
use std::{net::SocketAddr, thread, time::Duration};
use vm_machine::{Daemon, Input, Time};
use vm_wire::{
    HostId, Message,
    agreed::HostFacts,
    limits::{LINK_TIME, STRANGERS_MAX},
    peer::{Join, Refused},
    task::{FailKind, Failed},
};

/// Interval at which the interfaces are inspected while the published address is loopback.
const LOOK: Duration = Duration::from_secs(1);

/// The state of this daemon's entry.
#[derive(Debug)]
enum Stage {
    /// The daemon makes links to the other hosts.
    Linking {
        /// Whether the command that started the daemon waits for the result.
        detached: bool,
    },
    /// The daemon has its links.
    There,
    /// The daemon has no link to some hosts, and leaves for this reason.
    Leaving(String),
}

/// The entry of this daemon, and of daemons that join through it. See the module.
#[derive(Debug)]
pub struct Arrival {
    reach: Reach,
    /// The listener's address for other daemons.
    listening: SocketAddr,
    /// The daemon's folder, for the file with the daemon's address.
    dir: Handle,
    stage: Stage,
    /// Join requests that wait until the better address of this daemon is agreed.
    held: Vec<Asked>,
    looked: Time,
}

impl Arrival {
    /// The state of a daemon that has just started.
    pub fn new(reach: Reach, listening: SocketAddr, dir: Handle, detached: bool) -> Arrival {
        Arrival {
            reach,
            listening,
            dir,
            stage: Stage::Linking { detached },
            held: Vec::new(),
            looked: Time(0),
        }
    }

    /// Handles the join request of another daemon.
    pub fn asked(
        &mut self,
        asked: Asked,
        daemon: &Daemon,
        links: &mut Links,
        context: &mut Context,
    ) {
        // A request that cannot be decoded goes to the state machine, which refuses it.
        let verdict = Join::read(&asked.frame).map_or(Verdict::Ask, |join| {
            let requester = SpawnRequester {
                from: asked.from,
                reached: asked.reached,
                facts: &join.facts,
            };
            let agreement = daemon.agreement();
            let hosts = agreement.state().hosts();
            let hosts = hosts.map(|(host, found)| (host, &found.facts));
            let own = interfaces::own();
            self.reach.judge(requester, &own, agreement.me(), hosts)
        });
        match verdict {
            Verdict::Ask => {
                let Asked { conn, frame, .. } = asked;
                context.inbox.push_back(Input::Joiner(conn, frame));
            }
            Verdict::Tell(addr) => {
                let known = self.held.iter().any(|held| held.conn == asked.conn);
                if !known && self.held.len() < STRANGERS_MAX {
                    self.held.push(asked);
                }
                tell(addr, context);
            }
            Verdict::Refuse(why) => {
                log::warn!("a daemon at {} is not let in: {why}", asked.from);
                let why = Failed::new(FailKind::Refused, why);
                links.send_to_joiner(asked.conn, Refused { why }.frame(), context);
            }
        }
    }

    /// Handles the change of this daemon's published address: writes it to the folder, and judges
    /// the held join requests again.
    pub fn told(&mut self, addr: &str, daemon: &Daemon, links: &mut Links, context: &mut Context) {
        let (dir, addr) = (self.dir.clone(), addr.to_owned());
        // A thread writes the file, because the disk may be slow.
        let write = move || {
            if let Err(error) = dir.publish_address(&addr) {
                log::warn!("{error:#}");
            }
        };
        if let Err(error) = thread::Builder::new().name("address".into()).spawn(write) {
            log::warn!("the address cannot be written: {error}");
        }
        for asked in std::mem::take(&mut self.held) {
            if links.is_joiner(asked.conn) {
                self.asked(asked, daemon, links, context);
            }
        }
    }

    /// If the published address is loopback, looks for a better one.
    pub fn look(&mut self, daemon: &Daemon, context: &mut Context) {
        let Some(port) = self.reach.learns else {
            return;
        };
        if context.now.since(self.looked) < LOOK && self.looked != Time(0) {
            return;
        }
        self.looked = context.now;
        let mine = mine(daemon).and_then(reach::ip_of);
        if !mine.is_some_and(|ip| ip.is_loopback()) {
            return;
        }
        let ip = address::best(self.listening);
        if !ip.is_loopback() {
            tell(SocketAddr::new(ip, port), context);
        }
    }

    /// Handles the first moment with links to all other hosts.
    pub fn linked(&mut self) {
        let before = std::mem::replace(&mut self.stage, Stage::There);
        if let Stage::Linking { detached: true } = before
            && let Err(error) = detach::tell(Ok(()))
        {
            log::warn!("the command that started this daemon was not told: {error:#}");
        }
    }

    /// Handles the failure of links to `hosts` within the time limit: this daemon leaves the
    /// machine.
    pub fn not_linked(&mut self, hosts: &[HostId], links: &Links, context: &mut Context) {
        let named: Vec<String> = hosts.iter().map(HostId::to_string).collect();
        let why = format!(
            "no link to {} within {LINK_TIME:?}: {}; start the daemons there with an address that \
             leads to them from here (--listen, or --advertise ADDR)",
            named.join(", "),
            links.why_not(hosts)
        );
        log::error!("{why}");
        self.stage = Stage::Leaving(why);
        context.inbox.push_back(Input::Stop);
    }

    /// Removes the note about the machine after the machine was halted: no daemon can rejoin it.
    pub fn forget(&self) {
        self.dir.forget_machine();
    }

    /// The result of the daemon's end, with the reason from the entry if the entry failed.
    pub fn end(&self, result: Result<String, String>, links: &Links) -> Result<String, String> {
        match (&self.stage, result) {
            (Stage::Leaving(why), _) => Err(why.clone()),
            (Stage::Linking { .. }, Err(why)) => Err(match links.unreached()[..] {
                [] => why,
                ref hosts => format!("{why}: {}", links.why_not(hosts)),
            }),
            (_, result) => result,
        }
    }
}

/// The published facts of this daemon.
fn mine(daemon: &Daemon) -> Option<&HostFacts> {
    let agreement = daemon.agreement();
    let found = agreement.state().host(agreement.me());
    found.map(|host| &host.facts)
}

fn tell(addr: SocketAddr, context: &mut Context) {
    context.inbox.push_back(Input::Address(addr.to_string()));
}
