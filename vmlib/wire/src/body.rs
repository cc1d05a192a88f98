//! The type of bytes inside of messages.

/// Bytes that travel as MessagePack `bin`, not as an array of numbers.
pub type Body = serde_bytes::ByteBuf;
