//! The agreement of the hosts: the log, the leases, the voters.
//!
//! Each host has one [`Agreement`]. The agreement owns the [agreed state](crate::agreed) and
//! applies the committed entries of one log to the state. The agreement also knows until when its
//! host may act. Like every state machine of this crate it is a function of its inputs: frames of
//! other hosts, the state of links, time.
//!
//! # Parts
//!
//! - **Consensus** (`crate::consensus`, `crate::storage`): one, three or five hosts vote, by raft.
//!   Only voters run raft.
//! - **Feed** (`crate::feed`): all other hosts follow the committed log. So a host joins without a
//!   change of raft's configuration, and a machine may have many more hosts than voters.
//! - **Leases** (`crate::lease`): a host may act until its lease ends, and only a majority can
//!   renew the lease. The leader declares a host dead when its lease must have ended.
//! - **Membership** (`crate::membership`): the leader chooses the voters.
//! - **Proposals** (`crate::proposals`): changes of this daemon on their way into the log.
//!
//! # Invariants
//!
//! - The entries applied by each host are a prefix of the same sequence.
//! - `HostDead(h)` is applied nowhere before the lease of `h` has ended.
//! - A change is applied once, however often it was sent. Changes of one daemon are applied in
//!   their order.
//! - A host without a majority ends within the length of a lease ([`AgreementOutput::Lost`]). In a
//!   machine of two hosts the death of the only voter ends the machine.
//!
//! # The way of a change
//!
//! ```text
//! propose -> proposals -> (Propose) -> leader's raft -> voters' raft -> committed
//!         -> applied at the voters -> (Feed) -> applied everywhere
//! ```
//!
//! A frame in brackets may be lost. The proposer repeats its proposal until its entry is applied,
//! and the follower repeats its request for entries.

mod follow;
mod joins;
mod lead;
mod leading;
mod links;
mod output;

pub use output::AgreementOutput;

use crate::{
    Agreed, Applied, ConnId, Time,
    agreed::SnapshotError,
    consensus::Consensus,
    feed::{FeedClient, FeedServer},
    lease::OwnLease,
    proposals::Proposals,
    storage::FOUNDING,
};
use joins::Joins;
use leading::Leading;
use links::Links;
use std::collections::VecDeque;
use vm_wire::{
    CodecError, Frame, HostId, MachineId, Message, Op,
    agreed::{Change, Entry, HostFacts, SnapshotAt},
    decode, limits,
    peer::{Alive, Feed, FeedAsk, Grant, Join, Propose, Raft, Snapshot},
};

/// Configuration of the agreement.
#[derive(Debug, Clone)]
pub struct AgreementConfig {
    /// Bound on the entries that the log keeps. A longer log is compacted.
    pub log_entries_max: u64,
}

impl Default for AgreementConfig {
    fn default() -> Self {
        AgreementConfig {
            log_entries_max: limits::LOG_ENTRIES_MAX,
        }
    }
}

/// The agreement of one host, as the module describes it.
#[derive(Debug)]
pub struct Agreement {
    me: HostId,
    config: AgreementConfig,
    state: Agreed,
    /// Raft of this host, from its first raft message on.
    consensus: Option<Consensus>,
    /// State of this host as leader, while it leads.
    leading: Option<Leading>,
    lease: OwnLease,
    /// Leader and voters as other hosts report them, for a host that does not vote.
    hint: (HostId, Vec<HostId>),
    /// Leader that the last proposals were sent to.
    proposed_to: HostId,
    proposals: Proposals,
    joins: Joins,
    feed_client: FeedClient,
    feed_server: FeedServer,
    links: Links,
    next_tick: Time,
    /// Time of the last call. A long gap shows that the daemon's loop was stalled.
    last_call: Time,
    /// The hosts are to be reviewed: time has passed, or hosts or voters have changed.
    review_due: bool,
    /// The part of this host in the machine has ended.
    lost: bool,
}

