//! Messages of the log's consensus between two voters.
//!
//! They carry what Raft needs, each kind its own fields, and nothing of the crate that implements
//! Raft: that crate may change, and its decoder never sees a byte from the network. Sender and
//! receiver are the two ends of the link. An entry's index is not sent: it follows from its place.

use crate::{
    codec::{Body, CodecError},
    frame::Op,
    id::HostId,
    limits::{RAFT_ENTRIES_MAX, RAFT_NUMBER_MAX, RAFT_VOTERS_MAX},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, SeqAccess, Visitor},
};
use std::fmt;

/// A message of the consensus, from one voter to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raft {
    /// The sender's term; of a pre-vote, the term of the election that it precedes.
    pub term: u64,
    /// The content of the message.
    pub message: RaftMessage,
}

/// The kinds of messages of the consensus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RaftMessage {
    /// The leader sends entries, perhaps none.
    Append {
        /// The entry before the first one of these.
        before: LogPosition,
        /// Index of the last committed entry.
        commit: u64,
        /// In order, without gaps; [`RAFT_ENTRIES_MAX`] at most.
        #[serde(deserialize_with = "entries")]
        entries: Vec<LogEntry>,
    },
    /// The reply to `Append` and to `Snapshot`.
    AppendReply {
        /// Index of the last entry that the sender has; if it rejects, `before` of the `Append`.
        index: u64,
        /// Index of the last entry that the sender knows to be committed.
        commit: u64,
        /// `before` is not in the sender's log: the entry from which the leader is to try.
        rejected: Option<LogPosition>,
    },
    /// The leader leads.
    Heartbeat {
        /// Index of the last entry that is committed and that the receiver has.
        commit: u64,
        /// A round in which the leader has a majority confirm that it leads.
        round: Option<u64>,
    },
    /// The reply to `Heartbeat`.
    HeartbeatReply {
        /// Index of the last entry that the sender knows to be committed.
        commit: u64,
        /// As in the heartbeat.
        round: Option<u64>,
    },
    /// The agreed state, for a voter whose next entries are compacted away.
    Snapshot(LogSnapshot),
    /// The sender wants to be elected.
    VoteRequest {
        /// Whether only to learn if an election would succeed.
        pre_vote: bool,
        /// The sender's last entry.
        last: LogPosition,
        /// The sender's last committed entry; zeros if it does not say.
        committed: LogPosition,
        /// The leader handed its lead over: a lease of the former leader is no reason to refuse.
        handed_over: bool,
    },
    /// The reply to `VoteRequest`.
    VoteReply {
        /// As in the request.
        pre_vote: bool,
        /// Whether the sender votes for another host, or for none.
        rejected: bool,
        /// If it rejects, the sender's last committed entry; else zeros.
        committed: LogPosition,
    },
    /// The leader hands its lead over: the receiver calls an election at once.
    TimeoutNow,
}

/// An entry's place in the log. Zeros: before all entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPosition {
    /// The index.
    pub index: u64,
    /// The term of the leader that proposed the entry.
    pub term: u64,
}

/// An entry of the log on its way to a voter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// The term of the leader that proposed the entry.
    pub term: u64,
    /// The content of the entry.
    pub content: EntryContent,
}

/// The content of an entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryContent {
    /// An encoded [`crate::agreed::Entry`]; nothing in the first entry of a leader.
    Changes(Body),
    /// The voters change. Both lists are empty where the joint configuration is left.
    Voters {
        /// Hosts that become voters.
        added: Vec<HostId>,
        /// Hosts that vote no more.
        removed: Vec<HostId>,
    },
}

/// The agreed state at one entry of the log, with the configuration of the voters there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSnapshot {
    /// The last entry that is contained.
    pub at: LogPosition,
    /// The voters, by number.
    pub voters: Vec<HostId>,
    /// Of a joint configuration the voters before the change, by number; else empty.
    pub voters_before: Vec<HostId>,
    /// The encoded state.
    pub state: Body,
}

impl Raft {
    /// Checks what the types do not say.
    ///
    /// # Errors
    /// [`CodecError`] when a number is out of range, a list is too long or out of order, or the
    /// terms of entries fall.
    pub fn check(&self) -> Result<(), CodecError> {
        let sound = (1..=RAFT_NUMBER_MAX).contains(&self.term) && self.message.is_sound(self.term);
        sound.then_some(()).ok_or_else(|| CodecError {
            op: Some(Op::Raft),
            cause: "a number or a list is out of range".to_owned(),
        })
    }
}

impl RaftMessage {
    fn is_sound(&self, term: u64) -> bool {
        match self {
            RaftMessage::Append {
                before,
                commit,
                entries,
            } => {
                let terms = || entries.iter().map(|entry| entry.term);
                entries.len() <= RAFT_ENTRIES_MAX
                    && before.is_entry_or_start(term)
                    && *commit <= RAFT_NUMBER_MAX
                    && std::iter::once(before.term).chain(terms()).is_sorted()
                    && terms().all(|of_entry| (1..=term).contains(&of_entry))
                    && entries.iter().all(|entry| entry.content.is_sound())
            }
            RaftMessage::AppendReply {
                index,
                commit,
                rejected,
            } => {
                let numbers = *index <= RAFT_NUMBER_MAX && *commit <= RAFT_NUMBER_MAX;
                numbers && rejected.is_none_or(|hint| hint.is_sound(term))
            }
            RaftMessage::Heartbeat { commit, .. } | RaftMessage::HeartbeatReply { commit, .. } => {
                *commit <= RAFT_NUMBER_MAX
            }
            RaftMessage::Snapshot(snapshot) => snapshot.is_sound(term),
            RaftMessage::VoteRequest {
                last, committed, ..
            } => last.is_sound(term) && committed.is_sound(term),
            RaftMessage::VoteReply { committed, .. } => committed.is_sound(term),
            RaftMessage::TimeoutNow => true,
        }
    }
}

