//! The log of raft: in memory, with a bound.
//!
//! A log begins just after an entry that a snapshot represents. For the founder of a machine that
//! entry is the founding (index 1, term 1, host 1 the only voter). The log of a later voter is
//! empty until the leader sends its snapshot. When the log exceeds its bound, a new snapshot is
//! made of the agreed state, and the older half of the entries is removed. The snapshot may be
//! later than the first kept entry. So a host that is a little behind still gets entries, and a
//! host that is far behind gets the snapshot and then entries.
//!
//! The log is never written to disk. The lack of a file is safe, because a host number is never
//! used again: a restarted daemon joins as a new host, so no host forgets a vote.

use bytes::Bytes;
use raft::{
    Error, GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{ConfState, Entry, HardState, Snapshot},
    util::limit_size,
};
use std::collections::VecDeque;

/// Index and term of the founding snapshot. Both are not 0, because raft takes 0 for "no log".
pub const FOUNDING: (u64, u64) = (1, 1);

/// The log of one host that is or was a voter.
#[derive(Debug)]
pub struct Log {
    hard: HardState,
    /// The configuration after the last applied entry.
    configuration: ConfState,
    /// Index and term of the entry before the first kept entry.
    before: (u64, u64),
    entries: VecDeque<Entry>,
    bytes: usize,
    snapshot: Snapshot,
}

impl Log {
    /// The log of a founder. `state` is the agreed state at [`FOUNDING`].
    pub fn founded(founder: u64, state: Vec<u8>) -> Self {
        let (index, term) = FOUNDING;
        let mut log = Log::empty();
        log.hard.commit = index;
        log.hard.term = term;
        log.configuration.voters = vec![founder];
        log.before = FOUNDING;
        log.set_snapshot(index, term, state);
        log
    }

    /// The log of a host that gets a snapshot and entries from the leader.
    pub fn empty() -> Self {
        Log {
            hard: HardState::default(),
            configuration: ConfState::default(),
            before: (0, 0),
            entries: VecDeque::new(),
            bytes: 0,
            snapshot: Snapshot::default(),
        }
    }

    /// Sets the term, the vote and the commit index that raft must not forget.
    pub fn set_hard_state(&mut self, hard: HardState) {
        self.hard = hard;
    }

    /// Sets the index of the last committed entry.
    pub fn set_commit(&mut self, commit: u64) {
        self.hard.commit = commit;
    }

    /// Sets the configuration after an entry that changed it.
    pub fn set_configuration(&mut self, mut configuration: ConfState) {
        // The crate lists hosts in an order that differs between runs.
        configuration.voters.sort_unstable();
        configuration.voters_outgoing.sort_unstable();
        self.configuration = configuration;
    }

    /// Appends entries. The new entries replace entries at the same and later indices.
    pub fn append(&mut self, entries: Vec<Entry>) {
        let Some(first) = entries.first() else {
            return;
        };
        assert!(
            self.before.0 < first.index && first.index <= self.last() + 1,
            "raft appends where the log does not end"
        );
        while self.last() >= first.index {
            let entry = self.entries.pop_back();
            self.bytes -= entry.map_or(0, |entry| entry.data.len());
        }
        self.bytes += entries.iter().map(|entry| entry.data.len()).sum::<usize>();
        self.entries.extend(entries);
    }

    /// Replaces the log by a snapshot of the leader.
    pub fn install(&mut self, snapshot: Snapshot) {
        let metadata = snapshot.metadata();
        self.before = (metadata.index, metadata.term);
        self.hard.commit = metadata.index;
        self.hard.term = self.hard.term.max(metadata.term);
        self.configuration = metadata.conf_state().clone();
        self.entries.clear();
        self.bytes = 0;
        self.snapshot = snapshot;
    }

    /// Whether a new snapshot is needed: the log exceeds a bound, or the configuration has changed.
    /// A host can use a snapshot only if the snapshot's configuration has the host.
    pub fn wants_snapshot(&self, entries_max: u64, bytes_max: usize) -> bool {
        let of_snapshot = self.snapshot.metadata().conf_state();
        self.is_long(entries_max, bytes_max) || *of_snapshot != self.configuration
    }

    fn is_long(&self, entries_max: u64, bytes_max: usize) -> bool {
        self.entries.len() as u64 > entries_max || self.bytes > bytes_max
    }

    /// Takes a snapshot: `state` is the agreed state at `applied`. A log beyond a bound is cut to
    /// at most half of the bound, but keeps all entries after `applied`.
    pub fn compact(&mut self, applied: u64, state: Vec<u8>, entries_max: u64, bytes_max: usize) {
        let term = self.term(applied).expect("what was applied is kept");
        self.set_snapshot(applied, term, state);
        if !self.is_long(entries_max, bytes_max) {
            return;
        }
        let too_long = |log: &Log| log.is_long(entries_max / 2, bytes_max / 2);
        while too_long(self)
            && self
                .entries
                .front()
                .is_some_and(|first| first.index <= applied)
        {
            let Some(entry) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= entry.data.len();
            self.before = (entry.index, entry.term);
        }
    }

