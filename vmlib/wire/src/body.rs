//! The type of byte strings in messages.

/// Bytes that travel as MessagePack `bin`, not as an array of numbers.
pub type Body = serde_bytes::ByteBuf;
