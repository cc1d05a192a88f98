//! Collective calls that combine the values of all members.

use crate::{
    border::{In, Room},
    code::Status,
    error::Error,
    groups::{Membership, in_group},
    handle::Handle,
    number::with_numbers,
};
use std::ffi::{c_int, c_void};
use vmlib::{Number, Op, Operands, Task};

/// The operation of that number (`vm_op`).
fn operation(op: c_int) -> Result<Op, Error> {
    Ok(match op {
        1 => Op::Sum,
        2 => Op::Product,
        3 => Op::Min,
        4 => Op::Max,
        5 => Op::And,
        6 => Op::Or,
        7 => Op::Xor,
        other => {
            return Err(Error::invalid(format!(
                "{other} is no vm_op: pass VM_SUM, VM_MAX or another one of them"
            )));
        }
    })
}

/// The order of operands of that number (`VM_ANY_ORDER`, `VM_BY_INSTANCE`).
fn operands(order: c_int) -> Result<Operands, Error> {
    match order {
        0 => Ok(Operands::AnyOrder),
        1 => Ok(Operands::ByInstance),
        other => Err(Error::invalid(format!(
            "{other} is no order of operands: pass VM_ANY_ORDER or VM_BY_INSTANCE"
        ))),
    }
}

/// An operation of the program (`vm_function`): sets the number at `result` to that of two others.
pub type Function = Option<
    extern "C" fn(
        one: *const c_void,
        other: *const c_void,
        result: *mut c_void,
        context: *mut c_void,
    ),
>;

/// The operation of the program as one of Rust.
fn own<T: Number>(function: Function, context: *mut c_void) -> Result<impl Fn(T, T) -> T, Error> {
    let function = function.ok_or_else(|| Error::invalid("the function is NULL"))?;
    Ok(move |one: T, other: T| {
        let mut result = one;
        function(
            (&raw const one).cast(),
            (&raw const other).cast(),
            (&raw mut result).cast(),
            context,
        );
        result
    })
}

/// Combines the values of all members, for one of them.
#[unsafe(no_mangle)]
pub extern "C" fn vm_reduce(
    vm: Handle<Task>,
    group: Handle<Membership>,
    root: u32,
    op: c_int,
    values: In<'_, c_void>,
    result: Room<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        let op = operation(op)?;
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the values")?;
            let room = if group.instance() == root { count } else { 0 };
            let places = result.places::<T>(room, "the result")?;
            if let Some(combined) = task.reduce(group, root, op, values)? {
                places.fill(&combined)?;
            }
        });
        Ok(Status::Done)
    })
}

/// As `vm_reduce`, with an operation of the program.
#[unsafe(no_mangle)]
pub extern "C" fn vm_reduce_by(
    vm: Handle<Task>,
    group: Handle<Membership>,
    root: u32,
    function: Function,
    context: *mut c_void,
    order: c_int,
    values: In<'_, c_void>,
    result: Room<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        let order = operands(order)?;
        with_numbers!(r#type, T => {
            let function = own::<T>(function, context)?;
            let values = values.numbers::<T>(count, "the values")?;
            let room = if group.instance() == root { count } else { 0 };
            let places = result.places::<T>(room, "the result")?;
            if let Some(combined) = task.reduce_by(group, root, order, values, function)? {
                places.fill(&combined)?;
            }
        });
        Ok(Status::Done)
    })
}

/// Combines the values of all members, for all.
#[unsafe(no_mangle)]
pub extern "C" fn vm_allreduce(
    vm: Handle<Task>,
    group: Handle<Membership>,
    op: c_int,
    values: Room<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        let op = operation(op)?;
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the values")?;
            task.allreduce_in_place(group, op, values)?;
        });
        Ok(Status::Done)
    })
}

