//! Raft of one host: the `RawNode` of the `raft` crate, driven without threads, clocks or random
//! numbers.
//!
//! A host gets its raft with its first raft message, and keeps the raft until its end, so that it
//! never forgets a vote. After the leader has reported that the host does not vote any more
//! ([`Consensus::exclude`]), the host calls no elections until a leader sends it entries again.
//!
//! Differences from the usual way of the crate, and their reasons:
//!
//! - Election timeouts are not random. Before each tick a host sets its timeout by its rank among
//!   the voters, so that the timeouts lie apart and a run can be repeated exactly. Their order
//!   changes with the term: clocks and links may cancel the difference of two ranks in one term, so
//!   that the candidates split the votes, but not in all later terms.
//! - A request for a vote is repeated, like everything that a broken link may lose. The first
//!   request often goes to a host without a link. The crate waits for the next election, and a
//!   lease has room for only two elections.
//! - A candidate waits for less time than a follower before it calls the next election. A candidate
//!   knows that no host leads, so only one of the candidates that split the votes can win.
//! - A proposal of this code leaves a joint configuration. The automatic proposal of the crate can
//!   get lost when the leader changes at the wrong moment.
//! - A snapshot is reported as received as soon as it is sent. If the snapshot is lost, the next
//!   probe shows the loss, and the leader sends the snapshot again.
//! - Commits are not broadcast with each entry but once per turn, by a heartbeat.
//! - The crate iterates its tables of hosts in an order that differs between runs. So the messages
//!   of a turn are sorted by receiver, and the voters of a configuration by number.
//! - Messages are encoded as structs of this code (`messages`). A message is dropped if it names an
//!   entry that this host cannot have, because the crate would end the process.

mod messages;
#[cfg(test)]
mod untrusted;

use crate::storage::{FOUNDING, Log, payload};
use bytes::Bytes;
use protobuf::Message as _;
use raft::{
    Config, RawNode, SnapshotStatus, StateRole,
    eraftpb::{ConfChangeV2, Entry, EntryType, Message, MessageType, Snapshot},
};
use std::{collections::BTreeSet, fmt};
use vm_wire::{
    HostId, limits,
    peer::{Raft, RaftMessage},
};

/// Interval of raft's heartbeats: one beat. Ticks.
const HEARTBEAT_TICKS: usize = (limits::BEAT.as_millis() / limits::TICK.as_millis()) as usize;
/// A candidate waits for an election by this much less than a follower. The rest suffices for the
/// two rounds of an election over slow links. Ticks.
const CANDIDATE_AHEAD_TICKS: usize = limits::ELECTION_TICKS.0 / 2;
/// Bound on the entries of one message. Bytes.
const MESSAGE_BYTES: u64 = 256 * 1024;
/// Bound on the entries that were proposed and not committed yet. Proposals beyond it are dropped,
/// and their proposers repeat them. Bytes.
const UNCOMMITTED_BYTES: u64 = 16 * 1024 * 1024;
/// Bound on the messages with entries to one follower without a reply.
const INFLIGHT_MAX: usize = 256;

/// Outputs of raft after a step, to be carried out in this order.
#[derive(Debug, Default)]
pub struct Turn {
    /// Messages to send, each with its receiver.
    pub messages: Vec<(HostId, Raft)>,
    /// The agreed state at that index, in place of entries.
    pub snapshot: Option<(u64, Bytes)>,
    /// Index and data of committed entries; the data of raft's own entries is empty.
    pub committed: Vec<(u64, Bytes)>,
    /// Rounds of [`Consensus::confirm`] that a majority has confirmed.
    pub confirmed: Vec<u64>,
}

/// Raft of one host, as the module describes it.
pub struct Consensus {
    node: RawNode<Log>,
    excluded: bool,
    /// The commit index that the followers were last sent.
    told: u64,
    /// Vote requests of the last election that this host called.
    requests: Vec<Message>,
    /// The vote requests are to be repeated.
    repeat: bool,
}

