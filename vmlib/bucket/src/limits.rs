//! Limits of the traffic with a bucket.

use std::time::Duration;

/// Least length of a piece; a longer object is sent in pieces. One piece is in memory while it is
/// sent, because it may have to be sent again. Bytes.
pub const PIECE: u64 = 16 << 20;
/// Most pieces of one object: the limit of S3.
pub const PIECES_MAX: u64 = 10_000;
/// Longest object: the limit of S3. Bytes.
pub const OBJECT_MAX: u64 = 5 << 40;
/// Repetitions of a request that failed for a reason that passes.
pub const RETRIES: u32 = 4;
/// Pause before the first repetition, doubled each time.
pub const RETRY_AFTER: Duration = Duration::from_millis(200);
/// Time for a connection to be made.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Longest time without progress while data is expected or being sent.
pub const STALL_TIME: Duration = Duration::from_secs(60);
/// Time for which the signature of a request is valid. Requests are sent at once, but clocks
/// differ.
pub const SIGNED_FOR: Duration = Duration::from_secs(15 * 60);
/// A reply that is read as a whole: a page of a listing, an error. Bytes.
pub const ANSWER_MAX: u64 = 8 << 20;
/// Most objects below one prefix in a listing.
pub const OBJECTS_MAX: usize = 1 << 20;
/// Longest text from an object store in an error. Characters.
pub const SAID_MAX: usize = 200;
/// Longest address. Bytes.
pub const ADDRESS_MAX: usize = 1_024;
/// Longest file of the store's folder about its bucket. Bytes.
pub const TIE_MAX: u64 = 8 << 20;
