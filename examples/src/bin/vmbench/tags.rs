//! Tags of messages between the measuring task and its partners.

/// To the partner: return the message.
pub const ECHO: i32 = 1;
/// To the partner: receive the message without a reply.
pub const TAKE: i32 = 2;
/// To the partner: acknowledge that all messages before were received.
pub const FLUSH: i32 = 3;
/// To the partner: end.
pub const STOP: i32 = 4;
/// A reply of the partner, or a report of a greeter or a churner.
pub const ANSWER: i32 = 5;
