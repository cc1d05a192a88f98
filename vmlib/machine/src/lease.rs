//! Leases: the lease of this host, and the leases that the leader grants.
//!
//! A host sends `Alive(n)` with every beat and notes the time. `Grant(n)` means that a majority
//! confirmed the granting host as its leader *after* that beat was sent. So the lease runs from the
//! moment of sending, on the host's own clock ([`OwnLease`]).
//!
//! The leader ([`GivenLeases`]) grants the beats that it received before it began to ask the
//! voters. It declares a host dead when lease and margin have passed since the later of its own
//! election and the host's last beat. Then the host has no lease any more, for this reason: the
//! last leader that granted it a lease was confirmed by a majority after the beat. If that leader
//! is another one, the present leader was elected after the beat was sent. If it is the present
//! leader, it received the beat after it was sent. In both cases the present leader has waited for
//! longer than the lease. A grant *after* the decision would break this, so a condemned host is
//! granted nothing.
//!
//! The only host of a machine needs no lease: it votes alone, so no other host can declare it dead,
//! however long its daemon is stopped ([`OwnLease::open`]). It needs a lease again from the moment
//! when another host is in the log, before the other host learns of that ([`OwnLease::close`]). At
//! that moment the host itself is the majority that renews the lease, so the lease runs from then.
//!
//! No clocks are compared. Only their rates are assumed to differ by less than margin / lease.

use crate::Time;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use vm_wire::{HostId, limits};

/// Most beats that can still bring a lease: those sent within the length of one lease.
const SENT_MAX: usize = (limits::LEASE.as_millis() / limits::BEAT.as_millis()) as usize + 1;

/// The time until which a host may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// No lease was granted yet: the host may not act.
    Awaited,
    /// The end of the lease.
    At(Time),
    /// No end: the host is the only one.
    Open,
}

/// The lease of this host.
#[derive(Debug)]
pub struct OwnLease {
    /// The time at which the host first requested a lease.
    began: Time,
    /// The number of the last beat, and the times at which the recent beats were sent.
    number: u64,
    sent: VecDeque<(u64, Time)>,
    end: End,
    /// The time of the last grant, or of the first request.
    answered: Time,
    next_beat: Time,
}

impl OwnLease {
    /// No lease yet; the first beat is due at once.
    pub fn new(now: Time) -> Self {
        OwnLease {
            began: now,
            number: 0,
            sent: VecDeque::new(),
            end: End::Awaited,
            answered: now,
            next_beat: now,
        }
    }

    /// The time at which the next beat is due.
    pub fn next_beat(&self) -> Time {
        self.next_beat
    }

    /// Makes the next beat due at once.
    pub fn hurry(&mut self, now: Time) {
        self.next_beat = self.next_beat.min(now);
    }

    /// A beat is sent now. Returns its number.
    pub fn beat(&mut self, now: Time) -> u64 {
        self.number += 1;
        self.next_beat = now + limits::BEAT;
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((self.number, now));
        self.number
    }

    /// Beat `number` was granted. Returns the new end of the lease if it is later than before.
    pub fn granted(&mut self, now: Time, number: u64) -> Option<Time> {
        let sent = self.sent.iter().find(|(n, _)| *n == number)?.1;
        self.sent.retain(|(n, _)| *n > number);
        self.answered = now;
        let until = sent + limits::LEASE;
        match self.end {
            End::Open => return None,
            End::At(before) if before >= until => return None,
            End::Awaited | End::At(_) => self.end = End::At(until),
        }
        Some(until)
    }

    /// The host is the only one, and needs no lease. Returns whether that is new.
    pub fn open(&mut self) -> bool {
        std::mem::replace(&mut self.end, End::Open) != End::Open
    }

    /// The host is no longer the only one. If it was, returns the end of the lease that it gives
    /// itself.
    pub fn close(&mut self, now: Time) -> Option<Time> {
        if self.end != End::Open {
            return None;
        }
        let until = now + limits::LEASE;
        self.end = End::At(until);
        self.answered = now;
        Some(until)
    }

    /// Whether the host has or had a lease.
    pub fn has_begun(&self) -> bool {
        self.end != End::Awaited
    }

    /// Whether the end is so near that the tasks must be ended. Without a first lease: whether the
    /// host has waited for one for the length of a lease.
    pub fn is_lost(&self, now: Time) -> bool {
        let until = match self.end {
            End::Awaited => self.began + limits::LEASE,
            End::At(until) => until,
            End::Open => return false,
        };
        now + limits::LEASE_SOFT >= until
    }

