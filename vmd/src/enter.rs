//! How a daemon becomes part of a machine: it founds a new machine, or joins the machine of another
//! daemon.

use crate::{
    clock,
    image::store::StoreLocation,
    net::{
        address,
        join::{JOIN_TIME, Joiner},
        secure::Mode,
    },
    start::{
        args::{Args, OnTerm},
        detach, last,
        secret::{self, Secret},
    },
};
use anyhow::Context as _;
use std::{
    env,
    net::{IpAddr, SocketAddr},
    path::Path,
    thread,
    time::Duration,
};
use vm_machine::{Daemon, DaemonConfig, Outbox};
use vm_wire::{HostId, MachineId, agreed::HostFacts, limits::LINK_TIME, seal::KEY};

/// The facts of a daemon that is not part of a machine yet.
pub struct Entry<'a> {
    /// The command line.
    pub args: &'a Args,
    /// The daemon's folder.
    pub dir: &'a Path,
    /// The host's name.
    pub name: &'a str,
    /// The machine's secret.
    pub secret: &'a Secret,
    /// Whether links are encrypted.
    pub mode: Mode,
    /// The listener's address for other daemons.
    pub listening: SocketAddr,
    /// The working folder of this host, if it has one.
    pub work_dir: Option<&'a String>,
    /// The location of the checkpoint store.
    pub store: &'a StoreLocation,
    /// A random number by which the machine tells apart two daemons of the same name.
    pub nonce: u64,
}

/// A daemon that is part of a machine.
pub struct Entered {
    /// The state machine.
    pub daemon: Daemon,
    /// The first outputs of the state machine.
    pub outbox: Outbox,
    /// The machine.
    pub machine: MachineId,
    /// This host's number in it.
    pub host: HostId,
    /// The facts that the machine knows of this host.
    pub facts: HostFacts,
}

impl Entry<'_> {
    /// Joins the machine that the command line names; without one, founds a machine.
    ///
    /// # Errors
    /// The reason why the daemon can neither join nor found.
    pub fn enter(&self) -> anyhow::Result<Entered> {
        match &self.args.join {
            None => self.found(),
            Some(target) => self.join(target),
        }
    }

    fn found(&self) -> anyhow::Result<Entered> {
        let machine = MachineId::from_bits(secret::random_u64() as u32);
        let facts = self.facts(None)?;
        last::forget(self.dir);
        let mut outbox = Outbox::new();
        let daemon = Daemon::found(clock::now(), machine, self.config(&facts), &mut outbox);
        log::info!(
            "{} founds machine {machine}; join it with --join {}",
            self.name,
            facts.addr
        );
        Ok(Entered {
            daemon,
            outbox,
            machine,
            host: HostId::FOUNDER,
            facts,
        })
    }

    fn join(&self, target: &str) -> anyhow::Result<Entered> {
        let joiner = Joiner {
            target,
            listening: self.listening,
            secret: self.secret,
            mode: self.mode,
            nonce: self.nonce,
        };
        let trying = format!("joining the machine of {target}, for up to {JOIN_TIME:?}");
        log::info!("{trying}");
        if self.args.detached {
            detach::note(&trying);
        }
        let (joined, facts) = joiner.join(|seen| self.facts(Some(seen)))?;
        let (machine, host) = (joined.snapshot.machine, joined.host);
        last::note(self.dir, machine, target)?;
        let mut outbox = Outbox::new();
        let daemon = Daemon::joined(clock::now(), self.config(&facts), &joined, &mut outbox)
            .context("the machine's state cannot be read")?;
        let (name, addr) = (self.name, &facts.addr);
        log::info!("{name} ({addr}) is {host} of machine {machine}");
        Ok(Entered {
            daemon,
            outbox,
            machine,
            host,
            facts,
        })
    }

    /// The facts of this host for the machine. `seen` is the address at which the other daemon has
    /// seen this host.
    fn facts(&self, seen: Option<IpAddr>) -> anyhow::Result<HostFacts> {
        // A loopback address leads each daemon to its own computer.
        let seen = seen.filter(|seen| !seen.is_loopback());
        let seen = || seen.unwrap_or_else(|| address::best(self.listening));
        let args = self.args;
        let addr = address::advertised(args.advertise.as_deref(), self.listening, seen)?;
        Ok(HostFacts {
            name: self.name.to_owned(),
            addr: addr.to_string(),
            cpus: thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            tasks_max: args.max_tasks,
            arch: env::consts::ARCH.to_owned(),
            store_local: args.store_local,
        })
    }

    fn config(&self, facts: &HostFacts) -> DaemonConfig {
        let args = self.args;
        let mut direct_seed = [0; KEY];
        secret::fill_random(&mut direct_seed);
        DaemonConfig {
            seed: secret::random_u64(),
            direct_seed,
            sealed: self.mode == Mode::Encrypted,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            drain_at_stop: match args.on_term {
                OnTerm::Leave => None,
                OnTerm::Drain | OnTerm::Suspend => Some(Duration::from_secs(args.grace.into())),
            },
            suspend_at_stop: args.on_term == OnTerm::Suspend,
            suspended_for_ms: args.suspended_for.unwrap_or(0) * 1_000,
            clock_ms: clock::origin_ms(),
            work_dir: self.work_dir.cloned(),
            store: self.store.root.to_string_lossy().into_owned(),
            link_time: Some(LINK_TIME),
            ..DaemonConfig::new(facts.clone(), self.nonce)
        }
    }
}
