//! Whether a wait looks for itself for a moment before it sleeps: two-phase waiting.
//!
//! To put a thread to sleep and to wake it costs more than a message does, most of all on a virtual
//! machine, where waking an idle processor is work of the hypervisor: a round trip of 8 bytes took
//! 130 us when both tasks slept, and 50 us when they looked. So a wait first looks again and again,
//! and lets any other thread run in between, then sleeps (Dusseau, Arpaci, Culler: Effective
//! Distributed Scheduling of Parallel Workloads, SIGMETRICS 1996, section 3).
//!
//! A program that computes beside this one must not pay for it. So a wait looks only
//! - if the last one was short: what is awaited comes at once, as in a conversation;
//! - if this process may use more than one processor: else looking keeps the sender from running;
//! - if no other thread took the processor for long when it was offered: on a busy host a sleeper
//!   that is woken gets its turn sooner than one that offers its own.
//!
//! Only decisions are here; the system calls are in [`crate::link`].

use std::time::Duration;

/// A wait looks so long, and one that is over by then was short.
pub(crate) const LOOK_TIME: Duration = Duration::from_micros(200);
/// A process that takes the processor for so long computes; a daemon or a task that replies does not.
const TAKEN_TIME: Duration = Duration::from_micros(500);
/// So many waits sleep at once after the processor was taken: one lost slice of a few milliseconds
/// for all of them.
const SLEEPS_AFTER_TAKEN: u32 = 500;

/// Whether the next wait of a task polls before it sleeps.
#[derive(Debug)]
pub(crate) struct TwoPhase {
    several_processors: bool,
    /// The last wait was short.
    short: bool,
    /// Waits that sleep at once, whatever the last one was.
    sleeps: u32,
}

impl TwoPhase {
    /// For a process that may use so many processors.
    pub(crate) fn new(processors: usize) -> Self {
        TwoPhase {
            several_processors: processors > 1,
            short: false,
            sleeps: 0,
        }
    }

    /// Whether the wait that begins looks before it sleeps.
    pub(crate) fn looks(&self) -> bool {
        self.several_processors && self.short && self.sleeps == 0
    }

    /// A wait is over: it took so long, and between two looks passed at most so much.
    pub(crate) fn ended(&mut self, waited: Duration, between_looks: Duration) {
        self.short = waited <= LOOK_TIME;
        self.sleeps = match between_looks >= TAKEN_TIME {
            true => SLEEPS_AFTER_TAKEN,
            false => self.sleeps.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;
    const SHORT: Duration = LOOK_TIME;
    const LONG: Duration = Duration::from_millis(2);

    #[test]
    fn only_a_short_wait_makes_the_next_one_look() {
        let mut waits = TwoPhase::new(2);
        assert!(!waits.looks());
        waits.ended(SHORT, NONE);
        assert!(waits.looks());
        waits.ended(LONG, NONE);
        assert!(!waits.looks());
    }

    #[test]
    fn nobody_looks_who_has_one_processor() {
        let mut waits = TwoPhase::new(1);
        waits.ended(SHORT, NONE);
        assert!(!waits.looks());
    }

    #[test]
    fn after_the_processor_was_taken_waits_sleep_and_then_look_again() {
        let mut waits = TwoPhase::new(2);
        waits.ended(SHORT, NONE);
        waits.ended(LONG, TAKEN_TIME);
        for _ in 0..SLEEPS_AFTER_TAKEN {
            assert!(!waits.looks());
            waits.ended(SHORT, NONE);
        }
        assert!(waits.looks());
    }
}
