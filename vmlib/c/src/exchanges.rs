//! Collective calls in which the values of members go to others as they are.

use crate::{
    blocks::Blocks,
    border::{In, Out, Room},
    code::{Code, Status},
    error::Error,
    groups::{Membership, in_group},
    handle::Handle,
    number::with_numbers,
};
use std::ffi::{c_int, c_void};
use vmlib::{Group, Number, Task};

/// The number of values of all members, if each has `count`.
fn of_all(group: &Group, count: usize) -> Result<usize, Error> {
    let all = count.checked_mul(group.size());
    all.ok_or_else(|| Error::invalid(format!("{count} values of each member are too many")))
}

/// The values of one member for each, one list after the other.
fn lists<'a, T: Number>(
    group: &Group,
    values: In<'a, c_void>,
    counts: In<'_, usize>,
) -> Result<Vec<&'a [T]>, Error> {
    let counts = counts.slice(group.size(), "the list of counts")?;
    let all = counts
        .iter()
        .try_fold(0, |sum: usize, count| sum.checked_add(*count));
    let all = all.ok_or_else(|| Error::invalid("the sum of the counts is too great"))?;
    let mut rest = values.numbers::<T>(all, "the values")?;
    let list = |count: &usize| {
        let (list, others) = rest.split_at(*count);
        rest = others;
        list
    };
    Ok(counts.iter().map(list).collect())
}

/// Gives the values of one member to all.
#[unsafe(no_mangle)]
pub extern "C" fn vm_broadcast(
    vm: Handle<Task>,
    group: Handle<Membership>,
    root: u32,
    values: Room<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the values")?;
            task.broadcast_slice(group, root, values)?;
        });
        Ok(Status::Done)
    })
}

/// Gives bytes of one member, whose length the others need not know, to all.
#[unsafe(no_mangle)]
pub extern "C" fn vm_broadcast_bytes(
    vm: Handle<Task>,
    group: Handle<Membership>,
    root: u32,
    data: In<'_, c_void>,
    size: usize,
    received: Out<'_, Handle<Blocks>>,
) -> c_int {
    in_group(vm, group, |task, group| {
        let mut place = received.place_with(Handle::NULL, "the place for the blocks")?;
        let own = match group.instance() == root {
            true => data.numbers::<u8>(size, "the data")?.to_vec(),
            false => Vec::new(),
        };
        let bytes = task.broadcast_bytes(group, root, own)?;
        place.put(Handle::keep(Blocks::new(&[bytes.to_vec()])));
        Ok(Status::Done)
    })
}

/// Gives the values of all members to one.
#[unsafe(no_mangle)]
pub extern "C" fn vm_gather(
    vm: Handle<Task>,
    group: Handle<Membership>,
    root: u32,
    values: In<'_, c_void>,
    count: usize,
    result: Room<'_, c_void>,
    room: usize,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        let all = of_all(group, count)?;
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the values")?;
            let places = match group.instance() == root {
                true => result.places::<T>(enough(room, all)?, "the result")?,
                false => result.places::<T>(0, "the result")?,
            };
            if let Some(gathered) = task.gather(group, root, values)? {
                places.fill(&gathered)?;
            }
        });
        Ok(Status::Done)
    })
}

/// `needed`, if there is room for so many.
fn enough(room: usize, needed: usize) -> Result<usize, Error> {
    match room < needed {
        true => Err(Error::new(
            Code::Space,
            format!("{needed} values come, and there is room for {room}: the call was not made"),
        )),
        false => Ok(needed),
    }
}

/// As `vm_gather`, with as many values as each member likes.
#[unsafe(no_mangle)]
pub extern "C" fn vm_gatherv(
    vm: Handle<Task>,
    group: Handle<Membership>,
    root: u32,
    values: In<'_, c_void>,
    count: usize,
    r#type: c_int,
    blocks: Out<'_, Handle<Blocks>>,
) -> c_int {
    in_group(vm, group, |task, group| {
        let place = match group.instance() == root {
            true => Some(blocks.place_with(Handle::NULL, "the place for the blocks")?),
            false => None,
        };
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the values")?;
            let gathered = task.gatherv(group, root, values)?;
            if let (Some(mut place), Some(lists)) = (place, gathered) {
                place.put(Handle::keep(Blocks::new(&lists)));
            }
        });
        Ok(Status::Done)
    })
}