impl Consensus {
    /// Raft of a machine's founder. The founder leads after its first turn.
    pub fn founded(state: Vec<u8>) -> Self {
        let founder = u64::from(HostId::FOUNDER.0);
        let mut consensus = Consensus::new(founder, Log::founded(founder, state), FOUNDING.0);
        // The campaign cannot fail: the only voter has a log and no entries to apply.
        let _ = consensus.node.campaign();
        consensus
    }

    /// Raft of a host at its first raft message. The log is empty until a leader sends a snapshot.
    pub fn asked(me: HostId) -> Self {
        Consensus::new(u64::from(me.0), Log::empty(), 0)
    }

    fn new(id: u64, log: Log, applied: u64) -> Self {
        let (shortest, longest) = limits::ELECTION_TICKS;
        let config = Config {
            id,
            applied,
            election_tick: shortest,
            min_election_tick: shortest,
            max_election_tick: longest + 1,
            heartbeat_tick: HEARTBEAT_TICKS,
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: INFLIGHT_MAX,
            max_uncommitted_size: UNCOMMITTED_BYTES,
            pre_vote: true,
            check_quorum: true,
            batch_append: true,
            skip_bcast_commit: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, log, &logger).expect("the configuration is sound");
        Consensus {
            node,
            excluded: false,
            told: applied,
            requests: Vec::new(),
            repeat: false,
        }
    }

    /// Advances raft's clock by one tick.
    pub fn tick(&mut self) {
        if self.excluded {
            return;
        }
        let me = self.node.raft.id;
        let voters = self.voters();
        let rank = voters.iter().filter(|host| u64::from(host.0) < me).count();
        let timeout = election_timeout(rank, voters.len(), self.node.raft.term);
        self.node.raft.set_randomized_election_timeout(timeout);
        if self.is_candidate() {
            let elapsed = self.node.raft.election_elapsed;
            self.node.raft.election_elapsed = elapsed.max(CANDIDATE_AHEAD_TICKS);
        }
        self.node.tick();
        let elapsed = self.node.raft.election_elapsed;
        self.repeat = elapsed > 0 && elapsed.is_multiple_of(HEARTBEAT_TICKS);
    }

    /// Takes a checked message of another host.
    pub fn step(&mut self, from: HostId, raft: Raft) {
        if self.is_beyond(&raft.message) {
            return;
        }
        let from_leader = matches!(
            raft.message,
            RaftMessage::Append { .. } | RaftMessage::Heartbeat { .. } | RaftMessage::Snapshot(_)
        );
        if from_leader && raft.term >= self.node.raft.term {
            self.excluded = false;
        }
        let message = messages::incoming(from, self.node.raft.id, raft);
        // An error means a reply of a host that is no peer any more. The reply is dropped.
        let _ = self.node.step(message);
    }

    /// Whether a message states that this host has an entry after its last one.
    fn is_beyond(&self, message: &RaftMessage) -> bool {
        let last = self.node.raft.raft_log.last_index();
        match message {
            RaftMessage::Heartbeat { commit: index, .. }
            | RaftMessage::AppendReply { index, .. } => *index > last,
            _ => false,
        }
    }