impl Agreement {
    /// The agreement of a machine's founder: host 1, the only voter. [`Agreement::tick`] is due at
    /// once.
    pub fn found(
        now: Time,
        config: AgreementConfig,
        machine: MachineId,
        facts: HostFacts,
        nonce: u64,
    ) -> Self {
        let state = Agreed::founded(machine, FOUNDING.0, facts, nonce);
        let consensus = Consensus::founded(state.encode());
        let voters = vec![HostId::FOUNDER];
        let mut agreement = Agreement::new(now, config, HostId::FOUNDER, state, voters);
        agreement.consensus = Some(consensus);
        agreement
    }

    /// The agreement of a host that joined as `me` ([`vm_wire::peer::Joined`]). [`Agreement::tick`]
    /// is due at once.
    ///
    /// # Errors
    /// [`SnapshotError`] when the snapshot cannot be decoded.
    pub fn joined(
        now: Time,
        config: AgreementConfig,
        me: HostId,
        snapshot: &SnapshotAt,
    ) -> Result<Self, SnapshotError> {
        let state = Agreed::decode(&snapshot.state)?;
        let voters = snapshot.voters.clone();
        Ok(Agreement::new(now, config, me, state, voters))
    }

    fn new(
        now: Time,
        config: AgreementConfig,
        me: HostId,
        state: Agreed,
        voters: Vec<HostId>,
    ) -> Self {
        Agreement {
            me,
            config,
            state,
            consensus: None,
            leading: None,
            lease: OwnLease::new(now),
            hint: (HostId::NONE, voters),
            proposed_to: HostId::NONE,
            proposals: Proposals::new(me),
            joins: Joins::default(),
            feed_client: FeedClient::new(now),
            feed_server: FeedServer::default(),
            links: Links::default(),
            next_tick: now,
            last_call: now,
            review_due: true,
            lost: false,
        }
    }

    /// Takes a Raft, Propose, FeedAsk, Feed, Snapshot, Alive or Grant frame of another host.
    ///
    /// # Errors
    /// [`CodecError`] when the frame cannot be decoded. The frame had no effect.
    pub fn handle(
        &mut self,
        now: Time,
        from: HostId,
        frame: &Frame,
        out: &mut VecDeque<AgreementOutput>,
    ) -> Result<(), CodecError> {
        // Frames of a dead or departed host are dropped.
        let departed = self.state.host(from).is_some_and(|host| !host.is_present());
        if departed || !self.enter(now) {
            return Ok(());
        }
        match frame.header.op {
            Op::Raft => self.on_raft(from, Raft::read(frame)?)?,
            Op::Alive => self.on_alive(now, from, &Alive::read(frame)?, out),
            Op::Grant => self.on_grant(now, from, Grant::read(frame)?, out),
            Op::Propose => self.on_propose(now, from, frame, Propose::read(frame)?, out),
            Op::FeedAsk => self
                .feed_server
                .asked(now, from, FeedAsk::read(frame)?.after),
            Op::Feed => self.on_feed(now, from, Feed::read(frame)?, out),
            Op::Snapshot => self.on_snapshot(now, from, &Snapshot::read(frame)?.snapshot, out),
            other => debug_assert!(false, "{other:?} is no matter of the agreement"),
        }
        self.settle(now, out);
        Ok(())
    }

    /// Takes the request of a daemon to join. A repeated request is harmless.
    pub fn join(
        &mut self,
        now: Time,
        joiner: ConnId,
        join: Join,
        out: &mut VecDeque<AgreementOutput>,
    ) {
        if !self.enter(now) {
            return;
        }
        let answer = self.joins.ask(now, joiner, join);
        out.extend(answer.map(|frame| AgreementOutput::Joiner(joiner, frame)));
        self.answer_joins(out);
        self.settle(now, out);
    }

    /// Forgets a joiner whose connection has ended.
    pub fn joiner_gone(&mut self, joiner: ConnId) {
        self.joins.gone(joiner);
    }