impl LogPosition {
    fn is_sound(self, term: u64) -> bool {
        self.index <= RAFT_NUMBER_MAX && self.term <= term
    }

    /// Whether this is an entry, or the place before all entries. The crate that implements Raft
    /// takes an entry of term 0 for one that it has, wherever the entry stands.
    fn is_entry_or_start(self, term: u64) -> bool {
        self.is_sound(term) && (self.index == 0) == (self.term == 0)
    }
}

impl EntryContent {
    fn is_sound(&self) -> bool {
        match self {
            EntryContent::Changes(_) => true,
            EntryContent::Voters { added, removed } => are_hosts(added) && are_hosts(removed),
        }
    }
}

impl LogSnapshot {
    fn is_sound(&self, term: u64) -> bool {
        self.at.index > 0
            && self.at.term > 0
            && self.at.is_sound(term)
            && !self.voters.is_empty()
            && are_hosts(&self.voters)
            && are_hosts(&self.voters_before)
    }
}

/// Reads entries up to their limit, so that a message of many tiny entries takes little memory.
fn entries<'de, D: Deserializer<'de>>(decoder: D) -> Result<Vec<LogEntry>, D::Error> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<LogEntry>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {RAFT_ENTRIES_MAX} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = sequence.next_element()? {
                if entries.len() == RAFT_ENTRIES_MAX {
                    return Err(de::Error::invalid_length(RAFT_ENTRIES_MAX + 1, &self));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    decoder.deserialize_seq(Entries)
}

/// Whether these are hosts by number, each once, and not too many.
fn are_hosts(hosts: &[HostId]) -> bool {
    hosts.len() <= RAFT_VOTERS_MAX
        && hosts.is_sorted_by(|a, b| a < b)
        && hosts.first() != Some(&HostId::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    const ENTRY: LogEntry = LogEntry {
        term: 3,
        content: EntryContent::Voters {
            added: Vec::new(),
            removed: Vec::new(),
        },
    };

    fn append(index: u64, term: u64, entries: Vec<LogEntry>) -> RaftMessage {
        RaftMessage::Append {
            before: LogPosition { index, term },
            commit: 0,
            entries,
        }
    }

    fn snapshot(index: u64, voters: &[u16]) -> RaftMessage {
        RaftMessage::Snapshot(LogSnapshot {
            at: LogPosition { index, term: 3 },
            voters: voters.iter().copied().map(HostId).collect(),
            voters_before: Vec::new(),
            state: Body::new(),
        })
    }

    #[test]
    fn entries_beyond_their_limit_are_not_read() {
        let read = |count| {
            let message = append(7, 2, vec![ENTRY; count]);
            Raft::read(&Raft { term: 3, message }.frame()).map(|_| ())
        };
        assert_eq!(read(RAFT_ENTRIES_MAX), Ok(()));
        let error = read(RAFT_ENTRIES_MAX + 1).expect_err("one too many");
        assert!(error.cause.contains("65536 entries"), "{error}");
    }

    #[test]
    fn messages_that_no_voter_sends_are_refused() {
        let voters = |added: &[u16]| LogEntry {
            content: EntryContent::Voters {
                added: added.iter().copied().map(HostId).collect(),
                removed: Vec::new(),
            },
            ..ENTRY
        };
        let refused = [
            (0, RaftMessage::TimeoutNow),
            (RAFT_NUMBER_MAX + 1, RaftMessage::TimeoutNow),
            (3, append(RAFT_NUMBER_MAX + 1, 1, vec![])),
            (3, append(7, 4, vec![])),
            (3, append(7, 0, vec![])),
            (3, append(0, 1, vec![])),
            (4, append(7, 4, vec![ENTRY])),
            (2, append(7, 2, vec![ENTRY])),
            (3, append(7, 2, vec![ENTRY; RAFT_ENTRIES_MAX + 1])),
            (3, append(7, 2, vec![voters(&[0, 1])])),
            (3, append(7, 2, vec![voters(&[2, 2])])),
            (3, append(7, 2, vec![voters(&[2, 1])])),
            (3, snapshot(0, &[1])),
            (3, snapshot(7, &[])),
            (2, snapshot(7, &[1])),
            (3, snapshot(7, &(1..100).collect::<Vec<_>>())),
        ];
        for (term, message) in refused {
            let raft = Raft { term, message };
            assert!(raft.check().is_err(), "{raft:?}");
        }
        let accepted = [
            (3, append(7, 3, vec![ENTRY; RAFT_ENTRIES_MAX])),
            (3, append(0, 0, vec![voters(&[1, 2])])),
            (4, snapshot(7, &[1, 2, 3])),
        ];
        for (term, message) in accepted {
            assert_eq!(Raft { term, message }.check(), Ok(()));
        }
    }
}
