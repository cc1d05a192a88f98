//! Hosts that cannot reach each other while others reach both: nobody is lost, and what their tasks send
//! to each other waits.
//!
//! A daemon that could not link to a host of the machine for [`limits::LINK_DOWN`] says so to all others
//! ([`LinksDown`]), and again when it can. Those that it cannot link to hear it from the host of the lowest
//! number of the others. So each daemon knows all such pairs: the console asks any one
//! of them, and the console of an application with tasks on both hosts is told by its own.

use super::{Daemon, context::Timer};
use crate::Output;
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    HostId, Tid, limits,
    peer::{LinksDown, Order},
};

/// What is known of such pairs.
#[derive(Debug, Default)]
pub(super) struct Unreachable {
    /// What each host has said last; what this one would say.
    by: BTreeMap<HostId, BTreeSet<HostId>>,
    /// Under which number.
    numbers: BTreeMap<HostId, u64>,
    /// The pairs of which the consoles of applications here were told.
    told: BTreeSet<(Tid, (HostId, HostId))>,
}

fn pair(a: HostId, b: HostId) -> (HostId, HostId) {
    (a.min(b), a.max(b))
}

impl Unreachable {
    /// The hosts to which `host` has no link, as it says itself.
    pub fn from(&self, host: HostId) -> &BTreeSet<HostId> {
        const NONE: &BTreeSet<HostId> = &BTreeSet::new();
        self.by.get(&host).unwrap_or(NONE)
    }

    /// All pairs, once each.
    pub fn pairs(&self) -> BTreeSet<(HostId, HostId)> {
        let of = |(host, others): (&HostId, &BTreeSet<HostId>)| {
            let host = *host;
            let others: Vec<HostId> = others.iter().copied().collect();
            others.into_iter().map(move |other| pair(host, other))
        };
        self.by.iter().flat_map(of).collect()
    }
}

impl Daemon {
    /// Why nothing is asked of a host to which this one has no link.
    pub(super) fn cannot_reach(&self, host: HostId) -> String {
        let (here, name) = (&self.cx.config.facts.name, self.cx.host_name(host));
        format!("host '{here}' cannot reach host '{name}' (see 'vm conf')")
    }

    /// The link to a host has broken: perhaps it cannot be made again.
    pub(super) fn await_link_again(&mut self, host: HostId) {
        let due = self.cx.now + limits::LINK_DOWN;
        self.cx.set_timer(due, Timer::LinkDown(host));
    }

    /// It had time enough.
    pub(super) fn on_link_down_due(&mut self, host: HostId) {
        let since = self.links_lost.get(&host);
        if since.is_some_and(|since| self.cx.now >= *since + limits::LINK_DOWN)
            && self
                .unreachable
                .by
                .entry(self.cx.me)
                .or_default()
                .insert(host)
        {
            let (here, name) = (&self.cx.config.facts.name, self.cx.host_name(host));
            let time = limits::LINK_DOWN;
            let text = format!(
                "host '{here}' cannot reach host '{name}' for {time:?}: what tasks on the two send to \
                 each other waits"
            );
            self.cx.emit(Output::Note(text));
            self.say_links_down();
        }
    }

    /// There is a link to a host.
    pub(super) fn on_link_again(&mut self, host: HostId) {
        let own = self.unreachable.by.get_mut(&self.cx.me);
        if own.is_some_and(|own| own.remove(&host)) {
            let (here, name) = (&self.cx.config.facts.name, self.cx.host_name(host));
            let text = format!("host '{here}' reaches host '{name}' again");
            self.cx.emit(Output::Note(text));
            self.say_links_down();
        }
    }

    fn say_links_down(&mut self) {
        *self.unreachable.numbers.entry(self.cx.me).or_default() += 1;
        let down = self.links_down();
        for host in self.cx.other_hosts() {
            if !down.hosts.contains(&host) {
                self.cx.send_order(host, &Order::LinksDown(down.clone()));
            }
        }
        self.tell_runs_of_links();
    }