    /// Proposes `change` until it was applied. Changes are applied in the order of the calls, and
    /// [`AgreementOutput::Applied`] reports the effect. No frame is sent before the next
    /// [`Agreement::tick`], which may be due at once: so the changes of one step form one entry.
    pub fn propose(&mut self, change: Change) {
        self.proposals.push(change);
    }

    /// Handles a new link to `host`.
    pub fn link_up(&mut self, now: Time, host: HostId, out: &mut VecDeque<AgreementOutput>) {
        if !self.enter(now) {
            return;
        }
        self.links.up(host);
        if host == self.leader() || self.lease.is_in_doubt(now) {
            self.lease.hurry(now);
            self.proposals.try_again(now);
            self.joins.try_again(now);
        }
        self.feed_client.linked(now, host);
        self.ask_feed(now, out);
        self.settle(now, out);
    }

    /// Handles the loss of the link to `host`, or a failed attempt to make it.
    pub fn link_down(&mut self, host: HostId) {
        self.links.down(host);
        if let Some(consensus) = &mut self.consensus {
            consensus.unreachable(host);
        }
    }

    /// Does the work that is due at [`Agreement::deadline`].
    pub fn tick(&mut self, now: Time, out: &mut VecDeque<AgreementOutput>) {
        if !self.enter(now) {
            return;
        }
        if self.lease.is_lost(now) {
            let text = "no majority of the machine's voters can be reached";
            self.lose(text.to_owned(), out);
            return;
        }
        if self.next_tick <= now {
            // After a stall one tick is enough: frames of other hosts may have been held up as
            // well.
            self.next_tick = self.next_tick + limits::TICK;
            if self.next_tick <= now {
                self.next_tick = now + limits::TICK;
            }
            if let Some(consensus) = &mut self.consensus {
                consensus.tick();
            }
            self.review_due = true;
            self.ask_feed(now, out);
        }
        self.settle(now, out);
    }

    /// Time of the next call of [`Agreement::tick`]; at most one raft tick ahead.
    pub fn deadline(&self) -> Time {
        if self.lost {
            return Time(u64::MAX);
        }
        let settled = self
            .consensus
            .as_ref()
            .is_some_and(Consensus::leads_settled);
        let leading = self.leading.as_ref().filter(|_| settled);
        let round = leading.and_then(|leading| leading.given.round_due());
        let deadline = self.next_tick.min(self.follow_deadline());
        round.map_or(deadline, |round| deadline.min(round))
    }

    /// Number of this host.
    pub fn me(&self) -> HostId {
        self.me
    }

    /// The agreed state at the last index that was applied here.
    pub fn state(&self) -> &Agreed {
        &self.state
    }

    /// The last known leader, or [`HostId::NONE`].
    pub fn leader(&self) -> HostId {
        match self.consensus.as_ref().filter(|raft| raft.votes()) {
            Some(consensus) => consensus.leader(),
            None => self.hint.0,
        }
    }

    /// The last known voters, by number.
    pub fn voters(&self) -> Vec<HostId> {
        match self.consensus.as_ref().filter(|raft| raft.votes()) {
            Some(consensus) => consensus.voters().into_iter().collect(),
            None => self.hint.1.clone(),
        }
    }

    /// The voters as people are shown them, by number. While the voters are being changed, the earlier
    /// ones: a majority of them is needed until the change is over.
    pub fn settled_voters(&self) -> Vec<HostId> {
        match self.consensus.as_ref().filter(|raft| raft.votes()) {
            Some(consensus) => consensus.settled_voters().into_iter().collect(),
            None => self.hint.1.clone(),
        }
    }

    /// Whether the voters are being changed. Until the change is over, a majority of the earlier
    /// voters is needed too.
    pub fn voters_change(&self) -> bool {
        let consensus = self.consensus.as_ref().filter(|raft| raft.votes());
        consensus.is_some_and(|consensus| consensus.is_joint())
    }

    /// Whether this host has, or had, a lease, or needs none.
    pub fn lease_has_begun(&self) -> bool {
        self.lease.has_begun()
    }

