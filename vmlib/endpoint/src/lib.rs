//! Exactly-once delivery of messages between two ends, as pure state machines.
//!
//! Messages between two endpoints are delivered exactly once and in order, although frames between
//! them may be lost, duplicated and reordered. Each task has an [`Endpoint`] in its library, and
//! each daemon has an endpoint for its orders to other daemons. When a task has ended, the
//! [`Keeper`] of its host's daemon delivers the messages that its receivers have not acknowledged.
//!
//! Reading order: [`channel`] (one direction between two ends: numbers, acknowledgements, credit),
//! `pair` (both directions), [`ring`] (the route past the daemon), [`message`], [`inbox`] (messages that were
//! received and not read), [`receives`] (receives that the program has started), [`handlers`] (messages for functions of the
//! program), [`posted`] (the buffer of a
//! receive call), [`endpoint`] (all pairs of one end), [`keeper`].
//!
//! Invariants: no code of this crate does I/O, reads a clock or draws a random number. The caller
//! passes the [`Time`] of each step, and gets frames in an outbox. So the task library, the daemon
//! and the simulator run the same code.

pub mod channel;
pub mod endpoint;
pub mod handlers;
pub mod inbox;
pub mod keeper;
pub mod message;
mod pair;
pub mod posted;
pub mod receives;
pub mod ring;
pub mod sending;
pub mod time;

pub use endpoint::{Endpoint, EndpointConfig, EndpointState, Notice};
pub use handlers::HandlerId;
pub use keeper::{Keeper, KeeperFull};
pub use message::{Envelope, Filter, OneOf, Received, ReceivedState, Selection};
pub use posted::{Buffer, Posted, Room};
pub use receives::ReceiveId;
pub use ring::{NoRing, Ring, RingError, RingRead, RingUse};
pub use sending::{EndpointError, SendProgress, Sending, SendingState};
pub use time::Time;
