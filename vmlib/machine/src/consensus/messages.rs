//! Conversion between the messages of the crate and the structs that are sent.
//!
//! The crate encodes a change of the voters in an entry as protobuf. Only bytes that this process
//! made are decoded as protobuf: such an entry is sent as lists of hosts.

use bytes::Bytes;
use protobuf::Message as _;
use raft::{
    CAMPAIGN_TRANSFER,
    eraftpb::{
        ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Entry, EntryType,
        Message, MessageType, Snapshot,
    },
};
use vm_wire::{
    Body, HostId,
    limits::RAFT_ENTRIES_MAX,
    peer::{EntryContent, LogEntry, LogPosition, LogSnapshot, Raft, RaftMessage},
};

/// The struct to send for a message of the crate, and its receiver. `None` for a kind of message
/// that the crate never sends in this configuration.
pub fn outgoing(mut message: Message) -> Option<(HostId, Raft)> {
    let to = host_of(message.to);
    let term = message.term;
    let commit = message.commit;
    let round = round(&message.context);
    let at = |index, term| LogPosition { index, term };
    let position = at(message.index, message.log_term);
    let committed = at(commit, message.commit_term);
    let kind = message.msg_type();
    let pre_vote = matches!(
        kind,
        MessageType::MsgRequestPreVote | MessageType::MsgRequestPreVoteResponse
    );
    let message = match kind {
        MessageType::MsgAppend => RaftMessage::Append {
            before: position,
            commit,
            entries: entries_out(&message.entries),
        },
        MessageType::MsgAppendResponse => RaftMessage::AppendReply {
            index: message.index,
            commit,
            rejected: message
                .reject
                .then(|| at(message.reject_hint, message.log_term)),
        },
        MessageType::MsgHeartbeat => RaftMessage::Heartbeat { commit, round },
        MessageType::MsgHeartbeatResponse => RaftMessage::HeartbeatReply { commit, round },
        MessageType::MsgSnapshot => RaftMessage::Snapshot(snapshot_out(message.take_snapshot())),
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => RaftMessage::VoteRequest {
            pre_vote,
            last: position,
            committed,
            handed_over: &message.context[..] == CAMPAIGN_TRANSFER,
        },
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
            RaftMessage::VoteReply {
                pre_vote,
                rejected: message.reject,
                committed,
            }
        }
        MessageType::MsgTimeoutNow => RaftMessage::TimeoutNow,
        other => {
            debug_assert!(false, "{other:?} is never sent");
            return None;
        }
    };
    Some((to, Raft { term, message }))
}

/// The message of the crate for a checked message of a host.
pub fn incoming(from: HostId, me: u64, raft: Raft) -> Message {
    let mut message = Message {
        from: u64::from(from.0),
        to: me,
        term: raft.term,
        ..Message::default()
    };
    let kind = match raft.message {
        RaftMessage::Append {
            before,
            commit,
            entries,
        } => {
            (message.index, message.log_term) = (before.index, before.term);
            message.commit = commit;
            let entries = (before.index + 1..).zip(entries);
            message.entries = entries
                .map(|(index, entry)| entry_in(index, entry))
                .collect();
            MessageType::MsgAppend
        }
        RaftMessage::AppendReply {
            index,
            commit,
            rejected,
        } => {
            (message.index, message.commit) = (index, commit);
            if let Some(hint) = rejected {
                message.reject = true;
                (message.reject_hint, message.log_term) = (hint.index, hint.term);
            }
            MessageType::MsgAppendResponse
        }
        RaftMessage::Heartbeat { commit, round } => {
            (message.commit, message.context) = (commit, context(round));
            MessageType::MsgHeartbeat
        }
        RaftMessage::HeartbeatReply { commit, round } => {
            (message.commit, message.context) = (commit, context(round));
            MessageType::MsgHeartbeatResponse
        }
        RaftMessage::Snapshot(snapshot) => {
            message.set_snapshot(snapshot_in(snapshot));
            MessageType::MsgSnapshot
        }
        RaftMessage::VoteRequest {
            pre_vote,
            last,
            committed,
            handed_over,
        } => {
            (message.index, message.log_term) = (last.index, last.term);
            (message.commit, message.commit_term) = (committed.index, committed.term);
            if handed_over {
                message.context = Bytes::from_static(CAMPAIGN_TRANSFER);
            }
            match pre_vote {
                true => MessageType::MsgRequestPreVote,
                false => MessageType::MsgRequestVote,
            }
        }
        RaftMessage::VoteReply {
            pre_vote,
            rejected,
            committed,
        } => {
            message.reject = rejected;
            (message.commit, message.commit_term) = (committed.index, committed.term);
            match pre_vote {
                true => MessageType::MsgRequestPreVoteResponse,
                false => MessageType::MsgRequestVoteResponse,
            }
        }
        RaftMessage::TimeoutNow => MessageType::MsgTimeoutNow,
    };
    message.set_msg_type(kind);
    message
}

