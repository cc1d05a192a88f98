//! Hosts that cannot reach each other while others reach both. Neither host is lost, and messages
//! between their tasks wait.
//!
//! A daemon that could not link to a host of the machine for [`limits::LINK_DOWN`] sends a link
//! report to all other hosts ([`LinksDown`]), and another report when the link is up again. The
//! hosts that the daemon cannot reach get the report from the host of the lowest number among the
//! hosts that it can reach. Each daemon therefore knows all such pairs. The daemon shows the pairs
//! to each console that requests the configuration, and to the local consoles of applications with
//! tasks on both hosts.

use crate::{
    Output, Time,
    daemon::{
        context::{Context, Timer},
        effect::Effect,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    HostId, Tid, limits,
    peer::{LinksDown, Order},
};

/// Two hosts, the lower number first.
type Pair = (HostId, HostId);

/// The link reports of all hosts, and the pairs that consoles were notified of.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Unreachable {
    /// The hosts of the machine to which this host has lost its link, with the times.
    lost: BTreeMap<HostId, Time>,
    /// The link reports: for each host, this host included, the hosts to which it has no link.
    by: BTreeMap<HostId, BTreeSet<HostId>>,
    /// The number of the last link report of each host.
    numbers: BTreeMap<HostId, u64>,
    /// The pairs that were shown to the consoles of local applications.
    told: BTreeSet<(Tid, Pair)>,
}

fn pair(a: HostId, b: HostId) -> Pair {
    (a.min(b), a.max(b))
}

impl Unreachable {
    /// The hosts to which this host has had no link for at least [`limits::LINK_DOWN`].
    pub fn cut_off(&self, cx: &Context) -> &BTreeSet<HostId> {
        const NONE: &BTreeSet<HostId> = &BTreeSet::new();
        self.by.get(&cx.me).unwrap_or(NONE)
    }

    /// The time at which this host lost its link to a host of the machine.
    pub fn lost_since(&self, host: HostId) -> Option<Time> {
        self.lost.get(&host).copied()
    }

    /// All pairs, once each.
    pub fn pairs(&self) -> BTreeSet<Pair> {
        let of = |(host, others): (&HostId, &BTreeSet<HostId>)| {
            let host = *host;
            let others: Vec<HostId> = others.iter().copied().collect();
            others.into_iter().map(move |other| pair(host, other))
        };
        self.by.iter().flat_map(of).collect()
    }

    /// The link to a host of the machine has broken. `false` if it was broken before.
    pub fn on_link_down(&mut self, cx: &mut Context, host: HostId) -> bool {
        if self.lost.contains_key(&host) {
            return false;
        }
        self.lost.insert(host, cx.now);
        let due = cx.now + limits::LINK_DOWN;
        cx.set_timer(due, Timer::LinkDown(host));
        true
    }

    /// The link to a host that is not in the machine has broken.
    pub fn forget_link(&mut self, host: HostId) {
        self.lost.remove(&host);
    }

    /// The time limit for a lost link is over. `apps` are the applications whose consoles are on
    /// this host.
    pub fn on_due(&mut self, cx: &mut Context, host: HostId, apps: impl Iterator<Item = Tid>) {
        let is_over = |since: Time| cx.now >= since + limits::LINK_DOWN;
        if self.lost_since(host).is_some_and(is_over)
            && self.by.entry(cx.me).or_default().insert(host)
        {
            let (here, name) = (&cx.config.facts.name, cx.host_name(host));
            let time = limits::LINK_DOWN;
            let text = format!(
                "host '{here}' cannot reach host '{name}' for {time:?}: what tasks on the two send to \
                 each other waits"
            );
            cx.emit(Output::Note(text));
            self.report(cx, apps);
        }
    }

    /// The link to a host is up.
    pub fn on_link_up(&mut self, cx: &mut Context, host: HostId, apps: impl Iterator<Item = Tid>) {
        self.lost.remove(&host);
        let own = self.by.get_mut(&cx.me);
        if own.is_some_and(|own| own.remove(&host)) {
            let (here, name) = (&cx.config.facts.name, cx.host_name(host));
            let text = format!("host '{here}' reaches host '{name}' again");
            cx.emit(Output::Note(text));
            self.report(cx, apps);
        }
    }