    /// Notes the leader's report that this host does not vote.
    pub fn exclude(&mut self) {
        if !self.leads() && !self.excluded {
            self.excluded = true;
            // A host that has heard from a leader lately refuses to vote, and time does not pass
            // here any more. With a known leader this host would refuse for ever. But this host may
            // become a voter again and be the last host to learn that.
            let term = self.term();
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
    }

    /// Proposes an entry; `false` if it was dropped.
    pub fn propose(&mut self, data: Vec<u8>) -> bool {
        self.leads() && self.node.propose(Vec::new(), data).is_ok()
    }

    /// Proposes to enter a joint configuration that leads to `wanted`.
    pub fn reconfigure(&mut self, wanted: &BTreeSet<HostId>) {
        let present = self.voters();
        let added: Vec<HostId> = wanted.difference(&present).copied().collect();
        let removed: Vec<HostId> = present.difference(wanted).copied().collect();
        let change = messages::voters_change(&added, &removed);
        // The change is dropped while the lead is handed over. The next review proposes it again.
        let _ = self.node.propose_conf_change(Vec::new(), change);
    }

    /// Proposes to leave the joint configuration.
    pub fn leave_joint(&mut self) {
        let _ = self
            .node
            .propose_conf_change(Vec::new(), ConfChangeV2::default());
    }

    /// Hands the lead over to a voter. Raft abandons the attempt after the time of an election.
    pub fn hand_over(&mut self, to: HostId) {
        if self.node.raft.lead_transferee.is_none() {
            self.node.transfer_leader(u64::from(to.0));
        }
    }

    /// Requests the confirmation of a majority that this host still leads; [`Turn::confirmed`] has
    /// the reply. `false` if the request cannot be sent yet.
    pub fn confirm(&mut self, round: u64) -> bool {
        if !self.leads() || !self.node.raft.commit_to_current_term() {
            return false;
        }
        self.node.read_index(round.to_le_bytes().to_vec());
        true
    }

    /// Reports a broken link: the messages on it are lost.
    pub fn unreachable(&mut self, host: HostId) {
        self.node.report_unreachable(u64::from(host.0));
    }

    /// Whether [`Consensus::turn`] has outputs.
    pub fn has_turn(&self) -> bool {
        self.node.has_ready() || self.repeat
    }

    /// The outputs of raft since the last turn.
    pub fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        let mut messages = Vec::new();
        while self.node.has_ready() {
            self.take_ready(&mut turn, &mut messages);
            let commit = self.node.raft.raft_log.committed;
            if self.leads() && self.told < commit {
                self.node.ping();
            }
            self.told = self.told.max(commit);
        }
        for message in &messages {
            if message.msg_type() == MessageType::MsgSnapshot {
                self.node
                    .report_snapshot(message.to, SnapshotStatus::Finish);
            }
        }
        self.request_again(&mut messages);
        // The sort is stable: messages to one host stay in their order.
        messages.sort_by_key(|message| message.to);
        let messages = messages.into_iter();
        turn.messages = messages.filter_map(messages::outgoing).collect();
        turn
    }

    fn is_candidate(&self) -> bool {
        matches!(
            self.node.raft.state,
            StateRole::PreCandidate | StateRole::Candidate
        )
    }

    /// Keeps the vote requests of a candidate, and repeats them if they are due. Raft counts one
    /// reply of each host only.
    fn request_again(&mut self, messages: &mut Vec<Message>) {
        let due = std::mem::take(&mut self.repeat);
        let kind = match self.node.raft.state {
            StateRole::PreCandidate => MessageType::MsgRequestPreVote,
            StateRole::Candidate => MessageType::MsgRequestVote,
            StateRole::Follower | StateRole::Leader => return self.requests.clear(),
        };
        let new = messages.iter();
        let new = new.filter(|message| message.msg_type() == kind);
        let new: Vec<Message> = new.cloned().collect();
        if !new.is_empty() {
            self.requests = new;
        } else if due {
            messages.extend_from_slice(&self.requests);
        }
    }

    fn take_ready(&mut self, turn: &mut Turn, messages: &mut Vec<Message>) {
        let mut ready = self.node.ready();
        messages.append(&mut ready.take_messages());
        if !ready.snapshot().is_empty() {
            let snapshot: Snapshot = ready.snapshot().clone();
            let index = snapshot.metadata().index;
            // The snapshot contains the entries that were committed before it in this turn.
            turn.committed.clear();
            turn.snapshot = Some((index, snapshot.data.clone()));
            self.node.mut_store().install(snapshot);
        }
        self.commit(ready.take_committed_entries(), turn);
        for state in ready.take_read_states() {
            turn.confirmed.extend(messages::round(&state.request_ctx));
        }
        self.node.mut_store().append(ready.take_entries());
        if let Some(hard) = ready.hs() {
            self.node.mut_store().set_hard_state(hard.clone());
        }
        messages.append(&mut ready.take_persisted_messages());
        let mut light = self.node.advance(ready);
        if let Some(commit) = light.commit_index() {
            self.node.mut_store().set_commit(commit);
        }
        messages.append(&mut light.take_messages());
        self.commit(light.take_committed_entries(), turn);
        self.node.advance_apply();
    }

