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

/// How long a wait looks, and what keeps the next ones from looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// A wait looks so long, and one that is over by then was short.
    pub(crate) look: Duration,
    /// A process that takes the processor for so long computes; a daemon or a task that replies does
    /// not.
    taken: Duration,
    /// So many waits sleep at once after the processor was taken: one lost slice of a few milliseconds
    /// for all of them.
    sleeps: u32,
}

/// For a wait for the daemon alone.
pub(crate) const FOR_DAEMON: Patience = Patience {
    look: Duration::from_micros(200),
    taken: Duration::from_micros(500),
    sleeps: 500,
};
/// For a wait for rings. The tasks of an application that share a processor offer it to each other, so
/// that the turn of each comes later.
pub(crate) const FOR_RINGS: Patience = Patience {
    look: Duration::from_micros(1000),
    taken: Duration::from_millis(2),
    sleeps: 20,
};

/// Whether the next wait of a task polls before it sleeps.
#[derive(Debug, Default)]
pub(crate) struct TwoPhase {
    /// Whether this process may use several processors, once that was asked for.
    several_processors: Option<bool>,
    /// The last wait was short.
    short: bool,
    /// Waits that sleep at once, whatever the last one was.
    sleeps: u32,
}

impl TwoPhase {
    /// Whether the wait that begins looks before it sleeps. The number of `processors` that this process
    /// may use is asked for once: the kernel says it in seven files.
    pub(crate) fn looks(&mut self, processors: impl FnOnce() -> usize) -> bool {
        let several = &mut self.several_processors;
        self.short && self.sleeps == 0 && *several.get_or_insert_with(|| processors() > 1)
    }

    /// A wait is over: it took so long, and between two looks passed at most so much.
    pub(crate) fn ended(&mut self, waited: Duration, between_looks: Duration, patience: &Patience) {
        self.short = waited <= patience.look;
        self.sleeps = match between_looks >= patience.taken {
            true => patience.sleeps,
            false => self.sleeps.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;
    const SHORT: Duration = FOR_DAEMON.look;
    const LONG: Duration = Duration::from_millis(2);

    #[test]
    fn only_a_short_wait_makes_the_next_one_look() {
        let mut waits = TwoPhase::default();
        assert!(!waits.looks(|| 2));
        waits.ended(SHORT, NONE, &FOR_DAEMON);
        assert!(waits.looks(|| 2));
        waits.ended(LONG, NONE, &FOR_DAEMON);
        assert!(!waits.looks(|| 2));
    }

    #[test]
    fn nobody_looks_who_has_one_processor() {
        let mut waits = TwoPhase::default();
        waits.ended(SHORT, NONE, &FOR_DAEMON);
        assert!(!waits.looks(|| 1));
    }

    #[test]
    fn after_the_processor_was_taken_waits_sleep_and_then_look_again() {
        let mut waits = TwoPhase::default();
        waits.ended(SHORT, NONE, &FOR_DAEMON);
        waits.ended(LONG, FOR_DAEMON.taken, &FOR_DAEMON);
        for _ in 0..FOR_DAEMON.sleeps {
            assert!(!waits.looks(|| 2));
            waits.ended(SHORT, NONE, &FOR_DAEMON);
        }
        assert!(waits.looks(|| 2));
    }
}
