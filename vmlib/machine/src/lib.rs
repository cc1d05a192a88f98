//! The decisions of the virtual parallel machine, as pure state machines.
//!
//! Nothing here does I/O, reads a clock or draws a random number. The time comes in with every
//! step, seeds come in with the configuration, and orders to the shell go out as values. So the
//! same code runs in the daemon, in the task library and in the simulator.
//!
//! No table is iterated in the random order of std's `HashMap`: tables whose order can be observed
//! are `BTreeMap`s.

pub mod agreed;
pub mod agreement;
pub mod channel;
mod checkpointing;
mod consensus;
pub mod coordinator;
pub mod copies;
pub mod daemon;
pub mod endpoint;
mod feed;
pub mod group;
pub mod inbox;
pub mod io;
pub mod keeper;
mod lease;
pub mod link;
mod membership;
mod pair;
pub mod placement;
mod proposals;
pub mod route;
mod storage;
pub mod strangers;
pub mod tally;
pub mod time;

pub use agreed::{
    Agreed, Applied, Coordinated, Epochs, Host, HostPhase, Lost, Recovering, Reviving, Suspension,
    Task, Unsuspended, Void,
};
pub use agreement::{Agreement, AgreementConfig, AgreementOutput};
pub use coordinator::{Coordinator, MoveKey};
pub use copies::{Copies, Room};
pub use daemon::{AT_ONCE, Daemon, DaemonConfig, MoveCounters, MovesUnderway};
pub use endpoint::{
    Endpoint, EndpointConfig, EndpointError, EndpointState, Notice, SendProgress, Sending,
};
pub use group::Group;
pub use inbox::{Envelope, Filter, Received, ReceivedState};
pub use io::{ConnId, Input, LaunchSpec, Outbox, Output, SavedBy, Written};
pub use keeper::{Keeper, KeeperFull};
pub use time::Time;