    fn commit(&mut self, entries: Vec<Entry>, turn: &mut Turn) {
        for entry in entries {
            if entry.entry_type() == EntryType::EntryConfChangeV2 {
                self.apply_configuration(&entry);
            }
            turn.committed.push((entry.index, payload(&entry)));
        }
    }

    fn apply_configuration(&mut self, entry: &Entry) {
        let mut change = ConfChangeV2::default();
        if change.merge_from_bytes(&entry.data).is_err() {
            return;
        }
        if let Ok(configuration) = self.node.apply_conf_change(&change) {
            self.node.mut_store().set_configuration(configuration);
        }
        // A leader that was elected during a change of an earlier leader may be outside of the new
        // configuration. The crate expects such a leader to have stepped down.
        if self.leads() && !self.node.raft.promotable() {
            let term = self.term();
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
    }

    /// Whether this host leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Whether this host leads and has applied all that was committed before.
    pub fn leads_settled(&self) -> bool {
        self.leads() && self.node.raft.apply_to_current_term()
    }

    /// Whether this host is a voter, as far as it knows.
    pub fn votes(&self) -> bool {
        !self.excluded && self.node.raft.promotable()
    }

    /// The last known leader, or [`HostId::NONE`].
    pub fn leader(&self) -> HostId {
        if self.excluded {
            return HostId::NONE;
        }
        messages::host_of(self.node.raft.leader_id)
    }

    /// Number of the current election.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// The voters; in a joint configuration the voters of both configurations.
    pub fn voters(&self) -> BTreeSet<HostId> {
        let voters = self.node.raft.prs().conf().voters().ids();
        voters.iter().map(messages::host_of).collect()
    }

    /// The voters whose majority is needed in any case: during a change, those of the earlier
    /// configuration.
    pub fn settled_voters(&self) -> BTreeSet<HostId> {
        let state = self.node.raft.prs().conf().to_conf_state();
        match state.voters_outgoing.is_empty() {
            true => self.voters(),
            false => state
                .voters_outgoing
                .into_iter()
                .map(messages::host_of)
                .collect(),
        }
    }

    /// Whether the configuration is joint.
    pub fn is_joint(&self) -> bool {
        !self
            .node
            .raft
            .prs()
            .conf()
            .to_conf_state()
            .voters_outgoing
            .is_empty()
    }

    /// Whether the log may have a change of the configuration that is not applied.
    pub fn has_pending_change(&self) -> bool {
        self.node.raft.has_pending_conf()
    }

    /// Index of the last entry that a turn gave out.
    pub fn applied(&self) -> u64 {
        self.node.raft.raft_log.applied
    }

    /// The log, for the feed.
    pub fn log(&self) -> &Log {
        self.node.store()
    }

    /// The log, to compact it.
    pub fn log_mut(&mut self) -> &mut Log {
        self.node.mut_store()
    }
}

impl fmt::Debug for Consensus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consensus")
            .field("role", &self.node.raft.state)
            .field("term", &self.term())
            .field("applied", &self.applied())
            .field("voters", &self.voters())
            .field("joint", &self.is_joint())
            .field("excluded", &self.excluded)
            .finish()
    }
}