    /// Whether no grant came for [`limits::SILENT`].
    pub fn is_in_doubt(&self, now: Time) -> bool {
        !self.has_begun() || now.since(self.answered) >= limits::SILENT
    }
}

/// The leader's state about one host.
#[derive(Debug)]
struct Beats {
    /// The time of the last beat, or of the host's join.
    last: Time,
    /// Whether a beat came at all.
    any: bool,
    /// The last entry that the host reported as applied.
    applied: u64,
    /// The latest beat that is in no round yet, and the beat in the current round.
    waiting: Option<u64>,
    asked: Option<u64>,
    /// Whether the host is to be declared dead: it is granted nothing any more.
    condemned: bool,
}

/// The leases that this host grants while it is the leader.
#[derive(Debug)]
pub struct GivenLeases {
    /// Silence of a host counts from here at the earliest: the time of the election.
    since: Time,
    /// No host is declared dead before this time.
    patient_until: Time,
    hosts: BTreeMap<HostId, Beats>,
    round: u64,
    under_way: bool,
    next_round: Time,
}

impl GivenLeases {
    /// This host was elected now, for `term`. The numbers of rounds differ from those of other
    /// terms.
    pub fn elected(now: Time, term: u64) -> Self {
        GivenLeases {
            since: now,
            patient_until: now,
            hosts: BTreeMap::new(),
            round: term << 32,
            under_way: false,
            next_round: now,
        }
    }

    fn beats(&mut self, host: HostId) -> &mut Beats {
        let last = self.since;
        self.hosts.entry(host).or_insert(Beats {
            last,
            any: false,
            applied: 0,
            waiting: None,
            asked: None,
            condemned: false,
        })
    }

    /// A host has joined: its silence counts from now.
    pub fn joined(&mut self, now: Time, host: HostId) {
        self.beats(host).last = now;
    }

    /// A host has left or was declared dead.
    pub fn forget(&mut self, host: HostId) {
        self.hosts.remove(&host);
    }

    /// A beat of a host came.
    pub fn alive(&mut self, now: Time, host: HostId, number: u64, applied: u64) {
        let beats = self.beats(host);
        beats.last = now;
        beats.any = true;
        beats.applied = beats.applied.max(applied);
        if !beats.condemned {
            beats.waiting = Some(number);
        }
    }

    /// The loop of this daemon did not run for `gap`. Beats that came meanwhile are still unread in
    /// its sockets, so that time does not count as silence, and one more beat period is granted to
    /// read them.
    pub fn stalled(&mut self, now: Time, gap: Duration) {
        self.since = self.since + gap;
        for beats in self.hosts.values_mut() {
            beats.last = beats.last + gap;
        }
        self.patient_until = now + limits::BEAT;
    }

    /// The time at which a round is to begin: some host waits for a grant and no round is under
    /// way.
    pub fn round_due(&self) -> Option<Time> {
        let waits = self.hosts.values().any(|beats| beats.waiting.is_some());
        (waits && !self.under_way).then_some(self.next_round)
    }

    /// Begins a round for all waiting hosts. Returns its number.
    pub fn begin_round(&mut self, now: Time) -> u64 {
        self.round += 1;
        self.under_way = true;
        self.next_round = now + limits::LEASE_ROUND;
        for beats in self.hosts.values_mut() {
            beats.asked = beats.waiting.take();
        }
        self.round
    }

    /// A majority confirmed a round. Returns the hosts to grant a lease, each with the number of
    /// its beat.
    pub fn confirmed(&mut self, round: u64) -> Vec<(HostId, u64)> {
        if round != self.round || !self.under_way {
            return Vec::new();
        }
        self.under_way = false;
        let granted = |(host, beats): (&HostId, &mut Beats)| {
            let number = beats.asked.take()?;
            (!beats.condemned).then_some((*host, number))
        };
        self.hosts.iter_mut().filter_map(granted).collect()
    }

    fn silence(&self, now: Time, host: HostId) -> Duration {
        let last = self.hosts.get(&host).map_or(self.since, |beats| beats.last);
        now.since(last.max(self.since))
    }

    /// Whether the host may hold a lease.
    pub fn is_live(&self, now: Time, host: HostId) -> bool {
        self.silence(now, host) < limits::LEASE
    }

    /// Whether a beat of the host came to this leader within [`limits::SILENT`].
    pub fn answers(&self, now: Time, host: HostId) -> bool {
        let any = self.hosts.get(&host).is_some_and(|beats| beats.any);
        any && self.silence(now, host) < limits::SILENT
    }

