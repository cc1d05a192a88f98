//! Events that any stranger can cause without limit: a few of them are logged and the others
//! counted, so that a flood of events does not flood the log.

use crate::Time;
use vm_wire::limits::{OFFENCES_TIME, OFFENCES_TOLD};

/// The events of one kind.
#[derive(Debug, Default)]
pub struct Tally {
    /// Time of the first event in this period.
    since: Option<Time>,
    /// Numbers of events in this period that were logged, and that were only counted.
    told: u32,
    silent: u64,
    total: u64,
}

impl Tally {
    /// Counts an event. Returns whether it is to be logged.
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

    /// Number of events since the start.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The time at which the number of events that were only counted is due for the log.
    pub fn deadline(&self) -> Option<Time> {
        (self.silent > 0).then_some(self.since? + OFFENCES_TIME)
    }

    /// Number of events in the period now over that were only counted. Ends the period.
    pub fn tick(&mut self, now: Time) -> Option<u64> {
        self.deadline().filter(|deadline| *deadline <= now)?;
        Some(std::mem::take(&mut self.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_a_few_are_logged_and_the_rest_counted() {
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
    fn rare_events_are_all_logged() {
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
