//! Messages, and what selects them: values, bytes, numeric slices.
//!
//! A message is a run of bytes with a sender and a tag. What the bytes mean is agreed between
//! sender and receiver, by the tag as a rule: a serde value (MessagePack), raw bytes, or a slice of
//! numbers (little-endian, one after the other). A received body is handed out without a copy
//! where alignment allows: [`Message::slice`] borrows, and [`Message::read_into`] copies into a buffer of
//! the program. [`crate::Task::recv_into`] receives there at once.

use crate::error::ValueError;
pub use crate::number::Number;
pub(crate) use crate::number::{encode_slice, fill};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::{any::type_name, borrow::Cow};
use vm_endpoint::{OneOf, Received};
use vm_wire::Tid;

/// Selects every sender, or every tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Any;

/// [`Any`], as it is written in calls: `vm.recv(ANY, 7)`.
pub const ANY: Any = Any;

/// Whose messages a receive selects: [`ANY`] or a [`Tid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source(pub(crate) Option<Tid>);

impl From<Any> for Source {
    fn from(_: Any) -> Self {
        Source(None)
    }
}

impl From<Tid> for Source {
    fn from(tid: Tid) -> Self {
        Source(Some(tid))
    }
}

/// The messages of which senders a receive selects: [`ANY`], a [`Tid`], or a list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sources<'a>(pub(crate) OneOf<'a, Tid>);

/// The tags that a receive selects: [`ANY`], a number, or a list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags<'a>(pub(crate) OneOf<'a, i32>);

/// Lists and single values select: `ANY`, a value, a slice, an array, a vector.
macro_rules! selects {
    ($set:ident of $value:ty) => {
        impl From<Any> for $set<'_> {
            fn from(_: Any) -> Self {
                $set(OneOf::Any)
            }
        }

        impl From<$value> for $set<'_> {
            fn from(value: $value) -> Self {
                $set(OneOf::Only(value))
            }
        }

        impl<'a> From<&'a [$value]> for $set<'a> {
            fn from(values: &'a [$value]) -> Self {
                $set(OneOf::These(values))
            }
        }

        impl<'a, const COUNT: usize> From<&'a [$value; COUNT]> for $set<'a> {
            fn from(values: &'a [$value; COUNT]) -> Self {
                $set(OneOf::These(values))
            }
        }

        impl<'a> From<&'a Vec<$value>> for $set<'a> {
            fn from(values: &'a Vec<$value>) -> Self {
                $set(OneOf::These(values))
            }
        }
    };
}

selects!(Sources of Tid);
selects!(Tags of i32);

impl From<Source> for Sources<'_> {
    fn from(source: Source) -> Self {
        Sources(source.0.map_or(OneOf::Any, OneOf::Only))
    }
}

impl From<Tag> for Tags<'_> {
    fn from(tag: Tag) -> Self {
        Tags(tag.0.map_or(OneOf::Any, OneOf::Only))
    }
}

/// Which tags a receive selects: [`ANY`] or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(pub(crate) Option<i32>);

impl From<Any> for Tag {
    fn from(_: Any) -> Self {
        Tag(None)
    }
}

impl From<i32> for Tag {
    fn from(tag: i32) -> Self {
        Tag(Some(tag))
    }
}

/// A whole message, received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    from: Tid,
    tag: i32,
    body: Bytes,
}

impl Message {
    /// The task that sent the message.
    pub fn from(&self) -> Tid {
        self.from
    }

    /// The tag that the sender gave it.
    pub fn tag(&self) -> i32 {
        self.tag
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// The value that was sent with [`crate::Task::send`].
    ///
    /// # Errors
    /// [`ValueError`] when the bytes are not exactly one such value.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, ValueError> {
        decode_value(&self.body).map_err(|cause| ValueError::Value {
            from: self.from,
            tag: self.tag,
            len: self.body.len(),
            wanted: type_name::<T>(),
            cause,
        })
    }

