//! Groups: named sets of tasks, with instance numbers.
//!
//! The members of a group are part of the agreed state of the machine: each join and leave makes a
//! new *version*. A task that ends leaves its groups. The calls that members make together
//! ([`crate::barrier`]) exchange messages in a context that no receive of the user selects.
//!
//! The context is a hash of the group's name; the name stands in front of every such message, and
//! the rare message of another group with the same hash is put aside for that one.

use crate::{
    Task,
    clock::now,
    collectives::{self, Progress},
    error::GroupError,
    primitive::{Attempt, Shared},
};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vm_endpoint::{Filter, Received, Time};
use vm_wire::{
    Tid, limits,
    task::{FailKind, Failed, GroupAsk, GroupChange, GroupView},
};

/// How long a member waits before it looks for a newer version, at first and at most.
pub(crate) const LOOK: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_millis(500));

/// The members of a group as of one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// A group that this task is a member of; from [`Task::join`]. In the state of a portable task it is
/// saved with the rest.
#[derive(Debug, Serialize, Deserialize)]
pub struct Group {
    pub(crate) instance: u32,
    pub(crate) members: Members,
    /// Version at which this task was seen to be a member first.
    pub(crate) joined: u64,
    /// Number of the barrier that this task is in next; 0: not known.
    pub(crate) next: u64,
    /// For the barrier: the members that have arrived, as far as this task knows, and in which one.
    pub(crate) arrived: BTreeMap<Tid, u64>,
    /// For the barrier: the tasks that have sent arrivals to this one.
    #[serde(default)]
    pub(crate) senders: BTreeMap<Tid, ArrivalSender>,
    /// Of the collective calls ([`crate::collectives`]).
    #[serde(default)]
    pub(crate) progress: Mutex<Progress>,
}

/// A task that has sent an arrival at a barrier to this one, which sends the go back.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ArrivalSender {
    /// Number of the barrier; 0: the sender does not know.
    pub(crate) number: u64,
    /// Version of the group that the sender knows.
    pub(crate) version: u64,
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
                joined: members.version(),
                members,
                next: 0,
                arrived: BTreeMap::new(),
                senders: BTreeMap::new(),
                progress: Mutex::default(),
            }),
            None => Err(not_member(name)),
        }
    }

    /// Leaves the group, and tells its members: a collective call that waits for this task fails.
    ///
    /// # Errors
    /// [`GroupError`], see there.
    pub fn leave(&self, group: Group) -> Result<(), GroupError> {
        let name = group.name();
        let members = self.change(name, false)?;
        let others: Vec<Tid> = members.iter().map(|(_, tid)| tid).collect();
        let left = collectives::left(name, members.version());
        self.shared
            .send_to(&others, context(name), collectives::CONTROL, left)?;
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

    /// Brings the handle up to what the daemon knows now, and to the newest version that a collective
    /// call has heard of ([`GroupError::Version`]).
    ///
    /// # Errors
    /// [`GroupError::NotMember`] when this task is no member any more.
    pub fn refresh(&self, group: &mut Group) -> Result<(), GroupError> {
        let progress = group.progress.get_mut();
        let heard = progress.unwrap_or_else(PoisonError::into_inner).heard();
        self.refresh_to(group, heard)
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

    /// Brings the handle to a version that is not below `version`.
    pub(crate) fn refresh_to(&self, group: &mut Group, version: u64) -> Result<(), GroupError> {
        let members = self.members_since(group, version)?;
        self.adopt(group, members)
    }

    /// The members as the daemon knows them now. The handle stays as it is.
    pub(crate) fn newest(&self, group: &Group) -> Result<Members, GroupError> {
        self.members_since(group, 0)
    }

    /// The members at a version that is not below `version`. The handle stays as it is.
    pub(crate) fn members_since(&self, group: &Group, version: u64) -> Result<Members, GroupError> {
        self.view(group.name(), version)
            .map_err(|error| match error {
                GroupError::Refused(Failed {
                    kind: FailKind::NoSuchGroup,
                    ..
                }) => not_member(group.name()),
                error => error,
            })
    }

    /// Brings the handle to that version.
    pub(crate) fn adopt(&self, group: &mut Group, members: Members) -> Result<(), GroupError> {
        match members.instance(self.tid()) {
            Some(instance) => {
                group.instance = instance;
                group.members = members;
                Ok(())
            }
            None => Err(not_member(group.name())),
        }
    }
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
pub(crate) fn context(group: &str) -> u32 {
    let hash = group.bytes().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash | 1 << 31
}

/// A message's payload without the name, if that is the group's.
pub(crate) fn payload_of(group: &str, body: &Bytes) -> Option<Bytes> {
    let (len, rest) = body.split_first()?;
    let name = rest.get(..usize::from(*len))?;
    (name == group.as_bytes()).then(|| body.slice(1 + name.len()..))
}

impl Shared {
    /// Sends to members of a group.
    pub(crate) fn group_send(
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
    pub(crate) fn group_take(
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
            handled: false,
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

    /// Whether a message of a group, or of one whose name has the same hash, has come.
    pub(crate) fn has_group_message(&self, group: &str, tag: i32) -> Result<bool, GroupError> {
        let filter = Filter {
            context: context(group),
            from: None,
            tag: Some(tag),
            handled: false,
        };
        self.run(|core, _| Ok(Attempt::Done(core.endpoint.peek(&filter).is_some())))
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