    /// Whether a planned leave may be completed (`HostGone` proposed): the leave has begun, and
    /// this host neither leads nor votes any more.
    pub fn may_go(&self) -> bool {
        let votes = self.consensus.as_ref().is_some_and(Consensus::votes);
        let leader = self.leader();
        let led = leader != HostId::NONE && leader != self.me;
        self.state.is_present(self.me) && !self.state.is_living(self.me) && !votes && led
    }

    /// Whether changes of this daemon wait to be applied.
    pub fn is_pending(&self) -> bool {
        self.proposals.is_pending()
    }

    /// Whether every host has reported that it applied the entry at `index`, for a leader that is
    /// about to end with the machine. True for all other hosts.
    pub fn all_have(&self, index: u64) -> bool {
        let Some(leading) = &self.leading else {
            return true;
        };
        let has = |host| host == self.me || leading.given.applied(host) >= index;
        self.state.hosts().all(|(host, _)| has(host))
    }

    /// Begins a step; `false` if the part of this host has ended.
    fn enter(&mut self, now: Time) -> bool {
        let gap = now.since(self.last_call);
        self.last_call = now;
        if gap > limits::BEAT
            && let Some(leading) = &mut self.leading
        {
            leading.stalled(now, gap);
        }
        !self.lost
    }

    /// Does all work that follows from an input.
    fn settle(&mut self, now: Time, out: &mut VecDeque<AgreementOutput>) {
        loop {
            self.take_turn(now, out);
            self.review_lease(now, out);
            self.notice_role(now);
            self.beat(now, out);
            self.begin_round(now);
            if std::mem::take(&mut self.review_due) {
                self.review(now);
            }
            self.propose_due(now, out);
            if self.lost || !self.consensus.as_ref().is_some_and(Consensus::has_turn) {
                break;
            }
        }
        self.compact();
        self.serve_feed(now, out);
    }

    /// Whether this host is the only host and the only voter, so that no host can declare it dead.
    fn is_alone(&self) -> bool {
        let sole = |consensus: &Consensus| {
            let voters = consensus.voters();
            let settled = !consensus.is_joint() && !consensus.has_pending_change();
            consensus.leads_settled() && settled && voters.iter().eq([&self.me])
        };
        self.state.hosts().all(|(host, _)| host == self.me)
            && self.consensus.as_ref().is_some_and(sole)
    }

    /// Begins or ends the need for a lease. The need begins as soon as another host is in the log,
    /// before that host or any other host learns it.
    fn review_lease(&mut self, now: Time, out: &mut VecDeque<AgreementOutput>) {
        if !self.is_alone() {
            let until = self.lease.close(now);
            out.extend(until.map(|until| AgreementOutput::Lease(Some(until))));
        } else if self.lease.open() {
            out.push_back(AgreementOutput::Lease(None));
        }
    }

    /// Carries out the outputs of raft.
    fn take_turn(&mut self, now: Time, out: &mut VecDeque<AgreementOutput>) {
        let Some(consensus) = &mut self.consensus else {
            return;
        };
        let turn = consensus.turn();
        for (host, raft) in turn.messages {
            self.links.send(now, &self.state, host, raft.frame(), out);
        }
        if let Some((index, state)) = turn.snapshot {
            self.install(now, index, &state, out);
        }
        for (index, data) in turn.committed {
            self.apply(now, index, &data, out);
        }
        for round in turn.confirmed {
            self.grant(now, round, out);
        }
    }

    fn on_raft(&mut self, from: HostId, raft: Raft) -> Result<(), CodecError> {
        raft.check()?;
        let consensus = self
            .consensus
            .get_or_insert_with(|| Consensus::asked(self.me));
        consensus.step(from, raft);
        Ok(())
    }

    /// Applies a committed entry, unless its index was applied before.
    fn apply(&mut self, now: Time, index: u64, data: &[u8], out: &mut VecDeque<AgreementOutput>) {
        if index <= self.state.index() || self.lost {
            return;
        }
        // An entry without data is raft's own, perhaps a new configuration. Data that cannot be
        // decoded comes from another version. All hosts pass over such entries alike.
        let entry = (!data.is_empty()).then(|| decode::<Entry>(data).ok());
        let Some(entry) = entry.flatten() else {
            self.review_due = true;
            self.state.advance(index);
            return;
        };
        for applied in self.state.apply(index, &entry) {
            self.applied(now, index, applied, out);
        }
        self.note_applied(out);
    }

