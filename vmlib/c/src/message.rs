//! Received messages.

use crate::{
    border::Room,
    code::Status,
    error::{Error, call, value},
    handle::{Handle, Kept, Table},
    number::with_numbers,
};
use std::{
    ffi::{c_int, c_void},
    ptr,
};
use vmlib::Message;

impl Kept for Message {
    const KIND: u8 = 2;
    fn table() -> &'static Table<Self> {
        static TABLE: Table<Message> = Table::new();
        &TABLE
    }
}

/// `vm_envelope`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Envelope {
    from: u64,
    size: u64,
    count: u64,
    tag: i32,
    reserved: i32,
}

impl Envelope {
    /// Of a message of elements of `unit` bytes.
    pub fn new(found: vmlib::Envelope, unit: usize) -> Self {
        Envelope {
            from: found.from.0,
            size: found.len as u64,
            count: (found.len / unit) as u64,
            tag: found.tag,
            reserved: 0,
        }
    }
}

/// The id of the sender.
#[unsafe(no_mangle)]
pub extern "C" fn vm_message_from(message: Handle<Message>) -> u64 {
    value(|| message.with(|it| it.from()), |tid| tid.0, |_| 0)
}

/// The tag.
#[unsafe(no_mangle)]
pub extern "C" fn vm_message_tag(message: Handle<Message>) -> i32 {
    value(|| message.with(|it| it.tag()), |tag| tag, |_| 0)
}

/// The length in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn vm_message_size(message: Handle<Message>) -> usize {
    value(|| message.with(|it| it.len()), |len| len, |_| 0)
}

/// The bytes, which stay where they are until the message is freed.
#[unsafe(no_mangle)]
pub extern "C" fn vm_message_data(message: Handle<Message>) -> *const c_void {
    let address = || message.with(|it| it.bytes().as_ptr());
    value(address, |address| address.cast(), |_| ptr::null())
}

/// How many numbers of a type the message has.
#[unsafe(no_mangle)]
pub extern "C" fn vm_message_count(message: Handle<Message>, r#type: c_int) -> i64 {
    let count = || {
        let message = message.with(|it| it.clone())?;
        let count = with_numbers!(r#type, T => message.slice::<T>()?.len());
        i64::try_from(count).map_err(|_| Error::invalid("more numbers than can be counted"))
    };
    value(count, |count| count, i64::from)
}

/// Copies the numbers of a message.
#[unsafe(no_mangle)]
pub extern "C" fn vm_message_read(
    message: Handle<Message>,
    values: Room<'_, c_void>,
    count: usize,
    r#type: c_int,
) -> c_int {
    call(|| {
        let message = message.with(|it| it.clone())?;
        with_numbers!(r#type, T => {
            message.read_into(values.numbers::<T>(count, "the array")?)?;
        });
        Ok(Status::Done)
    })
}

/// Frees a message.
#[unsafe(no_mangle)]
pub extern "C" fn vm_message_free(message: Handle<Message>) -> c_int {
    call(|| message.free().map(|()| Status::Done))
}
