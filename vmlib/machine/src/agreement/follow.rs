//! Work of every host: it sends beats for its lease, proposes its changes, follows the committed
//! log, and serves the requests of other hosts. A host that votes gets the log from raft, any other
//! host gets it from the feed of a voter.

use super::{Agreement, AgreementOutput};
use crate::{Agreed, Time, feed::Portion};
use std::collections::VecDeque;
use vm_wire::{
    Frame, HostId, Message,
    agreed::{Change, Entry, SnapshotAt},
    limits,
    peer::{Alive, Feed, FeedAsk, Grant, Propose, Snapshot},
};

impl Agreement {
    /// Sends a beat if it is due: to the leader, or, if the lease is in doubt, to all voters.
    pub(super) fn beat(&mut self, now: Time, out: &mut VecDeque<AgreementOutput>) {
        if now < self.lease.next_beat() {
            return;
        }
        let number = self.lease.beat(now);
        let applied = self.state.index();
        if let Some(leading) = &mut self.leading {
            leading.given.alive(now, self.me, number, applied);
            return;
        }
        let alive = Alive { number, applied }.frame();
        let leader = self.leader();
        let mut to = vec![leader];
        if leader == HostId::NONE || self.lease.is_in_doubt(now) {
            to.extend(self.voters().into_iter().filter(|host| *host != leader));
        }
        to.retain(|host| *host != self.me && *host != HostId::NONE);
        for host in to {
            self.links.send(now, &self.state, host, alive.clone(), out);
        }
    }

    pub(super) fn on_alive(
        &mut self,
        now: Time,
        from: HostId,
        alive: &Alive,
        out: &mut VecDeque<AgreementOutput>,
    ) {
        if let Some(leading) = &mut self.leading {
            if self.state.is_present(from) {
                leading.given.alive(now, from, alive.number, alive.applied);
            }
            return;
        }
        let grant = Grant {
            number: 0,
            leader: self.leader(),
            voters: self.voters(),
        };
        self.links.send(now, &self.state, from, grant.frame(), out);
    }

    pub(super) fn on_grant(
        &mut self,
        now: Time,
        from: HostId,
        grant: Grant,
        out: &mut VecDeque<AgreementOutput>,
    ) {
        if grant.number > 0 {
            let until = self.lease.granted(now, grant.number);
            out.extend(until.map(|until| AgreementOutput::Lease(Some(until))));
            if !grant.voters.contains(&self.me)
                && let Some(consensus) = &mut self.consensus
            {
                consensus.exclude();
            }
            self.hint = (from, grant.voters);
        } else if self.lease.is_in_doubt(now) && !grant.voters.is_empty() {
            self.hint = (grant.leader, grant.voters);
        }
    }

    /// Sends an entry to the leader. The frame may be lost.
    pub(super) fn submit(&mut self, now: Time, entry: Entry, out: &mut VecDeque<AgreementOutput>) {
        if self.leading.is_some() {
            self.take_entry(now, &entry);
            return;
        }
        let leader = self.leader();
        let frame = Propose {
            proposer: entry.proposer,
            number: entry.number,
            changes: entry.changes,
        }
        .frame();
        if leader != HostId::NONE && leader != self.me {
            self.links
                .send(now, &self.state, leader, frame.clone(), out);
        }
        if !self.links.is_up(leader) {
            // A voter with a link forwards the entry.
            let others = self.voters().into_iter().filter(|host| *host != self.me);
            if let Some(voter) = others.into_iter().find(|host| self.links.is_up(*host)) {
                self.links.send(now, &self.state, voter, frame, out);
            }
        }
    }

    pub(super) fn on_propose(
        &mut self,
        now: Time,
        from: HostId,
        frame: &Frame,
        propose: Propose,
        out: &mut VecDeque<AgreementOutput>,
    ) {
        if self.leading.is_none() {
            let leader = self.leader();
            if frame.header.hops == 0 && leader != from && leader != HostId::NONE {
                let mut frame = frame.clone();
                frame.header.hops = 1;
                self.links.send(now, &self.state, leader, frame, out);
            }
            return;
        }
        // Only the leader declares deaths, and only a repeatable change may have no number.
        let allowed = |change: &Change| match change {
            Change::HostDead(_) => false,
            Change::HostJoin { .. } => true,
            _ => propose.number > 0,
        };
        if propose.changes.iter().all(allowed) {
            let entry = Entry {
                proposer: propose.proposer,
                number: propose.number,
                changes: propose.changes,
            };
            self.take_entry(now, &entry);
        }
    }

