//! The limits of what is sent to a bucket and taken from it.

use std::time::Duration;

/// An object that is longer is sent in pieces of this length, at the least; each is in memory while it
/// is sent, as it may have to be sent again. Bytes.
pub const PIECE: u64 = 16 << 20;
/// Pieces of one object: the most that S3 takes.
pub const PIECES_MAX: u64 = 10_000;
/// The longest object that S3 takes. Bytes.
pub const OBJECT_MAX: u64 = 5 << 40;
/// How often a request is made again that failed in passing.
pub const RETRIES: u32 = 4;
/// How long it is waited before the first of these; each time twice as long.
pub const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How long a connection may take to be made.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long nothing may come or go while something should.
pub const STALL_TIME: Duration = Duration::from_secs(60);
/// For how long a request is signed: it is made at once, but clocks differ.
pub const SIGNED_FOR: Duration = Duration::from_secs(15 * 60);
/// An answer that is read as a whole: a page of a listing, an error. Bytes.
pub const ANSWER_MAX: u64 = 8 << 20;
/// Objects below one prefix that a listing may have.
pub const OBJECTS_MAX: usize = 1 << 20;
/// What an object store says of a failure is cut to so many characters.
pub const SAID_MAX: usize = 200;
/// The length of an address.
pub const ADDRESS_MAX: usize = 1_024;
/// A file in which the store's folder remembers something of its bucket. Bytes.
pub const TIE_MAX: u64 = 8 << 20;
