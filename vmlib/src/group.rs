//! Groups: named sets of tasks, with instance numbers, a barrier and a broadcast.
//!
//! Who is in a group is part of what the machine agrees on: each join and leave makes a new
//! *version*. A task that ends leaves its groups. Barrier and broadcast are messages among the
//! members, in a context of their own that no user's receive selects.
//!
//! **Barrier.** The member with the lowest instance gathers. The others send it an *arrival* and
//! wait for its *go*. Barriers are numbered: an arrival says which one its sender is in (0 if it
//! joined since and does not know), the go says which one is over. So when the gatherer changes in
//! between - it left, it died, a joiner got a lower free instance - everybody sends its arrival to
//! the new one, who can tell from the numbers whether the barrier was over already: some member
//! that received the old gatherer's go is one ahead, and those that missed it are let through. The
//! gatherer counts the members that the newest version it has heard of has; everybody looks for a
//! newer version now and then while it waits, so a member that ended is not waited for.
//!
//! **Broadcast** sends the root's value to each other member of the version that the root's handle
//! has. Members that joined later are not in it: [`Task::await_members`] brings all to one version.
//!
//! The context is a hash of the group's name; the name stands in front of every such message, and
//! the rare message of another group with the same hash is put aside for that one.

use crate::{
    Task,
    error::GroupError,
    message::{decode_value, encode_value},
    primitive::{Attempt, Shared, now},
};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, time::Duration};
use vm_machine::{Filter, Received, Time};
use vm_wire::{
    Tid, limits,
    task::{FailKind, Failed, GroupAsk, GroupChange, GroupView},
};

/// How long a member waits before it looks for a newer version, at first and at most.
const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// The tags inside a group's context.
const ARRIVAL: i32 = 1;
const GO: i32 = 2;
const BROADCAST: i32 = 3;

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
}

/// The members of a group as of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    view: GroupView,
}

impl Members {
    /// Goes up with each join and leave.
    pub fn version(&self) -> u64 {
        self.view.version
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.view.members.len()
    }

    /// Instance number and tid of each, by instance.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Tid)> + '_ {
        self.view.members.iter().copied()
    }

    /// The member with that instance number.
    pub fn tid(&self, instance: u32) -> Option<Tid> {
        let found = self.iter().find(|(number, _)| *number == instance);
        found.map(|(_, tid)| tid)
    }

    /// The instance number of that member.
    pub fn instance(&self, tid: Tid) -> Option<u32> {
        let found = self.iter().find(|(_, member)| *member == tid);
        found.map(|(number, _)| number)
    }
}

/// A group that this task is a member of; from [`Task::join`].
#[derive(Debug)]
pub struct Group {
    instance: u32,
    members: Members,
    /// Number of the barrier that this task is in next; 0: not known.
    next: u64,
    /// For the gatherer: who has arrived where.
    arrived: BTreeMap<Tid, u64>,
}

impl Group {
    /// The group's name.
    pub fn name(&self) -> &str {
        &self.members.view.group
    }

    /// This task's number in the group: the lowest that was free when it joined.
    pub fn instance(&self) -> u32 {
        self.instance
    }

    /// How many members the group has, as far as this handle knows ([`Task::refresh`]).
    pub fn size(&self) -> usize {
        self.members.size()
    }

    /// The members, as far as this handle knows ([`Task::refresh`]).
    pub fn members(&self) -> &Members {
        &self.members
    }
}