    /// Whether the log comes to this host by the feed and not by raft.
    fn follows(&self) -> bool {
        let by_raft = self.consensus.as_ref();
        !by_raft.is_some_and(|raft| raft.votes() && raft.applied() >= self.state.index())
    }

    /// Requests the next entries of the log, if a request is due.
    pub(super) fn ask_feed(&mut self, now: Time, out: &mut VecDeque<AgreementOutput>) {
        if !self.follows() {
            return;
        }
        let mut voters = self.voters();
        voters.retain(|host| *host != self.me);
        if let Some(server) = self.feed_client.ask(now, self.me, &voters) {
            let after = self.state.index();
            let ask = FeedAsk { after }.frame();
            self.links.send(now, &self.state, server, ask, out);
        }
    }

    /// Sends committed entries to followers.
    pub(super) fn serve_feed(&mut self, now: Time, out: &mut VecDeque<AgreementOutput>) {
        let Some(consensus) = self.consensus.as_ref().filter(|raft| raft.votes()) else {
            return;
        };
        let applied = consensus.applied().min(self.state.index());
        let voters: Vec<_> = consensus.voters().into_iter().collect();
        let log = consensus.log();
        for (host, portion) in self.feed_server.portions(now, log, applied, &voters) {
            let frame = match portion {
                Portion::Feed(feed) => feed.frame(),
                Portion::Snapshot => {
                    let snapshot = SnapshotAt {
                        machine: self.state.machine(),
                        index: self.state.index(),
                        voters: voters.clone(),
                        state: self.state.encode().into(),
                    };
                    Snapshot { snapshot }.frame()
                }
            };
            self.links.send(now, &self.state, host, frame, out);
        }
    }

    pub(super) fn on_feed(
        &mut self,
        now: Time,
        from: HostId,
        feed: Feed,
        out: &mut VecDeque<AgreementOutput>,
    ) {
        let gap = feed.first > self.state.index() + 1;
        self.feed_client.heard(now, from, gap);
        if gap {
            return;
        }
        for (index, data) in (feed.first..).zip(&feed.entries) {
            self.apply(now, index, data, out);
        }
    }

    pub(super) fn on_snapshot(
        &mut self,
        now: Time,
        from: HostId,
        snapshot: &SnapshotAt,
        out: &mut VecDeque<AgreementOutput>,
    ) {
        self.feed_client.heard(now, from, false);
        if snapshot.machine == self.state.machine() {
            self.install(now, snapshot.index, &snapshot.state, out);
        }
    }

    /// Replaces the agreed state by a later state.
    pub(super) fn install(
        &mut self,
        now: Time,
        index: u64,
        bytes: &[u8],
        out: &mut VecDeque<AgreementOutput>,
    ) {
        if index <= self.state.index() {
            return;
        }
        match Agreed::decode(bytes) {
            Ok(later) if later.index() == index => {
                let changes = self.state.changes_to(&later);
                self.state = later;
                for change in changes {
                    self.applied(now, index, change, out);
                }
                self.review_due = true;
                self.note_applied(out);
            }
            Ok(_) => self.lose(
                "the snapshot of the agreed state has a wrong index".into(),
                out,
            ),
            Err(error) => self.lose(error.to_string(), out),
        }
    }

    /// Sends the joins and proposals that are due.
    pub(super) fn propose_due(&mut self, now: Time, out: &mut VecDeque<AgreementOutput>) {
        for entry in self.joins.due(now, self.me) {
            self.submit(now, entry, out);
        }
        // A host without a first lease may be declared dead at any moment without learning it.
        if self.lease.has_begun()
            && let Some(entry) = self.proposals.due(now)
        {
            let entry = entry.clone();
            self.submit(now, entry, out);
        }
    }

    /// Time of the next beat, proposal or join.
    pub(super) fn follow_deadline(&self) -> Time {
        let proposals = self.proposals.deadline();
        let proposals = proposals.filter(|_| self.lease.has_begun());
        let dues = [
            proposals,
            self.joins.deadline(),
            Some(self.lease.next_beat()),
        ];
        dues.into_iter()
            .flatten()
            .min()
            .unwrap_or(Time(0) + limits::BEAT)
    }
}
