//! How this daemon gets into its machine, and others by way of it: when it is there, at which address
//! others are told that it is, and whom it does not let in.
//!
//! A daemon that has joined is there once it has links to the other hosts. The command that started it
//! in the background ends then, or with the reason why it has none; such a daemon leaves again.

use crate::{
    context::Context,
    net::{
        address, interfaces,
        links::{Asked, Links},
        reach::{self, Asker, Reach, Verdict},
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

/// How often the interfaces are looked at, while there is no address but loopback to tell.
const LOOK: Duration = Duration::from_secs(1);

/// How far this daemon is.
#[derive(Debug)]
enum Stage {
    /// It makes links; perhaps a command waits for them.
    Linking {
        /// The command waits.
        detached: bool,
    },
    /// It has them.
    There,
    /// It has none to some hosts, and leaves because of that.
    Leaving(String),
}

/// See the module.
#[derive(Debug)]
pub struct Arrival {
    reach: Reach,
    /// Where it listens.
    listening: SocketAddr,
    /// The daemon's folder, where its address is written to.
    dir: Handle,
    stage: Stage,
    /// Joins that wait until others are told another address of this daemon.
    held: Vec<Asked>,
    looked: Time,
}

impl Arrival {
    /// The daemon has just started.
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

    /// A daemon wants to join.
    pub fn asked(
        &mut self,
        asked: Asked,
        daemon: &Daemon,
        links: &mut Links,
        context: &mut Context,
    ) {
        // What cannot be read the state machine refuses.
        let verdict = Join::read(&asked.frame).map_or(Verdict::Ask, |join| {
            let asker = Asker {
                from: asked.from,
                reached: asked.reached,
                facts: &join.facts,
            };
            let agreement = daemon.agreement();
            let hosts = agreement.state().hosts();
            let hosts = hosts.map(|(host, found)| (host, &found.facts));
            let own = interfaces::own();
            self.reach.judge(asker, &own, agreement.me(), hosts)
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

    /// Others are told that address of this daemon from now on.
    pub fn told(&mut self, addr: &str, daemon: &Daemon, links: &mut Links, context: &mut Context) {
        let (dir, addr) = (self.dir.clone(), addr.to_owned());
        // A disk may take its time.
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

    /// Looks for a better address than loopback, if that is what others are told.
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

    /// There are links to the other hosts.
    pub fn linked(&mut self) {
        let before = std::mem::replace(&mut self.stage, Stage::There);
        if let Stage::Linking { detached: true } = before
            && let Err(error) = detach::tell(Ok(()))
        {
            log::warn!("the command that started this daemon was not told: {error:#}");
        }
    }

    /// To these there is none, though there was time: this daemon leaves again.
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

    /// The machine is no more: nobody can go back to it.
    pub fn forget(&self) {
        self.dir.forget_machine();
    }

    /// How the daemon ends, with what is known of why.
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

/// What others are told of this daemon.
fn mine(daemon: &Daemon) -> Option<&HostFacts> {
    let agreement = daemon.agreement();
    let found = agreement.state().host(agreement.me());
    found.map(|host| &host.facts)
}

fn tell(addr: SocketAddr, context: &mut Context) {
    context.inbox.push_back(Input::Address(addr.to_string()));
}