/// A change of the voters for the crate. Without hosts the change leaves the joint configuration.
pub fn voters_change(added: &[HostId], removed: &[HostId]) -> ConfChangeV2 {
    let mut change = ConfChangeV2::default();
    if !added.is_empty() || !removed.is_empty() {
        change.set_transition(ConfChangeTransition::Explicit);
    }
    let single = |host: &HostId, kind| {
        let mut single = ConfChangeSingle {
            node_id: u64::from(host.0),
            ..ConfChangeSingle::default()
        };
        single.set_change_type(kind);
        single
    };
    let added = added
        .iter()
        .map(|host| single(host, ConfChangeType::AddNode));
    let removed = removed.iter();
    let removed = removed.map(|host| single(host, ConfChangeType::RemoveNode));
    change.changes = added.chain(removed).collect();
    change
}

/// The round that a heartbeat is to confirm, decoded from the crate's context bytes.
pub fn round(context: &[u8]) -> Option<u64> {
    <[u8; 8]>::try_from(context).ok().map(u64::from_le_bytes)
}

/// The host of a number of the crate.
pub fn host_of(id: u64) -> HostId {
    HostId(id as u16)
}

fn context(round: Option<u64>) -> Bytes {
    round.map_or_else(Bytes::new, |round| {
        Bytes::copy_from_slice(&round.to_le_bytes())
    })
}

/// The crate joins messages of entries without a limit. Entries beyond the limit are sent again,
/// like lost entries.
fn entries_out(entries: &[Entry]) -> Vec<LogEntry> {
    entries
        .iter()
        .take(RAFT_ENTRIES_MAX)
        .map(entry_out)
        .collect()
}

fn entry_out(entry: &Entry) -> LogEntry {
    let content = match entry.entry_type() {
        EntryType::EntryNormal => EntryContent::Changes(Body::from(entry.data.to_vec())),
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
            let change = ConfChangeV2::parse_from_bytes(&entry.data);
            let change = change.expect("this process has encoded it");
            let hosts = |kind| {
                let of_kind = change.changes.iter();
                let of_kind = of_kind.filter(move |single| single.change_type() == kind);
                of_kind.map(|single| host_of(single.node_id)).collect()
            };
            EntryContent::Voters {
                added: hosts(ConfChangeType::AddNode),
                removed: hosts(ConfChangeType::RemoveNode),
            }
        }
    };
    LogEntry {
        term: entry.term,
        content,
    }
}

fn entry_in(index: u64, entry: LogEntry) -> Entry {
    let mut of_crate = Entry {
        index,
        term: entry.term,
        ..Entry::default()
    };
    match entry.content {
        EntryContent::Changes(data) => of_crate.data = data.into_vec().into(),
        EntryContent::Voters { added, removed } => {
            of_crate.set_entry_type(EntryType::EntryConfChangeV2);
            let change = voters_change(&added, &removed).write_to_bytes();
            of_crate.data = change.expect("memory takes all").into();
        }
    }
    of_crate
}

fn snapshot_out(snapshot: Snapshot) -> LogSnapshot {
    let metadata = snapshot.metadata();
    let hosts = |ids: &[u64]| ids.iter().copied().map(host_of).collect();
    LogSnapshot {
        at: LogPosition {
            index: metadata.index,
            term: metadata.term,
        },
        voters: hosts(&metadata.conf_state().voters),
        voters_before: hosts(&metadata.conf_state().voters_outgoing),
        state: Body::from(snapshot.data.to_vec()),
    }
}

fn snapshot_in(snapshot: LogSnapshot) -> Snapshot {
    let ids = |hosts: Vec<HostId>| hosts.iter().map(|host| u64::from(host.0)).collect();
    let mut of_crate = Snapshot {
        data: snapshot.state.into_vec().into(),
        ..Snapshot::default()
    };
    let metadata = of_crate.mut_metadata();
    (metadata.index, metadata.term) = (snapshot.at.index, snapshot.at.term);
    metadata.mut_conf_state().voters = ids(snapshot.voters);
    metadata.mut_conf_state().voters_outgoing = ids(snapshot.voters_before);
    of_crate
}
