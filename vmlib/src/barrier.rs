//! The barrier of a group, whose members may join, leave and end meanwhile.
//!
//! The member with the lowest instance is the *gatherer*. The others send it an *arrival* and wait
//! for its *go*. Barriers are numbered: an arrival says which one its senders are in (0 if a member
//! joined since and does not know), the go says which one is over. So when the gatherer changes in
//! between - it left, it died, a joiner got a lower free instance - all send their arrivals to the new
//! one, which can tell from the numbers whether the barrier was over already: some member that
//! received the old gatherer's go is one ahead, and those that missed it are let through: by its next
//! barrier, or by a collective call in which it waits. The gatherer counts the members that the newest version it has heard of has.
//!
//! **Steps.** Few members send their arrivals directly to the gatherer ([`FLAT_MEMBERS`]). Arrivals of
//! more members go up the binomial tree over the members ([`tree`]): a member sends those of its
//! subtree together, in one message, once all of them have come. The go takes the same way back. So a
//! barrier of `n` members takes `2 log2 n` steps. The tree is only a shorter way: a member that sees
//! that the group has changed while it waits sends what it has directly to the gatherer, and so does a
//! member that does not know the number. An arrival that comes twice counts once.
//!
//! **Versions.** The go brings all members to the gatherer's version of the group. While a member
//! waits, it looks for a newer version now and then, but keeps its own unless the gatherer has changed.

use crate::{
    Task,
    barrier_message::{Arrival, BARRIER, Go, Message},
    clock::now,
    collectives::{choice::FLAT_MEMBERS, tree},
    error::GroupError,
    group::{ArrivalSender, Group, LOOK, Members},
    message::{decode_value, encode_value},
};
use std::collections::BTreeSet;
use vm_wire::Tid;

/// The wait of one member in one barrier.
struct Wait {
    /// The members with which the wait began.
    begun: Members,
    /// The tasks that this member has sent arrivals: the go comes from one of them.
    told: BTreeSet<Tid>,
}

impl Task {
    /// Waits until every member has called this. A task that joins later is waited for too if the
    /// member with the lowest instance hears of it in time: to be sure who takes part, let all
    /// join before the first barrier ([`Task::await_members`]). Afterwards the handles of all members
    /// that took part have the same version of the group.
    ///
    /// # Errors
    /// [`GroupError`], see there.
    pub fn barrier(&self, group: &mut Group) -> Result<(), GroupError> {
        let mut wait = Wait {
            begun: group.members.clone(),
            told: BTreeSet::new(),
        };
        loop {
            let over = match gatherer(group) {
                tid if tid == self.tid() => self.gather_arrivals(group, &wait)?,
                tid => self.arrive(group, &mut wait, tid)?,
            };
            if over {
                return Ok(());
            }
        }
    }

    /// The part of a member that is not the gatherer; `false` if the gatherer has changed.
    fn arrive(
        &self,
        group: &mut Group,
        wait: &mut Wait,
        gatherer_tid: Tid,
    ) -> Result<bool, GroupError> {
        let (parent, subtree) = place(group, self.tid());
        // A member that does not know the number is not counted with its parent's subtree.
        let mut direct = group.next == 0;
        let mut told = false;
        let mut pause = LOOK.0;
        loop {
            let number = group.next;
            let here = |tid: &Tid| group.arrived.get(tid) == Some(&number);
            if !told && (direct || subtree.iter().all(here)) {
                let mut members = vec![self.tid()];
                if number != 0 {
                    let arrived = group.arrived.iter().filter(|(_, at)| **at == number);
                    members.extend(arrived.map(|(tid, _)| *tid));
                }
                let to = if direct { gatherer_tid } else { parent };
                wait.told.insert(to);
                self.say_arrival(group, to, members, number)?;
                told = true;
            }
            match self.listen(group, pause)? {
                Some((_, Message::Go(go))) => {
                    if self.pass(group, &wait.begun, go)? {
                        return Ok(true);
                    }
                }
                Some((from, Message::Arrival(arrival))) => {
                    let is_regular = arrival.number == number
                        && arrival.version == group.members.version()
                        && !(told && direct);
                    self.take_arrival(group, from, &arrival)?;
                    // The sender's next look would find nothing new, and it would wait for ever.
                    if !is_regular && arrival.number != 0 && arrival.number >= number {
                        self.say_arrival(group, gatherer_tid, arrival.members, arrival.number)?;
                    }
                }
                None => {
                    pause = (pause * 2).min(LOOK.1);
                    let newest = self.newest(group)?;
                    if first(&newest) != gatherer_tid && self.can_go_on(group, wait, &newest)? {
                        self.adopt(group, newest)?;
                        return Ok(false);
                    }
                    if newest.version() != group.members.version() && !direct {
                        // A member on the way to the gatherer may be gone, with this arrival.
                        (direct, told) = (true, false);
                    }
                }
            }
        }
    }

