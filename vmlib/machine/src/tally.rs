//! Events that anybody can cause as often as he likes: a few of them are told, the others counted,
//! so that a log tells of a flood and is not one.

use crate::Time;
use vm_wire::limits::{OFFENCES_TIME, OFFENCES_TOLD};

/// The events of one kind.
#[derive(Debug, Default)]
pub struct Tally {
    /// When the first event of this period came.
    since: Option<Time>,
    /// Of this period: how many were told, and how many were not.
    told: u32,
    silent: u64,
    total: u64,
}

impl Tally {
    /// One more event. Returns whether it is to be told.
    pub fn count(&mut self, now: Time) -> bool {
        self.total += 1;
        let over = self
            .since
            .is_none_or(|since| now.since(since) >= OFFENCES_TIME);
        if over && self.silent == 0 {
            self.since = Some(now);
            self.told = 0;
        }
        let tells = self.told < OFFENCES_TOLD;
        match tells {
            true => self.told += 1,
            false => self.silent += 1,
        }
        tells
    }

    /// How many there were since the start.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// When it is due to say how many were not told.
    pub fn deadline(&self) -> Option<Time> {
        (self.silent > 0).then_some(self.since? + OFFENCES_TIME)
    }

    /// How many were not told in the period that is over; then the next one can begin.
    pub fn tick(&mut self, now: Time) -> Option<u64> {
        self.deadline().filter(|deadline| *deadline <= now)?;
        Some(std::mem::take(&mut self.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_a_few_are_told_and_the_rest_counted() {
        let (mut tally, mut now, mut told, mut counted) = (Tally::default(), Time(0), 0, 0);
        let (periods, each) = (3, 1_000);
        for _ in 0..periods {
            for _ in 0..each {
                told += u64::from(tally.count(now));
            }
            assert_eq!(tally.tick(now), None, "the period is not over");
            now = tally.deadline().expect("some were not told");
            counted += tally.tick(now).expect("it is due");
        }
        assert_eq!(told, periods * u64::from(OFFENCES_TOLD));
        assert_eq!(told + counted, tally.total());
        assert_eq!(tally.deadline(), None);
    }

    #[test]
    fn rare_events_are_all_told() {
        let mut tally = Tally::default();
        for period in 0..100 {
            let now = Time(0) + OFFENCES_TIME * period;
            for _ in 0..OFFENCES_TOLD {
                assert!(tally.count(now));
            }
        }
        assert_eq!(tally.deadline(), None);
    }
}