/// The time for which the voter of that rank waits for a leader before it calls an election. Ticks.
///
/// Modulo a prime the ranks are multiplied by a factor that changes with the term. So each term has
/// another order, and each distance between two ranks occurs in some term.
fn election_timeout(rank: usize, voters: usize, term: u64) -> usize {
    let (shortest, longest) = limits::ELECTION_TICKS;
    let is_prime = |number: &usize| (2..*number).all(|divisor| !number.is_multiple_of(divisor));
    let places = (voters.max(2)..).find(is_prime).unwrap_or(voters);
    let factor = 1 + (term % (places as u64 - 1)) as usize;
    let place = rank * factor % places;
    shortest + place * (longest - shortest) / (places - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message that was sent and not delivered.
    struct OnWay {
        from: u16,
        to: u16,
        raft: Raft,
    }

    impl OnWay {
        /// Whether the message is to or from that host.
        fn is_of(&self, host: u16) -> bool {
            self.from == host || self.to == host
        }
    }

    /// Delivers all messages between hosts 1, 2, ... except lost ones, until there are no more.
    fn talk_but(hosts: &mut [Consensus], lost: impl Fn(&OnWay) -> bool) {
        loop {
            let turns = (1..).zip(hosts.iter_mut().map(Consensus::turn));
            let messages: Vec<OnWay> = turns
                .flat_map(|(from, turn)| {
                    let messages = turn.messages.into_iter();
                    messages.map(move |(HostId(to), raft)| OnWay { from, to, raft })
                })
                .collect();
            if messages.is_empty() {
                return;
            }
            for message in messages.into_iter().filter(|message| !lost(message)) {
                assert_eq!(message.raft.check(), Ok(()), "{:?}", message.raft);
                hosts[usize::from(message.to) - 1].step(HostId(message.from), message.raft);
            }
        }
    }

    fn talk(hosts: &mut [Consensus]) {
        talk_but(hosts, |_| false);
    }

    /// Host 1, which leads, changes the voters. Some messages are lost.
    fn change(hosts: &mut [Consensus], voters: &[u16], lost: impl Fn(&OnWay) -> bool) {
        let wanted: BTreeSet<HostId> = voters.iter().copied().map(HostId).collect();
        hosts[0].reconfigure(&wanted);
        hosts[0].turn();
        // New voters get a snapshot, which they can use only once they are in its configuration.
        let applied = hosts[0].applied();
        hosts[0].log_mut().compact(applied, Vec::new(), 100, 1000);
        for _ in 0..2 * HEARTBEAT_TICKS {
            talk_but(hosts, &lost);
            hosts[0].tick();
        }
        hosts[0].leave_joint();
        for _ in 0..2 * HEARTBEAT_TICKS {
            talk_but(hosts, &lost);
            hosts[0].tick();
        }
        assert_eq!((hosts[0].is_joint(), hosts[0].voters()), (false, wanted));
    }

    /// Three voters, led by the first.
    pub(super) fn three() -> [Consensus; 3] {
        let [two, three] = [2, 3].map(|host| Consensus::asked(HostId(host)));
        let mut hosts = [Consensus::founded(Vec::new()), two, three];
        talk(&mut hosts);
        change(&mut hosts, &[1, 2, 3], |_| false);
        hosts
    }

    #[test]
    fn who_was_relieved_and_does_not_know_that_it_votes_again_does_vote() {
        let mut hosts = three();
        change(&mut hosts, &[1], |_| false);
        hosts[1..].iter_mut().for_each(Consensus::exclude);
        change(&mut hosts, &[1, 2, 3], |message| message.is_of(2));
        assert!(!hosts[1].votes() && hosts[2].votes());
        // The leader is gone from here on.
        for _ in 0..3 * limits::ELECTION_TICKS.1 {
            hosts[1..].iter_mut().for_each(Consensus::tick);
            talk_but(&mut hosts, |message| message.is_of(1));
        }
        assert!(hosts[2].leads() && hosts[1].votes(), "{hosts:?}");
    }

    #[test]
    fn candidates_that_split_the_votes_try_again_soon() {
        let mut hosts = three();
        for host in &mut hosts[1..] {
            host.node.campaign().expect("it is no leader");
        }
        talk_but(&mut hosts, |message| message.is_of(1));
        assert!(hosts[1..].iter().all(Consensus::is_candidate));
        for _ in 0..limits::ELECTION_TICKS.1 - CANDIDATE_AHEAD_TICKS {
            hosts[1..].iter_mut().for_each(Consensus::tick);
            talk_but(&mut hosts, |message| message.is_of(1));
        }
        assert!(hosts[1..].iter().any(Consensus::leads), "{hosts:?}");
    }

    #[test]
    fn a_request_for_a_vote_that_was_lost_is_repeated() {
        for of_pre_vote in [true, false] {
            let mut hosts = three();
            let mut until_led = |patience: usize, lost: &dyn Fn(&OnWay) -> bool| {
                let ticks = (0..patience).find(|_| {
                    hosts[1..].iter_mut().for_each(Consensus::tick);
                    talk_but(&mut hosts, |message| message.is_of(1) || lost(message));
                    hosts[1..].iter().any(Consensus::leads)
                });
                ticks.is_some()
            };
            let (shortest, longest) = limits::ELECTION_TICKS;
            let led = until_led(
                longest + 1,
                &|message| matches!(message.raft.message, RaftMessage::VoteRequest { pre_vote, .. } if pre_vote == of_pre_vote),
            );
            assert!(!led);
            assert!(
                until_led(shortest / 2, &|_| false),
                "pre-vote {of_pre_vote}: {hosts:?}"
            );
        }
    }

    #[test]
    fn a_leader_that_is_left_out_steps_down_and_another_leads() {
        let (one, two) = (HostId(1), HostId(2));
        let mut hosts = [Consensus::founded(Vec::new()), Consensus::asked(two)];
        talk(&mut hosts);
        assert!(hosts[0].leads());
        hosts[0].reconfigure(&BTreeSet::from([two]));
        hosts[0].turn();
        // Host 2 gets a snapshot, which it can use only once it is in the snapshot's configuration.
        let applied = hosts[0].applied();
        hosts[0].log_mut().compact(applied, Vec::new(), 100, 1000);
        for _ in 0..2 * HEARTBEAT_TICKS {
            talk(&mut hosts);
            hosts[0].tick();
        }
        assert!(hosts[0].is_joint() && hosts[1].is_joint(), "{hosts:?}");
        assert_eq!(hosts[0].voters(), BTreeSet::from([one, two]));
        // Host 2 votes, and the loss of host 1 would still end the machine.
        for host in &hosts {
            assert_eq!(host.settled_voters(), BTreeSet::from([one]), "{hosts:?}");
        }
        hosts[0].leave_joint();
        talk(&mut hosts);
        assert!(!hosts[0].leads() && !hosts[0].votes());
        // The leader may have left before it reported the commit to host 2.
        for _ in 0..2 * limits::ELECTION_TICKS.1 {
            hosts.iter_mut().for_each(Consensus::tick);
            talk(&mut hosts);
        }
        assert!(hosts[1].leads() && !hosts[1].is_joint());
        assert_eq!(hosts[1].voters(), BTreeSet::from([two]));
        assert_eq!(hosts[1].settled_voters(), hosts[1].voters());
    }

    #[test]
    fn any_two_voters_come_to_lie_far_apart_in_some_term() {
        let (shortest, longest) = limits::ELECTION_TICKS;
        // At most five voters, and five others in a joint configuration.
        for voters in 2..=10 {
            for a in 0..voters {
                for b in 0..a {
                    let distance = |term| {
                        let [a, b] = [a, b].map(|rank| election_timeout(rank, voters, term));
                        assert!((shortest..=longest).contains(&a));
                        a.abs_diff(b)
                    };
                    let widest = (1..=8).map(distance).max();
                    assert!(
                        widest >= Some((longest - shortest) / 2),
                        "{a} and {b} of {voters}"
                    );
                }
            }
        }
    }

    #[test]
    fn one_term_has_as_many_timeouts_as_it_can() {
        for (voters, term) in [(1, 0), (2, 1), (3, 5), (5, 7)] {
            let ranks = (0..voters).map(|rank| election_timeout(rank, voters, term));
            assert_eq!(ranks.collect::<BTreeSet<_>>().len(), voters);
        }
    }
}