    /// Whether a beat of the host came after `time`.
    pub fn heard_after(&self, time: Time, host: HostId) -> bool {
        self.hosts.get(&host).is_some_and(|beats| beats.last > time)
    }

    /// The last entry that the host reported as applied.
    pub fn applied(&self, host: HostId) -> u64 {
        self.hosts.get(&host).map_or(0, |beats| beats.applied)
    }

    /// Whether the host's lease must have ended. If so, the host is granted nothing from then on.
    pub fn condemn(&mut self, now: Time, host: HostId) -> bool {
        let overdue = self.silence(now, host) >= limits::LEASE + limits::LEASE_MARGIN;
        let dead = overdue && now >= self.patient_until;
        let beats = self.beats(host);
        beats.condemned |= dead;
        beats.condemned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H: HostId = HostId(2);

    fn at(millis: u64) -> Time {
        Time(millis * 1000)
    }

    #[test]
    fn a_lease_runs_from_the_sending_of_the_beat() {
        let mut lease = OwnLease::new(at(0));
        let first = lease.beat(at(0));
        let second = lease.beat(at(100));
        assert_eq!(
            lease.granted(at(300), second),
            Some(at(100) + limits::LEASE)
        );
        // Older, unknown and repeated grants do not shorten the lease.
        assert_eq!(lease.granted(at(310), first), None);
        assert_eq!(lease.granted(at(310), second), None);
        assert_eq!(lease.granted(at(310), 77), None);
        assert!(!lease.is_lost(at(2399)));
        assert!(lease.is_lost(at(2400)));
    }

    #[test]
    fn the_only_host_has_a_lease_without_end_until_another_host_is_in_the_log() {
        let mut lease = OwnLease::new(at(0));
        let first = lease.beat(at(0));
        assert!(lease.open() && !lease.open(), "new once");
        assert_eq!(lease.granted(at(10), first), None, "nothing to be set");
        assert!(!lease.is_lost(at(1 << 40)));
        let second = lease.beat(at(5000));
        assert_eq!(lease.close(at(9000)), Some(at(9000) + limits::LEASE));
        assert_eq!(lease.close(at(9100)), None, "it has one");
        assert_eq!(lease.granted(at(9100), second), None, "an older beat");
        assert!(!lease.is_lost(at(11_299)) && lease.is_lost(at(11_300)));
        assert!(lease.open());
    }

    #[test]
    fn a_round_grants_only_beats_from_before_its_begin() {
        let mut given = GivenLeases::elected(at(0), 2);
        given.alive(at(10), H, 1, 0);
        assert_eq!(given.round_due(), Some(at(0)));
        let round = given.begin_round(at(10));
        given.alive(at(11), H, 2, 0);
        assert_eq!(given.round_due(), None, "one is under way");
        assert_eq!(given.confirmed(round), [(H, 1)]);
        let round = given.begin_round(at(40));
        assert_eq!(
            given.confirmed(round - 1),
            [],
            "a late answer to an older round"
        );
        assert_eq!(given.confirmed(round), [(H, 2)]);
    }

    #[test]
    fn a_host_is_condemned_after_lease_and_margin_and_then_granted_nothing() {
        let mut given = GivenLeases::elected(at(0), 2);
        given.alive(at(500), H, 1, 0);
        let wait = limits::LEASE + limits::LEASE_MARGIN;
        let due = at(500) + wait;
        assert!(!given.condemn(Time(due.0 - 1), H));
        assert!(given.condemn(due, H));
        given.alive(due, H, 2, 0);
        let round = given.begin_round(due);
        assert_eq!(given.confirmed(round), []);
        assert!(given.condemn(due, H), "a late beat does not save it");
    }

    #[test]
    fn silence_is_counted_from_the_election_at_the_earliest() {
        let mut given = GivenLeases::elected(at(10_000), 2);
        let wait = limits::LEASE + limits::LEASE_MARGIN;
        assert!(!given.condemn(at(12_999), H));
        assert!(given.condemn(at(10_000) + wait, H));
    }

    #[test]
    fn a_standstill_of_the_leader_does_not_count_as_silence() {
        let mut given = GivenLeases::elected(at(0), 2);
        given.alive(at(1000), H, 1, 0);
        // This daemon reads nothing from 1.1 s to 4.1 s.
        given.stalled(at(4100), Duration::from_secs(3));
        assert!(!given.condemn(at(4100), H));
        assert!(!given.condemn(at(6999), H));
        assert!(given.condemn(at(7000), H));
    }
}