impl Task {
    /// Joins the group of that name, which its first member makes.
    ///
    /// # Errors
    /// [`GroupError::Refused`] for a bad name, or when a limit is reached.
    pub fn join(&self, name: &str) -> Result<Group, GroupError> {
        check_name(name)?;
        let members = self.change(name, true)?;
        match members.instance(self.tid()) {
            Some(instance) => Ok(Group {
                instance,
                members,
                next: 0,
                arrived: BTreeMap::new(),
            }),
            None => Err(not_member(name)),
        }
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// [`GroupError`], see there.
    pub fn leave(&self, group: Group) -> Result<(), GroupError> {
        self.change(group.name(), false)?;
        Ok(())
    }

    /// The members of a group that this task need not be in, as its daemon knows them now.
    ///
    /// # Errors
    /// [`GroupError::Refused`] when there is no such group.
    pub fn group(&self, name: &str) -> Result<Members, GroupError> {
        check_name(name)?;
        self.view(name, 0)
    }

    /// Brings the handle up to what the daemon knows now.
    ///
    /// # Errors
    /// [`GroupError::NotMember`] when this task is no member any more.
    pub fn refresh(&self, group: &mut Group) -> Result<(), GroupError> {
        self.refresh_to(group, 0)
    }

    /// Waits until the group has at least `count` members, and brings the handle up to that. A
    /// member that leaves again before others have seen it keeps them waiting: let a barrier follow
    /// before anybody leaves.
    ///
    /// # Errors
    /// As [`Task::refresh`].
    pub fn await_members(&self, group: &mut Group, count: usize) -> Result<(), GroupError> {
        let mut pause = LOOK.0;
        while group.size() < count {
            self.refresh(group)?;
            if group.size() < count {
                self.shared.pause(pause)?;
                pause = (pause * 2).min(LOOK.1);
            }
        }
        Ok(())
    }

    /// Waits until every member has called this. A task that joins later is waited for too if the
    /// member with the lowest instance hears of it in time: to be sure who takes part, let all
    /// join before the first barrier ([`Task::await_members`]).
    ///
    /// # Errors
    /// [`GroupError`], see there.
    pub fn barrier(&self, group: &mut Group) -> Result<(), GroupError> {
        loop {
            let over = match gatherer(group) {
                tid if tid == self.tid() => self.gather(group)?,
                tid => self.arrive(group, tid)?,
            };
            if over {
                return Ok(());
            }
        }
    }

    /// Gives `value` of the member with instance `root` to all members. Every member calls this
    /// with the same `root`; the others' values are replaced.
    ///
    /// # Errors
    /// [`GroupError`], see there.
    pub fn broadcast<T: Serialize + DeserializeOwned>(
        &self,
        group: &Group,
        root: u32,
        value: &mut T,
    ) -> Result<(), GroupError> {
        if group.instance == root {
            let body = encode_value(value).map_err(crate::SendError::Value)?;
            self.broadcast_bytes(group, root, body)?;
            return Ok(());
        }
        let body = self.broadcast_bytes(group, root, Bytes::new())?;
        *value = decode_value(&body).map_err(|cause| GroupError::Value {
            group: group.name().to_owned(),
            from: group.members.tid(root).unwrap_or_default(),
            cause,
        })?;
        Ok(())
    }

    /// As [`Task::broadcast`], with bytes: those of the root are returned everywhere.
    ///
    /// # Errors
    /// [`GroupError`], see there.
    pub fn broadcast_bytes(
        &self,
        group: &Group,
        root: u32,
        bytes: impl Into<Bytes>,
    ) -> Result<Bytes, GroupError> {
        let name = group.name();
        let Some(tid) = group.members.tid(root) else {
            return Err(GroupError::NoInstance {
                group: name.to_owned(),
                instance: root,
            });
        };
        if tid != self.tid() {
            let received = self.shared.group_take(name, Some(tid), BROADCAST, None)?;
            return Ok(received.map(|(_, body)| body).unwrap_or_default());
        }
        let bytes = bytes.into();
        let others = group.members.iter().map(|(_, tid)| tid);
        let others: Vec<Tid> = others.filter(|tid| *tid != self.tid()).collect();
        self.shared.group_send(name, &others, BROADCAST, &bytes)?;
        Ok(bytes)
    }

    fn change(&self, name: &str, join: bool) -> Result<Members, GroupError> {
        let group = name.to_owned();
        let answer = self.shared.request(&GroupChange { group, join });
        let view = answer.map_err(|error| member_error(name, error.into()))?;
        Ok(Members { view })
    }

    /// The members at a version that is not below `version`.
    fn view(&self, name: &str, version: u64) -> Result<Members, GroupError> {
        let group = name.to_owned();
        let view = self.shared.request(&GroupAsk { group, version })?;
        Ok(Members { view })
    }

    fn refresh_to(&self, group: &mut Group, version: u64) -> Result<(), GroupError> {
        let members = self
            .view(group.name(), version)
            .map_err(|error| match error {
                GroupError::Refused(Failed {
                    kind: FailKind::NoSuchGroup,
                    ..
                }) => not_member(group.name()),
                error => error,
            })?;
        match members.instance(self.tid()) {
            Some(instance) => {
                group.instance = instance;
                group.members = members;
                Ok(())
            }
            None => Err(not_member(group.name())),
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
                if go.number >= group.next {
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
    fn gather(&self, group: &mut Group) -> Result<bool, GroupError> {
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
        self.say(group, &late, GO, &Go { number: number - 1 })?;
        if behind(group.next) {
            group.next = number;
            return Ok(Some(true));
        }

        let missing = |tid: &Tid| *tid != self.tid() && !group.arrived.contains_key(tid);
        if group.members.iter().any(|(_, tid)| missing(&tid)) {
            return Ok(None);
        }
        let all: Vec<Tid> = std::mem::take(&mut group.arrived).into_keys().collect();
        self.say(group, &all, GO, &Go { number })?;
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

fn check_name(name: &str) -> Result<(), GroupError> {
    if name.is_empty() || name.len() > limits::NAME_MAX {
        let text = format!(
            "a group's name has 1 to {} bytes, this one {}",
            limits::NAME_MAX,
            name.len()
        );
        return Err(Failed::new(FailKind::BadRequest, text).into());
    }
    Ok(())
}

fn not_member(group: &str) -> GroupError {
    GroupError::NotMember {
        group: group.to_owned(),
    }
}

fn member_error(group: &str, error: GroupError) -> GroupError {
    match error {
        GroupError::Refused(Failed {
            kind: FailKind::NotMember,
            ..
        }) => not_member(group),
        error => error,
    }
}

/// The context of a group's own messages: FNV-1a of its name, in the upper half of the numbers, of
/// which none is the user's.
fn context(group: &str) -> u32 {
    let hash = group.bytes().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash | 1 << 31
}

/// A message's payload without the name, if that is the group's.
fn payload_of(group: &str, body: &Bytes) -> Option<Bytes> {
    let (len, rest) = body.split_first()?;
    let name = rest.get(..usize::from(*len))?;
    (name == group.as_bytes()).then(|| body.slice(1 + name.len()..))
}

impl Shared {
    /// Sends to members of a group.
    fn group_send(
        &self,
        group: &str,
        to: &[Tid],
        tag: i32,
        payload: &[u8],
    ) -> Result<(), GroupError> {
        let mut body = BytesMut::with_capacity(1 + group.len() + payload.len());
        // `check_name` saw to it that the length fits.
        body.put_u8(group.len() as u8);
        body.put_slice(group.as_bytes());
        body.put_slice(payload);
        self.send_to(to, context(group), tag, body.freeze())?;
        Ok(())
    }

    /// Receives from a member of a group.
    fn group_take(
        &self,
        group: &str,
        from: Option<Tid>,
        tag: i32,
        until: Option<Time>,
    ) -> Result<Option<(Tid, Bytes)>, GroupError> {
        let filter = Filter {
            context: context(group),
            from,
            tag: Some(tag),
        };
        let wanted = |stray: &Received| {
            stray.context == filter.context
                && stray.tag == tag
                && from.is_none_or(|from| from == stray.from)
                && payload_of(group, &stray.body).is_some()
        };
        loop {
            let stray = self.run(|core, _| {
                let at = core.strays.iter().position(wanted);
                let stray = at.and_then(|at| core.strays.remove(at));
                Ok::<_, GroupError>(Attempt::Done(stray))
            })?;
            let received = match stray {
                Some(stray) => Some(stray),
                None => self.take_until(&filter, until)?,
            };
            let Some(received) = received else {
                return Ok(None);
            };
            if let Some(payload) = payload_of(group, &received.body) {
                return Ok(Some((received.from, payload)));
            }
            self.run(|core, _| {
                core.strays.push_back(received.clone());
                Ok::<_, GroupError>(Attempt::Done(()))
            })?;
        }
    }

    /// Waits, and serves what comes meanwhile.
    fn pause(&self, time: Duration) -> Result<(), GroupError> {
        let until = now() + time;
        self.run(|_, now| {
            Ok(match now >= until {
                true => Attempt::Done(()),
                false => Attempt::Wait(Some(until)),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_read_only_by_the_group_that_it_names() {
        let body = Bytes::from_static(b"\x04gridpayload");
        assert_eq!(payload_of("grid", &body).unwrap(), "payload");
        assert_eq!(payload_of("grip", &body), None);
        assert_eq!(payload_of("grid", &Bytes::from_static(b"\x09grid")), None);
        assert_eq!(payload_of("grid", &Bytes::new()), None);
    }

    #[test]
    fn no_group_has_the_users_context() {
        assert!(["", "a", "grid"].iter().all(|name| context(name) != 0));
    }
}
