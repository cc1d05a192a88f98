//! Tasks of which messages are awaited: if one has ended, nothing will come, and the wait would last for
//! ever.
//!
//! A receive from one task that finds nothing is noted here. If no message of that task was received for
//! [`limits::AWAIT_ASK`], its daemon is asked to say when the task has ended ([`Await`]), once; so a
//! program whose messages come sooner sends nothing for it. The answer goes to the endpoint, which knows
//! when all messages of the task have come.

use std::collections::BTreeMap;
use vm_endpoint::Time;
use vm_wire::{Frame, Message as _, Tid, limits, task::Await};

/// The tasks of which messages are awaited.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// When the daemon is asked about each; `None`: it was.
    sources: BTreeMap<Tid, Option<Time>>,
    /// Not later than the first of these times.
    due: Option<Time>,
}

impl Awaited {
    /// A receive from that task has found nothing.
    pub(crate) fn note(&mut self, from: Tid, now: Time) {
        if self.sources.contains_key(&from) {
            return;
        }
        if self.sources.len() >= limits::AWAITED_MAX {
            *self = Self::default();
        }
        self.ask_at(from, now + limits::AWAIT_ASK);
    }

    /// A message of that task was received: it was alive.
    pub(crate) fn received(&mut self, from: Tid) {
        if !self.sources.is_empty() {
            self.sources.remove(&from);
        }
    }

    /// Asks for all ends again: earlier questions may be lost, or were sent to another daemon.
    pub(crate) fn renew(&mut self, now: Time) {
        let asked: Vec<Tid> = self.sources.keys().copied().collect();
        asked.into_iter().for_each(|from| self.ask_at(from, now));
    }

    /// When [`Awaited::ask`] has something to say, or earlier.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// The questions that are due.
    pub(crate) fn ask(&mut self, now: Time) -> Vec<Frame> {
        let mut questions = Vec::new();
        for (tid, at) in &mut self.sources {
            if at.take_if(|at| *at <= now).is_some() {
                questions.push(Await { tid: *tid }.frame());
            }
        }
        self.due = self.sources.values().copied().flatten().min();
        questions
    }

    fn ask_at(&mut self, from: Tid, at: Time) {
        self.sources.insert(from, Some(at));
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_wire::{HostId, MachineId};

    fn tid(sequence: u32) -> Tid {
        Tid::new(MachineId::from_bits(7), HostId::FOUNDER, sequence)
    }

    fn asked(awaited: &mut Awaited, now: Time) -> Vec<Tid> {
        let questions = awaited.ask(now).into_iter();
        let read = questions.map(|frame| Await::read(&frame).expect("a question").tid);
        read.collect()
    }

    #[test]
    fn each_task_is_asked_for_once_until_a_message_comes_or_all_begins_anew() {
        let mut awaited = Awaited::default();
        let begin = Time(0);
        let due = begin + limits::AWAIT_ASK;
        awaited.note(tid(1), begin);
        awaited.note(tid(2), begin);
        awaited.note(tid(1), due);
        awaited.received(tid(2));
        assert_eq!(asked(&mut awaited, begin), []);
        assert_eq!(awaited.due(), Some(due));
        assert_eq!(asked(&mut awaited, due), [tid(1)]);
        assert_eq!(awaited.due(), None);
        awaited.note(tid(1), due);
        assert_eq!(asked(&mut awaited, due + limits::AWAIT_ASK), []);
        awaited.renew(due);
        assert_eq!(asked(&mut awaited, due), [tid(1)]);
        awaited.received(tid(1));
        awaited.note(tid(1), due);
        assert_eq!(awaited.due(), Some(due + limits::AWAIT_ASK));
    }

    #[test]
    fn a_program_that_looks_for_messages_of_many_tasks_is_bounded() {
        let mut awaited = Awaited::default();
        for sequence in 1..=3 * limits::AWAITED_MAX as u32 {
            awaited.note(tid(sequence), Time(0));
            assert!(awaited.sources.len() <= limits::AWAITED_MAX);
        }
    }
}