/// Gives each member a block of the values of one.
#[unsafe(no_mangle)]
pub extern "C" fn vm_scatter(
    vm: Handle<Task>,
    group: Handle<Membership>,
    root: u32,
    values: In<'_, c_void>,
    count: usize,
    result: Room<'_, c_void>,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        let all = match group.instance() == root {
            true => of_all(group, count)?,
            false => 0,
        };
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(all, "the values")?;
            let places = result.places::<T>(count, "the result")?;
            places.fill(&task.scatter(group, root, values)?)?;
        });
        Ok(Status::Done)
    })
}

/// As `vm_scatter`, with as many values for each member as the root likes.
#[unsafe(no_mangle)]
pub extern "C" fn vm_scatterv(
    vm: Handle<Task>,
    group: Handle<Membership>,
    root: u32,
    values: In<'_, c_void>,
    counts: In<'_, usize>,
    r#type: c_int,
    block: Out<'_, Handle<Blocks>>,
) -> c_int {
    in_group(vm, group, |task, group| {
        let mut place = block.place_with(Handle::NULL, "the place for the blocks")?;
        with_numbers!(r#type, T => {
            let lists = match group.instance() == root {
                true => lists::<T>(group, values, counts)?,
                false => Vec::new(),
            };
            let list = task.scatterv(group, root, &lists)?;
            place.put(Handle::keep(Blocks::new(&[list])));
        });
        Ok(Status::Done)
    })
}

/// Gives the values of all members to all.
#[unsafe(no_mangle)]
pub extern "C" fn vm_allgather(
    vm: Handle<Task>,
    group: Handle<Membership>,
    values: In<'_, c_void>,
    count: usize,
    result: Room<'_, c_void>,
    room: usize,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        let all = enough(room, of_all(group, count)?)?;
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the values")?;
            let places = result.places::<T>(all, "the result")?;
            places.fill(&task.allgather(group, values)?)?;
        });
        Ok(Status::Done)
    })
}

/// As `vm_allgather`, with as many values as each member likes.
#[unsafe(no_mangle)]
pub extern "C" fn vm_allgatherv(
    vm: Handle<Task>,
    group: Handle<Membership>,
    values: In<'_, c_void>,
    count: usize,
    r#type: c_int,
    blocks: Out<'_, Handle<Blocks>>,
) -> c_int {
    in_group(vm, group, |task, group| {
        let mut place = blocks.place_with(Handle::NULL, "the place for the blocks")?;
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the values")?;
            let lists = task.allgatherv(group, values)?;
            place.put(Handle::keep(Blocks::new(&lists)));
        });
        Ok(Status::Done)
    })
}

/// Gives each member a block of the values of each.
#[unsafe(no_mangle)]
pub extern "C" fn vm_alltoall(
    vm: Handle<Task>,
    group: Handle<Membership>,
    values: In<'_, c_void>,
    count: usize,
    result: Room<'_, c_void>,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        let all = of_all(group, count)?;
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(all, "the values")?;
            let places = result.places::<T>(all, "the result")?;
            places.fill(&task.alltoall(group, values)?)?;
        });
        Ok(Status::Done)
    })
}

/// As `vm_alltoall`, with as many values for each member as each likes.
#[unsafe(no_mangle)]
pub extern "C" fn vm_alltoallv(
    vm: Handle<Task>,
    group: Handle<Membership>,
    values: In<'_, c_void>,
    counts: In<'_, usize>,
    r#type: c_int,
    blocks: Out<'_, Handle<Blocks>>,
) -> c_int {
    in_group(vm, group, |task, group| {
        let mut place = blocks.place_with(Handle::NULL, "the place for the blocks")?;
        with_numbers!(r#type, T => {
            let lists = lists::<T>(group, values, counts)?;
            let received = task.alltoallv(group, &lists)?;
            place.put(Handle::keep(Blocks::new(&received)));
        });
        Ok(Status::Done)
    })
}
