//! Groups, and their members.

use crate::{
    border::{Out, Place, Room, Text, write_text},
    code::{Code, Status},
    error::{Error, call, value},
    handle::{Handle, Kept, Table},
    task::{copy_out, task},
};
use std::{
    ffi::{c_char, c_int},
    sync::{Arc, Mutex, TryLockError},
};
use vmlib::{Group, Members, Task};

/// A group that this task is a member of (`vm_group`): `None` once it has left.
#[derive(Debug, Clone)]
pub struct Membership {
    group: Arc<Mutex<Option<Group>>>,
}

impl Kept for Membership {
    const KIND: u8 = 4;
    fn table() -> &'static Table<Self> {
        static TABLE: Table<Membership> = Table::new();
        &TABLE
    }
}

impl Membership {
    /// Does something with the group, alone. An error if another thread is in a call with it.
    fn with<R>(
        &self,
        act: impl FnOnce(&mut Option<Group>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut group = match self.group.try_lock() {
            Ok(group) => group,
            Err(TryLockError::Poisoned(group)) => group.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(
                    Code::InUse,
                    "another thread is in a call with this group: let one thread make its calls",
                ));
            }
        };
        act(&mut group)
    }
}

/// Does something with the group of a handle.
pub fn with_group<R>(
    group: Handle<Membership>,
    act: impl FnOnce(&mut Group) -> Result<R, Error>,
) -> Result<R, Error> {
    let membership = group.with(|it| it.clone())?;
    membership.with(|group| match group {
        Some(group) => act(group),
        None => Err(has_left()),
    })
}

fn has_left() -> Error {
    Error::new(
        Code::NotMember,
        "this task has left the group: join it first",
    )
}

/// Makes a call of this task in a group.
pub fn in_group(
    vm: Handle<Task>,
    group: Handle<Membership>,
    act: impl FnOnce(&Task, &mut Group) -> Result<Status, Error>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        with_group(group, |group| act(&task, group))
    })
}

/// `vm_member`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Member {
    tid: u64,
    instance: u32,
    reserved: u32,
}

/// Joins a group.
#[unsafe(no_mangle)]
pub extern "C" fn vm_join(
    vm: Handle<Task>,
    name: Text<'_>,
    group: Out<'_, Handle<Membership>>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let mut place = group.place_with(Handle::NULL, "the place for the group")?;
        let group = task.join(name.get("the name")?)?;
        place.put(Handle::keep(Membership {
            group: Arc::new(Mutex::new(Some(group))),
        }));
        Ok(Status::Done)
    })
}

/// Leaves a group, and frees its handle.
#[unsafe(no_mangle)]
pub extern "C" fn vm_leave(vm: Handle<Task>, group: Handle<Membership>) -> c_int {
    call(|| {
        let task = task(vm)?;
        let membership = group.with(|it| it.clone())?;
        membership.with(|member| {
            let left = member.take().ok_or_else(has_left)?;
            group.free()?;
            Ok(task.leave(left)?)
        })?;
        Ok(Status::Done)
    })
}

/// Frees the handle; this task stays a member.
#[unsafe(no_mangle)]
pub extern "C" fn vm_group_free(group: Handle<Membership>) -> c_int {
    call(|| group.free().map(|()| Status::Done))
}

/// Writes the name of a group.
#[unsafe(no_mangle)]
pub extern "C" fn vm_group_name(
    group: Handle<Membership>,
    name: Room<'_, c_char>,
    size: usize,
) -> c_int {
    call(|| {
        let room = name.slice(size, "the room for the name")?;
        with_group(group, |group| write_text(group.name(), room, "the name"))?;
        Ok(Status::Done)
    })
}

/// This task's number in the group.
#[unsafe(no_mangle)]
pub extern "C" fn vm_group_instance(group: Handle<Membership>) -> i64 {
    let instance = || with_group(group, |group| Ok(group.instance()));
    value(instance, i64::from, i64::from)
}

/// How many members the group has, as far as the handle knows.
#[unsafe(no_mangle)]
pub extern "C" fn vm_group_size(group: Handle<Membership>) -> i64 {
    let size = || with_group(group, |group| Ok(group.size()));
    value(size, |size| size as i64, i64::from)
}

/// The member with an instance number.
#[unsafe(no_mangle)]
pub extern "C" fn vm_group_tid(
    group: Handle<Membership>,
    instance: u32,
    tid: Out<'_, u64>,
) -> c_int {
    call(|| {
        let mut place = tid.place_with(0, "the place for the id")?;
        with_group(group, |group| {
            let none = || vmlib::GroupError::NoInstance {
                group: group.name().to_owned(),
                instance,
            };
            place.put(group.members().tid(instance).ok_or_else(none)?.0);
            Ok(Status::Done)
        })
    })
}

/// Copies the members of one version.
fn copy_members(
    members: &Members,
    places: &mut [Member],
    mut count: Place<'_, usize>,
) -> Result<Status, Error> {
    count.put(members.size());
    let all: Vec<Member> = members
        .iter()
        .map(|(instance, tid)| Member {
            tid: tid.0,
            instance,
            reserved: 0,
        })
        .collect();
    copy_out(all.into_iter(), places, "members")?;
    Ok(Status::Done)
}

/// The members of a group, as far as the handle knows.
#[unsafe(no_mangle)]
pub extern "C" fn vm_group_members(
    group: Handle<Membership>,
    members: Room<'_, Member>,
    room: usize,
    count: Out<'_, usize>,
) -> c_int {
    call(|| {
        let count = count.place_with(0, "the place for the count")?;
        let places = members.slice(room, "the room for the members")?;
        with_group(group, |group| copy_members(group.members(), places, count))
    })
}

/// The members of the group of a name, as the machine knows them now.
#[unsafe(no_mangle)]
pub extern "C" fn vm_members(
    vm: Handle<Task>,
    name: Text<'_>,
    members: Room<'_, Member>,
    room: usize,
    count: Out<'_, usize>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let count = count.place_with(0, "the place for the count")?;
        let places = members.slice(room, "the room for the members")?;
        copy_members(&task.group(name.get("the name")?)?, places, count)
    })
}

/// Brings the handle up to what the machine knows now.
#[unsafe(no_mangle)]
pub extern "C" fn vm_refresh(vm: Handle<Task>, group: Handle<Membership>) -> c_int {
    in_group(vm, group, |task, group| {
        task.refresh(group)?;
        Ok(Status::Done)
    })
}

/// Waits until the group has so many members.
#[unsafe(no_mangle)]
pub extern "C" fn vm_await_members(
    vm: Handle<Task>,
    group: Handle<Membership>,
    count: usize,
) -> c_int {
    in_group(vm, group, |task, group| {
        task.await_members(group, count)?;
        Ok(Status::Done)
    })
}

/// Waits until every member has called this.
#[unsafe(no_mangle)]
pub extern "C" fn vm_barrier(vm: Handle<Task>, group: Handle<Membership>) -> c_int {
    in_group(vm, group, |task, group| {
        task.barrier(group)?;
        Ok(Status::Done)
    })
}