    /// The data of the entries after `after` up to `last`: at least one entry, and more entries up
    /// to `bytes_max` bytes in total. The data of raft's own entries is empty. `None` if the
    /// entries are not kept.
    pub fn data(&self, after: u64, last: u64, bytes_max: usize) -> Option<Vec<Bytes>> {
        let skip = after.checked_sub(self.before.0)? as usize;
        let mut bytes = 0;
        let mut data = Vec::new();
        for entry in self.entries.iter().skip(skip) {
            bytes += entry.data.len();
            if entry.index > last || (bytes > bytes_max && !data.is_empty()) {
                break;
            }
            data.push(payload(entry));
        }
        Some(data)
    }

    fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    fn set_snapshot(&mut self, index: u64, term: u64, state: Vec<u8>) {
        let metadata = self.snapshot.mut_metadata();
        metadata.index = index;
        metadata.term = term;
        metadata.set_conf_state(self.configuration.clone());
        self.snapshot.data = state.into();
    }
}

/// The data of an entry for the agreed state; empty for raft's own entries.
pub fn payload(entry: &Entry) -> Bytes {
    match entry.entry_type() {
        raft::eraftpb::EntryType::EntryNormal => entry.data.clone(),
        _ => Bytes::new(),
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(
            self.hard.clone(),
            self.configuration.clone(),
        ))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.before.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let skip = (low - self.before.0 - 1) as usize;
        let count = high.saturating_sub(low) as usize;
        let mut entries: Vec<_> = self
            .entries
            .iter()
            .skip(skip)
            .take(count)
            .cloned()
            .collect();
        limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.before.0 {
            return Ok(self.before.1);
        }
        let skip = index.checked_sub(self.before.0 + 1);
        let skip = skip.ok_or(Error::Store(StorageError::Compacted))?;
        let entry = self.entries.get(skip as usize);
        let entry = entry.ok_or(Error::Store(StorageError::Unavailable))?;
        Ok(entry.term)
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.before.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        let index = self.snapshot.metadata().index;
        if index == 0 || index < request_index {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(self.snapshot.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry {
            index,
            term,
            data: Bytes::from(vec![0; 10]),
            ..Entry::default()
        }
    }

    /// The log of a founder with entries up to `last`.
    fn log(last: u64) -> Log {
        let mut log = Log::founded(1, b"founded".to_vec());
        log.append((2..=last).map(|index| entry(index, 2)).collect());
        log
    }

    #[test]
    fn the_founding_stands_before_the_first_entry() {
        let log = log(3);
        assert_eq!((log.first_index(), log.last_index()), (Ok(2), Ok(3)));
        assert_eq!((log.term(1), log.term(3)), (Ok(1), Ok(2)));
        assert!(log.term(4).is_err());
        assert_eq!(log.data(0, 3, 100), None, "only a snapshot has it");
        assert_eq!(log.data(1, 3, 100).map(|data| data.len()), Some(2));
        assert_eq!(log.data(3, 3, 100).map(|data| data.len()), Some(0));
    }

    #[test]
    fn later_entries_take_the_place_of_others() {
        let mut log = log(5);
        log.append(vec![entry(4, 3)]);
        assert_eq!((log.last_index(), log.term(4)), (Ok(4), Ok(3)));
    }

    #[test]
    fn a_long_log_is_cut_and_the_snapshot_covers_what_went() {
        let mut log = log(41);
        assert!(log.wants_snapshot(32, 10_000));
        log.compact(40, b"at 40".to_vec(), 32, 10_000);
        assert!(!log.wants_snapshot(32, 10_000));
        assert_eq!((log.first_index(), log.last_index()), (Ok(26), Ok(41)));
        let snapshot = log.snapshot(0, 2).expect("there is one");
        assert_eq!(
            (snapshot.metadata().index, &snapshot.data[..]),
            (40, &b"at 40"[..])
        );
        assert!(log.snapshot(41, 2).is_err());
        // The bound on bytes alone is exceeded. Entries that were not applied are kept.
        assert!(log.wants_snapshot(100, 100));
        log.compact(30, b"at 30".to_vec(), 100, 100);
        assert_eq!(log.first_index(), Ok(31));
    }

    #[test]
    fn a_portion_holds_one_entry_at_least() {
        let log = log(9);
        assert_eq!(log.data(1, 9, 35).map(|data| data.len()), Some(3));
        assert_eq!(log.data(1, 9, 1).map(|data| data.len()), Some(1));
    }
}