    /// What this host says.
    fn links_down(&self) -> LinksDown {
        let own = self.unreachable.by.get(&self.cx.me);
        let number = self.unreachable.numbers.get(&self.cx.me);
        LinksDown {
            of: self.cx.me,
            number: number.copied().unwrap_or(0),
            hosts: own.into_iter().flatten().copied().collect(),
        }
    }

    /// A host says which ones it cannot link to, or another one passes that on.
    pub(super) fn on_links_down(&mut self, from: HostId, mut down: LinksDown) {
        let state = self.cx.agreement.state();
        let of = down.of;
        let known = self.unreachable.numbers.get(&of);
        let is_new = known.is_none_or(|known| down.number > *known);
        if !is_new || of == self.cx.me || !state.may_be_present(of) {
            return;
        }
        down.hosts
            .retain(|it| *it != of && state.may_be_present(*it));
        down.hosts.truncate(limits::HOSTS_LIVE_MAX);
        let hosts: Vec<HostId> = state.hosts().map(|(host, _)| host).collect();
        let reaches = |it: &&HostId| **it != of && !down.hosts.contains(it);
        let passes_on = hosts.iter().find(reaches).copied();
        if from == of && passes_on == Some(self.cx.me) {
            for host in &down.hosts {
                self.cx.send_order(*host, &Order::LinksDown(down.clone()));
            }
        }
        self.unreachable.numbers.insert(of, down.number);
        let hosts = down.hosts.into_iter().collect();
        self.unreachable.by.insert(of, hosts);
        self.tell_runs_of_links();
    }

    /// A host has joined: it knows nothing of that.
    pub(super) fn tell_links_down(&mut self, host: HostId) {
        let down = self.links_down();
        if host != self.cx.me && !down.hosts.is_empty() {
            self.cx.send_order(host, &Order::LinksDown(down));
        }
    }

    /// A host is no longer in the machine.
    pub(super) fn forget_links_of(&mut self, host: HostId) {
        self.unreachable.by.remove(&host);
        self.unreachable.numbers.remove(&host);
        for others in self.unreachable.by.values_mut() {
            others.remove(&host);
        }
        self.tell_runs_of_links();
    }

    /// The consoles here of applications with tasks on both hosts of a pair are told, once, and again when
    /// these reach each other.
    pub(super) fn tell_runs_of_links(&mut self) {
        let pairs = self.unreachable.pairs();
        if pairs.is_empty() && self.unreachable.told.is_empty() {
            return;
        }
        let state = self.cx.agreement.state();
        let mut now = BTreeSet::new();
        for app in self.consoles.applications() {
            let hosts = state.tasks_of(app).filter_map(|tid| state.task(tid));
            let hosts: BTreeSet<HostId> = hosts.map(|task| task.host).collect();
            let of_it = |(a, b): &&(HostId, HostId)| hosts.contains(a) && hosts.contains(b);
            now.extend(pairs.iter().filter(of_it).map(|pair| (app, *pair)));
        }
        let before = std::mem::replace(&mut self.unreachable.told, now.clone());
        for (app, (a, b)) in now.difference(&before) {
            let (a, b) = (self.cx.host_name(*a), self.cx.host_name(*b));
            let text = format!(
                "hosts '{a}' and '{b}' cannot reach each other: what tasks on the two send to each \
                 other waits until they can (see 'vm conf')"
            );
            self.consoles.tell_run(&mut self.cx, *app, &text);
        }
        for (app, (a, b)) in before.difference(&now) {
            let present = |host: &HostId| self.cx.agreement.state().is_present(*host);
            if !pairs.contains(&(*a, *b)) && present(a) && present(b) {
                let (a, b) = (self.cx.host_name(*a), self.cx.host_name(*b));
                let text = format!("hosts '{a}' and '{b}' reach each other again");
                self.consoles.tell_run(&mut self.cx, *app, &text);
            }
        }
    }
}
