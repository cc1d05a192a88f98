//! The queue of events, ordered by time, then by the order of scheduling.

use std::{cmp::Reverse, collections::BinaryHeap};

/// A moment of the simulated world. Microseconds since its start.
///
/// No host sees it: each host has a clock of its own (see [`super::clock`]).
pub type Moment = u64;

/// A millisecond of the simulated world.
pub const MS: Moment = 1_000;
/// A second of the simulated world.
pub const SECOND: Moment = 1_000_000;

struct Scheduled<E> {
    key: Reverse<(Moment, u64)>,
    event: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Events that have not happened yet.
pub struct Queue<E> {
    heap: BinaryHeap<Scheduled<E>>,
    /// Breaks ties, so that the order does not depend on the internals of the heap.
    next: u64,
    now: Moment,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Queue {
            heap: BinaryHeap::new(),
            next: 0,
            now: 0,
        }
    }
}

impl<E> Queue<E> {
    /// The time of the event that was taken last.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Schedules `event` for `at`, or for now if `at` is past.
    pub fn at(&mut self, at: Moment, event: E) {
        let key = Reverse((at.max(self.now), self.next));
        self.next += 1;
        self.heap.push(Scheduled { key, event });
    }

    /// Schedules `event` to happen after `delay`.
    pub fn after(&mut self, delay: Moment, event: E) {
        self.at(self.now + delay, event);
    }

    /// Takes the next event and advances the time to it.
    pub fn pop(&mut self) -> Option<E> {
        let Scheduled { key, event } = self.heap.pop()?;
        self.now = key.0.0;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_by_order_of_scheduling() {
        let mut queue = Queue::default();
        queue.at(5, 'c');
        queue.at(1, 'a');
        queue.at(5, 'd');
        queue.at(2, 'b');
        let order: String = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!((order.as_str(), queue.now()), ("abcd", 5));
    }
}
