//! Sending.

use crate::{
    border::In,
    code::Status,
    error::{Error, call},
    handle::Handle,
    number::with_numbers,
    select::sent_tag,
    task::task,
};
use std::ffi::{c_int, c_void};
use vmlib::{Task, Tid};

/// Sends bytes.
#[unsafe(no_mangle)]
pub extern "C" fn vm_send(
    vm: Handle<Task>,
    to: u64,
    tag: i32,
    data: In<'_, c_void>,
    size: usize,
) -> c_int {
    call(|| {
        let (task, tag) = (task(vm)?, sent_tag(tag)?);
        task.send_slice(Tid(to), tag, data.numbers::<u8>(size, "the data")?)?;
        Ok(Status::Done)
    })
}

/// Sends numbers.
#[unsafe(no_mangle)]
pub extern "C" fn vm_send_array(
    vm: Handle<Task>,
    to: u64,
    tag: i32,
    values: In<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    call(|| {
        let (task, tag) = (task(vm)?, sent_tag(tag)?);
        with_numbers!(r#type, T => {
            task.send_slice(Tid(to), tag, values.numbers::<T>(count, "the array")?)?;
        });
        Ok(Status::Done)
    })
}

fn receivers(to: In<'_, u64>, count: usize) -> Result<Vec<Tid>, Error> {
    let to = to.slice(count, "the list of receivers")?;
    Ok(to.iter().copied().map(Tid).collect())
}

/// Sends bytes to several tasks.
#[unsafe(no_mangle)]
pub extern "C" fn vm_multicast(
    vm: Handle<Task>,
    to: In<'_, u64>,
    to_count: usize,
    tag: i32,
    data: In<'_, c_void>,
    size: usize,
) -> c_int {
    call(|| {
        let (task, tag) = (task(vm)?, sent_tag(tag)?);
        let to = receivers(to, to_count)?;
        task.multicast_slice(&to, tag, data.numbers::<u8>(size, "the data")?)?;
        Ok(Status::Done)
    })
}

/// Sends numbers to several tasks.
#[unsafe(no_mangle)]
pub extern "C" fn vm_multicast_array(
    vm: Handle<Task>,
    to: In<'_, u64>,
    to_count: usize,
    tag: i32,
    values: In<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    call(|| {
        let (task, tag) = (task(vm)?, sent_tag(tag)?);
        let to = receivers(to, to_count)?;
        with_numbers!(r#type, T => {
            task.multicast_slice(&to, tag, values.numbers::<T>(count, "the array")?)?;
        });
        Ok(Status::Done)
    })
}
