//! Samples of the messages of the log's consensus, one for each kind.

use super::{Visitor, bytes};
use vm_wire::{
    HostId,
    peer::{EntryContent, LogEntry, LogPosition, LogSnapshot, Raft, RaftMessage},
};

pub fn visit(visitor: &mut impl Visitor) {
    for (name, message) in messages() {
        visitor.message(name, Raft { term: 7, message });
    }
}

fn messages() -> Vec<(&'static str, RaftMessage)> {
    let at = |index, term| LogPosition { index, term };
    let hosts = |numbers: &[u16]| numbers.iter().copied().map(HostId).collect();
    let entry = |content| LogEntry { term: 6, content };
    let entries = vec![
        entry(EntryContent::Changes(bytes(b"entry"))),
        entry(EntryContent::Voters {
            added: hosts(&[2, 3]),
            removed: hosts(&[1]),
        }),
    ];
    let snapshot = LogSnapshot {
        at: at(300, 6),
        voters: hosts(&[2, 3]),
        voters_before: hosts(&[1]),
        state: bytes(b"state"),
    };
    vec![
        (
            "RaftAppend",
            RaftMessage::Append {
                before: at(300, 5),
                commit: 299,
                entries,
            },
        ),
        (
            "RaftAppendReply",
            RaftMessage::AppendReply {
                index: 302,
                commit: 299,
                rejected: None,
            },
        ),
        (
            "RaftAppendRejected",
            RaftMessage::AppendReply {
                index: 300,
                commit: 299,
                rejected: Some(at(299, 4)),
            },
        ),
        (
            "RaftHeartbeat",
            RaftMessage::Heartbeat {
                commit: 299,
                round: Some(5),
            },
        ),
        (
            "RaftHeartbeatReply",
            RaftMessage::HeartbeatReply {
                commit: 299,
                round: None,
            },
        ),
        ("RaftSnapshot", RaftMessage::Snapshot(snapshot)),
        (
            "RaftVoteRequest",
            RaftMessage::VoteRequest {
                pre_vote: true,
                last: at(302, 6),
                committed: at(299, 5),
                handed_over: false,
            },
        ),
        (
            "RaftVoteReply",
            RaftMessage::VoteReply {
                pre_vote: false,
                rejected: true,
                committed: at(299, 5),
            },
        ),
        ("RaftTimeoutNow", RaftMessage::TimeoutNow),
    ]
}