    /// Sends the link report of this host to the other hosts.
    fn report(&mut self, cx: &mut Context, apps: impl Iterator<Item = Tid>) {
        *self.numbers.entry(cx.me).or_default() += 1;
        let down = self.own_report(cx);
        for host in cx.other_hosts() {
            if !down.hosts.contains(&host) {
                cx.send_order(host, &Order::LinksDown(down.clone()));
            }
        }
        self.tell_consoles(cx, apps);
    }

    fn own_report(&self, cx: &Context) -> LinksDown {
        let own = self.by.get(&cx.me);
        let number = self.numbers.get(&cx.me);
        LinksDown {
            of: cx.me,
            number: number.copied().unwrap_or(0),
            hosts: own.into_iter().flatten().copied().collect(),
        }
    }

    /// A host sends its link report, or another host passes one on.
    pub fn on_report(
        &mut self,
        cx: &mut Context,
        from: HostId,
        mut down: LinksDown,
        apps: impl Iterator<Item = Tid>,
    ) {
        let state = cx.agreement.state();
        let of = down.of;
        let known = self.numbers.get(&of);
        let is_new = known.is_none_or(|known| down.number > *known);
        if !is_new || of == cx.me || !state.may_be_present(of) {
            return;
        }
        down.hosts
            .retain(|it| *it != of && state.may_be_present(*it));
        down.hosts.truncate(limits::HOSTS_LIVE_MAX);
        let hosts: Vec<HostId> = state.hosts().map(|(host, _)| host).collect();
        let reaches = |it: &&HostId| **it != of && !down.hosts.contains(it);
        let passes_on = hosts.iter().find(reaches).copied();
        if from == of && passes_on == Some(cx.me) {
            for host in &down.hosts {
                cx.send_order(*host, &Order::LinksDown(down.clone()));
            }
        }
        self.numbers.insert(of, down.number);
        let hosts = down.hosts.into_iter().collect();
        self.by.insert(of, hosts);
        self.tell_consoles(cx, apps);
    }

    /// A host has joined: sends it the link report of this host.
    pub fn on_host_joined(&self, cx: &mut Context, host: HostId) {
        let down = self.own_report(cx);
        if host != cx.me && !down.hosts.is_empty() {
            cx.send_order(host, &Order::LinksDown(down));
        }
    }

    /// A host is no longer in the machine.
    pub fn on_host_gone(
        &mut self,
        cx: &mut Context,
        host: HostId,
        apps: impl Iterator<Item = Tid>,
    ) {
        self.lost.remove(&host);
        self.by.remove(&host);
        self.numbers.remove(&host);
        for others in self.by.values_mut() {
            others.remove(&host);
        }
        self.tell_consoles(cx, apps);
    }

    /// Notifies the local consoles of applications with tasks on both hosts of a pair, once, and
    /// again when the two hosts reach each other.
    pub fn tell_consoles(&mut self, cx: &mut Context, apps: impl Iterator<Item = Tid>) {
        let pairs = self.pairs();
        if pairs.is_empty() && self.told.is_empty() {
            return;
        }
        let state = cx.agreement.state();
        let mut now = BTreeSet::new();
        for app in apps {
            let hosts = state.tasks_of(app).filter_map(|tid| state.task(tid));
            let hosts: BTreeSet<HostId> = hosts.map(|task| task.host).collect();
            let of_it = |(a, b): &&Pair| hosts.contains(a) && hosts.contains(b);
            now.extend(pairs.iter().filter(of_it).map(|pair| (app, *pair)));
        }
        let before = std::mem::replace(&mut self.told, now.clone());
        for (app, (a, b)) in now.difference(&before) {
            let (a, b) = (cx.host_name(*a), cx.host_name(*b));
            let text = format!(
                "hosts '{a}' and '{b}' cannot reach each other: what tasks on the two send to each \
                 other waits until they can (see 'vm conf')"
            );
            cx.effect(Effect::TellRun(*app, text));
        }
        for (app, (a, b)) in before.difference(&now) {
            let present = |host: &HostId| cx.agreement.state().is_present(*host);
            if !pairs.contains(&(*a, *b)) && present(a) && present(b) {
                let (a, b) = (cx.host_name(*a), cx.host_name(*b));
                let text = format!("hosts '{a}' and '{b}' reach each other again");
                cx.effect(Effect::TellRun(*app, text));
            }
        }
    }
}
