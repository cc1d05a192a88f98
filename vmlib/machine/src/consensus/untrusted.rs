//! Checked messages never end the process, whatever hosts send in whatever order.

use super::{Consensus, tests::three};
use proptest::{collection::vec, prelude::*, test_runner::RngSeed};
use vm_wire::{
    Body, HostId,
    limits::RAFT_NUMBER_MAX,
    peer::{EntryContent, LogEntry, LogPosition, LogSnapshot, Raft, RaftMessage},
};

/// An input of the raft under test.
#[derive(Debug, Clone)]
enum Event {
    Message(HostId, Raft),
    Tick,
    Propose,
    Confirm(u64),
    HandOver(HostId),
    Unreachable(HostId),
    Exclude,
}

fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config
}

fn host() -> impl Strategy<Value = HostId> {
    (1..=5u16).prop_map(HostId)
}

fn hosts() -> impl Strategy<Value = Vec<HostId>> {
    proptest::collection::btree_set(host(), 0..4).prop_map(|hosts| hosts.into_iter().collect())
}

/// A term or an index, mostly near the values of the host.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![12 => 0..=12u64, 1 => RAFT_NUMBER_MAX - 2..=RAFT_NUMBER_MAX]
}

fn position() -> impl Strategy<Value = LogPosition> {
    let any = (number(), 0..=4u64).prop_map(|(index, term)| LogPosition { index, term });
    prop_oneof![1 => Just(LogPosition::default()), 6 => any]
}

fn entry() -> impl Strategy<Value = LogEntry> {
    let content = prop_oneof![
        vec(any::<u8>(), 0..3).prop_map(|data| EntryContent::Changes(Body::from(data))),
        (hosts(), hosts()).prop_map(|(added, removed)| EntryContent::Voters { added, removed }),
    ];
    (0..=4u64, content).prop_map(|(term, content)| LogEntry { term, content })
}

fn message() -> impl Strategy<Value = RaftMessage> {
    let round = || proptest::option::of(0..3u64);
    prop_oneof![
        4 => (position(), number(), vec(entry(), 0..4)).prop_map(|(before, commit, mut entries)| {
            entries.sort_by_key(|entry| entry.term);
            RaftMessage::Append { before, commit, entries }
        }),
        2 => (number(), number(), proptest::option::of(position())).prop_map(
            |(index, commit, rejected)| RaftMessage::AppendReply { index, commit, rejected }
        ),
        1 => (number(), round()).prop_map(|(commit, round)| RaftMessage::Heartbeat { commit, round }),
        1 => (number(), round())
            .prop_map(|(commit, round)| RaftMessage::HeartbeatReply { commit, round }),
        1 => (position(), hosts(), hosts()).prop_map(|(at, voters, voters_before)| {
            let state = Body::new();
            RaftMessage::Snapshot(LogSnapshot { at, voters, voters_before, state })
        }),
        1 => (any::<bool>(), position(), position(), any::<bool>()).prop_map(
            |(pre_vote, last, committed, handed_over)| RaftMessage::VoteRequest {
                pre_vote, last, committed, handed_over
            }
        ),
        2 => (any::<bool>(), any::<bool>(), position()).prop_map(
            |(pre_vote, rejected, committed)| RaftMessage::VoteReply {
                pre_vote, rejected, committed
            }
        ),
        1 => Just(RaftMessage::TimeoutNow),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let term = prop_oneof![20 => 1..=6u64, 1 => Just(RAFT_NUMBER_MAX)];
    let raft = (term, message()).prop_map(|(term, message)| Raft { term, message });
    prop_oneof![
        12 => (host(), raft).prop_map(|(from, raft)| Event::Message(from, raft)),
        4 => Just(Event::Tick),
        2 => Just(Event::Propose),
        1 => (0..3u64).prop_map(Event::Confirm),
        1 => host().prop_map(Event::HandOver),
        1 => host().prop_map(Event::Unreachable),
        1 => Just(Event::Exclude),
    ]
}

fn happen(consensus: &mut Consensus, event: Event) {
    match event {
        Event::Message(from, raft) if raft.check().is_ok() => consensus.step(from, raft),
        // The link rejects this message.
        Event::Message(..) => {}
        // Enough ticks for an election.
        Event::Tick => (0..vm_wire::limits::ELECTION_TICKS.1).for_each(|_| consensus.tick()),
        Event::Propose => drop(consensus.propose(b"entry".to_vec())),
        Event::Confirm(round) => drop(consensus.confirm(round)),
        Event::HandOver(to) if consensus.leads() => consensus.hand_over(to),
        Event::HandOver(_) => {}
        Event::Unreachable(host) => consensus.unreachable(host),
        Event::Exclude => consensus.exclude(),
    }
    consensus.turn();
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_order_of_checked_messages_ends_the_process(events in vec(event(), 1..40)) {
        let [leader, follower, _] = three();
        for mut consensus in [leader, follower, Consensus::asked(HostId(4))] {
            for event in events.clone() {
                happen(&mut consensus, event);
            }
        }
    }
}
