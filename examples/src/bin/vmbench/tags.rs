//! Tags of messages between the measuring task and its partners.

/// To the partner: answer with the same.
pub const ECHO: i32 = 1;
/// To the partner: take it in.
pub const TAKE: i32 = 2;
/// To the partner: answer that all before has been taken in.
pub const FLUSH: i32 = 3;
/// To the partner: end.
pub const STOP: i32 = 4;
/// From the partner, a greeter or a churner.
pub const ANSWER: i32 = 5;