    /// The gatherer's part of a barrier; `false` if it is that no more.
    fn gather_arrivals(&self, group: &mut Group, wait: &Wait) -> Result<bool, GroupError> {
        let mut pause = LOOK.0;
        loop {
            if let Some(over) = self.count(group)? {
                return Ok(over);
            }
            match self.listen(group, pause)? {
                Some((_, Message::Go(go))) => {
                    if self.pass(group, &wait.begun, go)? {
                        return Ok(true);
                    }
                }
                Some((from, Message::Arrival(arrival))) => {
                    self.take_arrival(group, from, &arrival)?;
                    if arrival.version > group.members.version() {
                        self.look(group, wait, arrival.version)?;
                    }
                }
                None => {
                    pause = (pause * 2).min(LOOK.1);
                    self.look(group, wait, 0)?;
                }
            }
            if gatherer(group) != self.tid() {
                // A joiner that has arrived here will see that too, and arrive there.
                group.arrived.retain(|_, number| *number != 0);
                return Ok(false);
            }
        }
    }

    /// The gatherer's look for a version that is not below `version`.
    fn look(&self, group: &mut Group, wait: &Wait, version: u64) -> Result<(), GroupError> {
        let newest = self.members_since(group, version)?;
        match self.can_go_on(group, wait, &newest)? {
            true => self.adopt(group, newest),
            false => Ok(()),
        }
    }

    /// Whether no go can come any more from the tasks that are no members in `newest`: all that they
    /// sent before they ended or left has come, and was no go.
    fn can_go_on(&self, group: &Group, wait: &Wait, newest: &Members) -> Result<bool, GroupError> {
        for tid in &wait.told {
            if newest.instance(*tid).is_none() && !self.shared.has_gone(group.name(), *tid)? {
                return Ok(false);
            }
        }
        // A message that came since this member listened last may be the go.
        Ok(!self.shared.has_group_message(group.name(), BARRIER)?)
    }

    /// Whether the barrier is over: all have arrived, or those ahead show that it was.
    fn count(&self, group: &mut Group) -> Result<Option<bool>, GroupError> {
        let known = group.arrived.values().copied().max().unwrap_or(0);
        let number = known.max(group.next).max(1);
        let behind = |at: u64| at != 0 && at < number;

        let late: Vec<Tid> = group
            .arrived
            .extract_if(.., |_, at| behind(*at))
            .map(|(tid, _)| tid)
            .collect();
        for tid in late {
            self.say_go(group, tid, number - 1, true)?;
        }
        if behind(group.next) {
            group.next = number;
            return Ok(Some(true));
        }

        let missing = |tid: &Tid| *tid != self.tid() && !group.arrived.contains_key(tid);
        if group.members.iter().any(|(_, tid)| missing(&tid)) {
            return Ok(None);
        }
        self.over(group, number)?;
        Ok(Some(true))
    }

    /// Takes an arrival. A sender that is in a barrier that is over here is let through.
    fn take_arrival(
        &self,
        group: &mut Group,
        from: Tid,
        arrival: &Arrival,
    ) -> Result<(), GroupError> {
        let Arrival {
            ref members,
            number,
            version,
        } = *arrival;
        if number != 0 && number < group.next {
            return self.say_go(group, from, group.next - 1, true);
        }
        group
            .senders
            .insert(from, ArrivalSender { number, version });
        for tid in members {
            let at = group.arrived.entry(*tid).or_default();
            *at = number.max(*at);
        }
        Ok(())
    }

