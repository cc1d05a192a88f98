//! The barrier of a group, whose members may join, leave and end meanwhile.
//!
//! The member with the lowest instance gathers. The others send it an *arrival* and
//! wait for its *go*. Barriers are numbered: an arrival says which one its sender is in (0 if it
//! joined since and does not know), the go says which one is over. So when the gatherer changes in
//! between - it left, it died, a joiner got a lower free instance - everybody sends its arrival to
//! the new one, who can tell from the numbers whether the barrier was over already: some member
//! that received the old gatherer's go is one ahead, and those that missed it are let through. The
//! gatherer counts the members that the newest version it has heard of has; everybody looks for a
//! newer version now and then while it waits, so a member that ended is not waited for.

use crate::{
    Task,
    clock::now,
    error::GroupError,
    group::{Group, LOOK},
    message::{decode_value, encode_value},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use vm_wire::Tid;

/// The tags inside a group's context.
const ARRIVAL: i32 = 1;
const GO: i32 = 2;

/// "I wait in this barrier", to the gatherer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Arrival {
    /// Number of the barrier; 0: the sender has not been in one of this group yet.
    number: u64,
    /// Version of the group that the sender knows.
    version: u64,
}

/// "This barrier is over", from the gatherer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Go {
    number: u64,
    /// Version of the group that the gatherer knows. One from before the receiver joined is meant
    /// for what the receiver was in an earlier membership.
    version: u64,
}

impl Task {
    /// Waits until every member has called this. A task that joins later is waited for too if the
    /// member with the lowest instance hears of it in time: to be sure who takes part, let all
    /// join before the first barrier ([`Task::await_members`]).
    ///
    /// # Errors
    /// [`GroupError`], see there.
    pub fn barrier(&self, group: &mut Group) -> Result<(), GroupError> {
        loop {
            let over = match gatherer(group) {
                tid if tid == self.tid() => self.gather_arrivals(group)?,
                tid => self.arrive(group, tid)?,
            };
            if over {
                return Ok(());
            }
        }
    }

    /// One member's part of a barrier; `false` if the gatherer has changed.
    fn arrive(&self, group: &mut Group, gatherer_tid: Tid) -> Result<bool, GroupError> {
        let arrival = Arrival {
            number: group.next,
            version: group.members.version(),
        };
        self.say(group, &[gatherer_tid], ARRIVAL, &arrival)?;
        let mut pause = LOOK.0;
        loop {
            let until = Some(now() + pause);
            let went = self.shared.group_take(group.name(), None, GO, until)?;
            if let Some((from, body)) = went {
                let go: Go = hear(group, from, &body)?;
                // A go of a barrier that is over for this task answers an arrival at a gatherer
                // of before.
                if go.number >= group.next && go.version >= group.joined {
                    group.next = go.number + 1;
                    return Ok(true);
                }
                continue;
            }
            pause = (pause * 2).min(LOOK.1);
            self.refresh(group)?;
            if gatherer(group) != gatherer_tid {
                return Ok(false);
            }
        }
    }

    /// The gatherer's part of a barrier; `false` if it is that no more.
    fn gather_arrivals(&self, group: &mut Group) -> Result<bool, GroupError> {
        let mut pause = LOOK.0;
        loop {
            if let Some(over) = self.count(group)? {
                return Ok(over);
            }
            let until = Some(now() + pause);
            let arrived = self.shared.group_take(group.name(), None, ARRIVAL, until)?;
            match arrived {
                Some((from, body)) => {
                    let arrival: Arrival = hear(group, from, &body)?;
                    group.arrived.insert(from, arrival.number);
                    if arrival.version > group.members.version() {
                        self.refresh_to(group, arrival.version)?;
                    }
                }
                None => {
                    pause = (pause * 2).min(LOOK.1);
                    self.refresh(group)?;
                }
            }
            if gatherer(group) != self.tid() {
                // Who has arrived here will see that too, and arrive there.
                group.arrived.clear();
                return Ok(false);
            }
        }
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
        let version = group.members.version();
        let go = |number| Go { number, version };
        self.say(group, &late, GO, &go(number - 1))?;
        if behind(group.next) {
            group.next = number;
            return Ok(Some(true));
        }

        let missing = |tid: &Tid| *tid != self.tid() && !group.arrived.contains_key(tid);
        if group.members.iter().any(|(_, tid)| missing(&tid)) {
            return Ok(None);
        }
        let all: Vec<Tid> = std::mem::take(&mut group.arrived).into_keys().collect();
        self.say(group, &all, GO, &go(number))?;
        group.next = number + 1;
        Ok(Some(true))
    }

    /// Sends a message of the barrier.
    fn say(
        &self,
        group: &Group,
        to: &[Tid],
        tag: i32,
        message: &impl Serialize,
    ) -> Result<(), GroupError> {
        let body = encode_value(message).map_err(crate::SendError::Value)?;
        self.shared.group_send(group.name(), to, tag, &body)
    }
}

/// Reads a message of the barrier.
fn hear<T: DeserializeOwned>(group: &Group, from: Tid, body: &[u8]) -> Result<T, GroupError> {
    decode_value(body).map_err(|cause| GroupError::Value {
        group: group.name().to_owned(),
        from,
        cause,
    })
}

/// The member to which the others go: the lowest instance.
fn gatherer(group: &Group) -> Tid {
    let first = group.members.iter().min();
    first.map(|(_, tid)| tid).unwrap_or_default()
}
