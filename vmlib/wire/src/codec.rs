//! MessagePack bodies: one struct per opcode, nothing after the value, bounded depth.

pub use crate::body::Body;
use crate::frame::{Frame, Header, Op};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// Deepest nesting that is accepted. No message of this crate comes near it.
const DEPTH_MAX: usize = 32;

/// A struct that travels as the body of one opcode.
pub trait Message: Serialize + DeserializeOwned {
    /// Opcode of this message.
    const OP: Op;

    /// The frame that carries this message. Every field of the header but the opcode is unset.
    fn frame(&self) -> Frame {
        Frame::new(Header::new(Self::OP), Bytes::from(encode(self)))
    }

    /// Reads the message from a frame whose opcode the caller has matched.
    ///
    /// # Errors
    /// [`CodecError`] when the body is not exactly one such value.
    fn read(frame: &Frame) -> Result<Self, CodecError> {
        debug_assert_eq!(frame.header.op, Self::OP);
        decode(&frame.body).map_err(|error| CodecError {
            op: Some(Self::OP),
            ..error
        })
    }
}

/// Ties each struct to the opcode of its name.
macro_rules! message {
    ($($name:ident)*) => {
        $(impl $crate::codec::Message for $name {
            const OP: $crate::frame::Op = $crate::frame::Op::$name;
        })*
    };
}
pub(crate) use message;

/// The error of a body that does not decode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad body{}: {cause}", .op.map(|op| format!(" of {op:?}")).unwrap_or_default())]
pub struct CodecError {
    /// The opcode, if the caller knew it.
    pub op: Option<Op>,
    /// The text of the decoder's error.
    pub cause: String,
}

/// Encodes a value as MessagePack, structs as arrays.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    rmp_serde::to_vec(value).expect("our messages hold nothing that MessagePack lacks")
}

/// Decodes the one value in `bytes`.
///
/// # Errors
/// [`CodecError`] when the bytes are no such value, nest too deeply, or continue after it.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let fail = |cause: String| CodecError { op: None, cause };
    let mut decoder = rmp_serde::Deserializer::new(std::io::Cursor::new(bytes));
    decoder.set_max_depth(DEPTH_MAX);
    let value = T::deserialize(&mut decoder).map_err(|error| fail(error.to_string()))?;
    let read = decoder.position();
    if read != bytes.len() as u64 {
        return Err(fail(format!(
            "{} bytes after the value",
            bytes.len() as u64 - read
        )));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_after_the_value_are_an_error() {
        let mut bytes = encode(&(1u32, "x"));
        assert_eq!(decode::<(u32, String)>(&bytes), Ok((1, "x".to_owned())));
        bytes.push(0);
        assert!(decode::<(u32, String)>(&bytes).is_err());
    }
}