/// As `vm_allreduce`, with an operation of the program.
#[unsafe(no_mangle)]
pub extern "C" fn vm_allreduce_by(
    vm: Handle<Task>,
    group: Handle<Membership>,
    function: Function,
    context: *mut c_void,
    order: c_int,
    values: Room<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        let order = operands(order)?;
        with_numbers!(r#type, T => {
            let function = own::<T>(function, context)?;
            let values = values.numbers::<T>(count, "the values")?;
            let combined = task.allreduce_by(group, order, values, function)?;
            values.copy_from_slice(&combined);
        });
        Ok(Status::Done)
    })
}

/// The smallest value of all members at each place, and who has it.
#[unsafe(no_mangle)]
pub extern "C" fn vm_min_with_place(
    vm: Handle<Task>,
    group: Handle<Membership>,
    values: Room<'_, c_void>,
    instances: Room<'_, u32>,
    count: usize,
    r#type: c_int,
) -> c_int {
    with_place(
        vm,
        group,
        (values, instances),
        count,
        r#type,
        Extreme::Smallest,
    )
}

/// The greatest value of all members at each place, and who has it.
#[unsafe(no_mangle)]
pub extern "C" fn vm_max_with_place(
    vm: Handle<Task>,
    group: Handle<Membership>,
    values: Room<'_, c_void>,
    instances: Room<'_, u32>,
    count: usize,
    r#type: c_int,
) -> c_int {
    with_place(
        vm,
        group,
        (values, instances),
        count,
        r#type,
        Extreme::Greatest,
    )
}

/// The value that is wanted of all members.
#[derive(Clone, Copy)]
enum Extreme {
    Smallest,
    Greatest,
}

fn with_place(
    vm: Handle<Task>,
    group: Handle<Membership>,
    (values, instances): (Room<'_, c_void>, Room<'_, u32>),
    count: usize,
    r#type: c_int,
    extreme: Extreme,
) -> c_int {
    in_group(vm, group, |task, group| {
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the values")?;
            let instances = instances.slice(count, "the instances")?;
            let found = match extreme {
                Extreme::Smallest => task.min_with_place(group, values)?,
                Extreme::Greatest => task.max_with_place(group, values)?,
            };
            put_places(found, values, instances)
        })
    })
}

fn put_places<T: Number>(
    found: Vec<(T, u32)>,
    values: &mut [T],
    instances: &mut [u32],
) -> Result<Status, Error> {
    let places = values.iter_mut().zip(instances);
    for ((value, instance), found) in places.zip(found) {
        (*value, *instance) = found;
    }
    Ok(Status::Done)
}

/// Combines the values of the members with lower instances and this one's own.
#[unsafe(no_mangle)]
pub extern "C" fn vm_scan(
    vm: Handle<Task>,
    group: Handle<Membership>,
    op: c_int,
    values: Room<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        let op = operation(op)?;
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the values")?;
            let combined = task.scan(group, op, values)?;
            values.copy_from_slice(&combined);
        });
        Ok(Status::Done)
    })
}

/// As `vm_scan`, with an operation of the program.
#[unsafe(no_mangle)]
pub extern "C" fn vm_scan_by(
    vm: Handle<Task>,
    group: Handle<Membership>,
    function: Function,
    context: *mut c_void,
    values: Room<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        with_numbers!(r#type, T => {
            let function = own::<T>(function, context)?;
            let values = values.numbers::<T>(count, "the values")?;
            let combined = task.scan_by(group, values, function)?;
            values.copy_from_slice(&combined);
        });
        Ok(Status::Done)
    })
}

/// Combines the values of the members with lower instances.
#[unsafe(no_mangle)]
pub extern "C" fn vm_exclusive_scan(
    vm: Handle<Task>,
    group: Handle<Membership>,
    op: c_int,
    values: Room<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    in_group(vm, group, |task, group| {
        let op = operation(op)?;
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the values")?;
            let Some(combined) = task.exclusive_scan(group, op, values)? else {
                return Ok(Status::Nothing);
            };
            values.copy_from_slice(&combined);
        });
        Ok(Status::Done)
    })
}