    /// Takes a go, and passes it on; `false` if its barrier was over for this task already.
    /// `begun`: the members with which this task began to wait. If this task has taken a newer version
    /// since, it goes back: those that are through may use that version in their next call.
    fn pass(&self, group: &mut Group, begun: &Members, go: Go) -> Result<bool, GroupError> {
        // A go of a barrier that is over for this task answers an arrival at a gatherer of before.
        if go.number < group.next || go.version < group.joined {
            return Ok(false);
        }
        match go.members {
            Some(members) => self.adopt(group, members)?,
            None if go.version == begun.version() && go.version != group.members.version() => {
                self.adopt(group, begun.clone())?;
            }
            None => {}
        }
        self.over(group, go.number)?;
        Ok(true)
    }

    /// This barrier is over: those that have sent arrivals here are told.
    fn over(&self, group: &mut Group, number: u64) -> Result<(), GroupError> {
        // A joiner that this version does not have waits on for a gatherer that knows it.
        let members = &group.members;
        let through =
            |tid: &Tid, at: u64| at <= number && (at != 0 || members.instance(*tid).is_some());
        group.arrived.retain(|tid, at| !through(tid, *at));
        let senders: Vec<(Tid, ArrivalSender)> = group
            .senders
            .extract_if(.., |tid, sender| through(tid, sender.number))
            .collect();
        for (tid, sender) in senders {
            let other = sender.version != group.members.version();
            self.say_go(group, tid, number, other)?;
        }
        group.next = number + 1;
        Ok(())
    }

    fn say_arrival(
        &self,
        group: &Group,
        to: Tid,
        members: Vec<Tid>,
        number: u64,
    ) -> Result<(), GroupError> {
        let version = group.members.version();
        let arrival = Arrival {
            members,
            number,
            version,
        };
        self.say(group, to, &Message::Arrival(arrival))
    }

    /// `other`: the receiver may have another version.
    fn say_go(&self, group: &Group, to: Tid, number: u64, other: bool) -> Result<(), GroupError> {
        let go = Go::of(number, &group.members, other);
        self.say(group, to, &Message::Go(go))
    }

    /// Sends a message of the barrier.
    fn say(&self, group: &Group, to: Tid, message: &Message) -> Result<(), GroupError> {
        let body = encode_value(message).map_err(crate::SendError::Value)?;
        self.shared.group_send(group.name(), &[to], BARRIER, &body)
    }

    /// The next message of the barrier; `None` if none comes in time.
    fn listen(
        &self,
        group: &Group,
        time: std::time::Duration,
    ) -> Result<Option<(Tid, Message)>, GroupError> {
        let until = Some(now() + time);
        let taken = self.shared.group_take(group.name(), None, BARRIER, until)?;
        let Some((from, body)) = taken else {
            return Ok(None);
        };
        let read = decode_value(&body).map_err(|cause| GroupError::Value {
            group: group.name().to_owned(),
            from,
            cause,
        });
        Ok(Some((from, read?)))
    }
}

/// The parent of this member in the tree, and the other members of its subtree.
fn place(group: &Group, me: Tid) -> (Tid, Vec<Tid>) {
    if group.size() <= FLAT_MEMBERS {
        return (gatherer(group), Vec::new());
    }
    let order: Vec<Tid> = group.members.iter().map(|(_, tid)| tid).collect();
    let at = order.iter().position(|tid| *tid == me).unwrap_or(0);
    let subtree = at + 1..at + tree::subtree(at, order.len().max(1));
    let parent = tree::parent(at).unwrap_or(0);
    let parent = order.get(parent).copied().unwrap_or_default();
    (parent, order.get(subtree).unwrap_or_default().to_vec())
}

/// The member to which the others go: the lowest instance.
fn gatherer(group: &Group) -> Tid {
    first(&group.members)
}

fn first(members: &Members) -> Tid {
    let first = members.iter().min();
    first.map(|(_, tid)| tid).unwrap_or_default()
}