    /// The bytes as they are.
    pub fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// The bytes as they are, to keep or to send on without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.body
    }

    /// The numbers that were sent with [`crate::Task::send_slice`]: borrowed from the message where
    /// they lie aligned in memory, copied where not.
    ///
    /// # Errors
    /// [`ValueError`] when the length is no multiple of a number's.
    pub fn slice<T: Number>(&self) -> Result<Cow<'_, [T]>, ValueError> {
        if !self.body.len().is_multiple_of(size_of::<T>()) {
            return Err(self.no_slice::<T>(None));
        }
        if cfg!(target_endian = "little")
            && let Ok(numbers) = bytemuck::try_cast_slice(&self.body)
        {
            return Ok(Cow::Borrowed(numbers));
        }
        let mut numbers = vec![T::zeroed(); self.body.len() / size_of::<T>()];
        fill(&mut numbers, &self.body);
        Ok(Cow::Owned(numbers))
    }

    /// Copies the numbers that were sent with [`crate::Task::send_slice`] into `numbers`.
    ///
    /// # Errors
    /// [`ValueError`] when the message is not exactly as long as `numbers`, which then keep their
    /// values.
    pub fn read_into<T: Number>(&self, numbers: &mut [T]) -> Result<(), ValueError> {
        if self.body.len() != size_of_val(numbers) {
            return Err(self.no_slice::<T>(Some(numbers.len())));
        }
        fill(numbers, &self.body);
        Ok(())
    }

    fn no_slice<T>(&self, count: Option<usize>) -> ValueError {
        ValueError::Slice {
            from: self.from,
            tag: self.tag,
            len: self.body.len(),
            wanted: type_name::<T>(),
            size: size_of::<T>(),
            count,
        }
    }
}

impl From<Received> for Message {
    fn from(received: Received) -> Self {
        Message {
            from: received.from,
            tag: received.tag,
            body: received.body,
        }
    }
}

/// All of a message but its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The task that sent the message.
    pub from: Tid,
    /// The tag that the sender gave it.
    pub tag: i32,
    /// Its length in bytes.
    pub len: usize,
}

impl From<vm_endpoint::Envelope> for Envelope {
    fn from(found: vm_endpoint::Envelope) -> Self {
        Envelope {
            from: found.from,
            tag: found.tag,
            len: found.len,
        }
    }
}

/// A user's value as MessagePack, structs as arrays.
pub(crate) fn encode_value<T: serde::Serialize + ?Sized>(value: &T) -> Result<Bytes, String> {
    match rmp_serde::to_vec(value) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(error.to_string()),
    }
}

/// The one value in `bytes`. How deep it may nest is the decoder's own limit, for the user's
/// structures are his.
pub(crate) fn decode_value<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut decoder = rmp_serde::Deserializer::new(std::io::Cursor::new(bytes));
    let value = T::deserialize(&mut decoder).map_err(|error| error.to_string())?;
    match bytes.len() as u64 - decoder.position() {
        0 => Ok(value),
        rest => Err(format!("{rest} bytes after the value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: Bytes) -> Message {
        Message {
            from: Tid(1),
            tag: 0,
            body,
        }
    }

    #[test]
    fn a_value_is_read_back_and_nothing_else_is() {
        let sent = ("x".to_owned(), vec![1u64, 2], Some(-3i8));
        let received = message(encode_value(&sent).unwrap());
        assert_eq!(received.value::<(String, Vec<u64>, Option<i8>)>(), Ok(sent));
        assert!(received.value::<String>().is_err());

        let mut longer = received.into_bytes().to_vec();
        longer.push(0);
        let error = message(longer.into()).value::<(String, Vec<u64>, Option<i8>)>();
        assert!(error.unwrap_err().to_string().contains("after the value"));
    }

    #[test]
    fn numbers_are_read_back_wherever_they_lie_in_memory() {
        let sent = [1.5f64, -0.0, f64::MAX];
        let body = encode_slice(&sent);
        assert_eq!(message(body.clone()).slice::<f64>().unwrap(), &sent[..]);

        let mut shifted = vec![0];
        shifted.extend_from_slice(&body);
        let shifted = message(Bytes::from(shifted).slice(1..));
        assert_eq!(shifted.slice::<f64>().unwrap(), &sent[..]);

        let mut filled = [0.0; 3];
        shifted.read_into(&mut filled).unwrap();
        assert_eq!(filled, sent);
    }

    #[test]
    fn numbers_travel_in_little_endian_order() {
        assert_eq!(&encode_slice(&[0x0102u16])[..], [2, 1]);
    }

    #[test]
    fn a_slice_of_the_wrong_length_is_refused() {
        let three = message(Bytes::from_static(&[0; 12]));
        assert!(three.slice::<f64>().is_err());
        assert!(three.read_into(&mut [0u32; 2]).is_err());
        assert!(three.read_into(&mut [0u32; 3]).is_ok());
        let none = message(Bytes::new());
        assert_eq!(none.slice::<u64>().unwrap().len(), 0);
    }
}