    /// Updates this host's records for an applied change, and reports the change.
    fn applied(
        &mut self,
        now: Time,
        index: u64,
        applied: Applied,
        out: &mut VecDeque<AgreementOutput>,
    ) {
        match &applied {
            Applied::HostJoined { host, .. } => {
                self.review_due = true;
                self.review_lease(now, out);
                if let Some(leading) = &mut self.leading {
                    leading.given.joined(now, *host);
                }
            }
            Applied::HostDraining(_) | Applied::HostResumed(_) | Applied::HostLeaving(_) => {
                self.review_due = true;
            }
            Applied::HostGone(host) | Applied::HostDead(host) => {
                self.review_due = true;
                if let Some(leading) = &mut self.leading {
                    leading.forget(*host);
                }
                self.feed_server.forget(*host);
                self.links.forget(*host);
            }
            // An early beat tells the leader sooner that this host has applied the halt.
            Applied::Halted => self.lease.hurry(now),
            Applied::Void(Change::HostJoin { nonce, .. }, why) => {
                let answers = self.joins.void(&self.state, *nonce, *why);
                let joiner = |(conn, frame)| AgreementOutput::Joiner(conn, frame);
                out.extend(answers.into_iter().map(joiner));
            }
            _ => {}
        }
        let dead = applied == Applied::HostDead(self.me);
        out.push_back(AgreementOutput::Applied(index, applied));
        if dead {
            self.lose("this host was declared dead".to_owned(), out);
        }
    }

    /// Notes which proposals and joins of this daemon have been applied.
    fn note_applied(&mut self, out: &mut VecDeque<AgreementOutput>) {
        let entries = self.state.host(self.me).map_or(0, |host| host.entries);
        self.proposals.applied(entries);
        self.answer_joins(out);
    }

    fn answer_joins(&mut self, out: &mut VecDeque<AgreementOutput>) {
        let voters = self.voters();
        let answers = self.joins.answers(&self.state, &voters);
        out.extend(
            answers
                .into_iter()
                .map(|(conn, frame)| AgreementOutput::Joiner(conn, frame)),
        );
    }

    /// Notes a won or lost election.
    fn notice_role(&mut self, now: Time) {
        let leads = self.consensus.as_ref().filter(|raft| raft.leads());
        let term = leads.map(Consensus::term);
        if term != self.leading.as_ref().map(|leading| leading.term) {
            self.leading = term.map(|term| Leading::elected(now, term));
            self.review_due = true;
            self.lease.hurry(now);
        }
        let leader = self.leader();
        if leader != self.proposed_to {
            self.proposed_to = leader;
            if leader != HostId::NONE {
                // The hint is for the time after this host has lost its vote, which may come before
                // the first grant of the new leader.
                self.hint = (leader, self.voters());
            }
            self.proposals.try_again(now);
            self.joins.try_again(now);
        }
    }

    /// Compacts the log if it exceeds its bound.
    fn compact(&mut self) {
        let Some(consensus) = &mut self.consensus else {
            return;
        };
        let applied = consensus.applied();
        let (entries_max, bytes_max) = (self.config.log_entries_max, limits::LOG_BYTES_MAX);
        // While raft is behind the feed there is no agreed state for raft's last entry.
        if applied == self.state.index() && consensus.log().wants_snapshot(entries_max, bytes_max) {
            let state = self.state.encode();
            consensus
                .log_mut()
                .compact(applied, state, entries_max, bytes_max);
        }
    }

    /// Ends the part of this host in the machine.
    fn lose(&mut self, why: String, out: &mut VecDeque<AgreementOutput>) {
        if !self.lost {
            self.lost = true;
            out.push_back(AgreementOutput::Lost(why));
        }
    }
}
