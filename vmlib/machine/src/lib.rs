//! The decisions of a daemon, as pure state machines.
//!
//! Nothing here does I/O, reads a clock or draws a random number. The caller passes the time of each
//! step, and seeds in the configuration; a step's results are values. So the daemon and the simulator
//! run the same code. The delivery of messages between two ends is in [`vm_endpoint`], which the task
//! library uses, too.
//!
//! No table here is iterated in the random order of std's `HashMap`: tables are `BTreeMap`s.

pub mod agreed;
pub mod agreement;
mod consensus;
pub mod copies;
pub mod daemon;
mod feed;
pub mod group;
pub mod io;
mod lease;
pub mod link;
mod membership;
pub mod placement;
mod proposals;
pub mod route;
mod storage;
pub mod strangers;
pub mod tally;

pub use agreed::{
    Agreed, Applied, Coordinated, Epochs, Host, HostPhase, Lost, Recovering, Reviving, Suspension,
    Task, Unsuspended, Void,
};
pub use agreement::{Agreement, AgreementConfig, AgreementOutput};
pub use copies::{Copies, Room};
pub use daemon::{AT_ONCE, Daemon, DaemonConfig, MoveCounters, MovesUnderway};
pub use group::Group;
pub use io::{
    ConnId, ConsoleInput, DirectOutput, Input, LaunchSpec, LinkOutput, MoveInput, MoveOutput,
    Outbox, Output, ProcessInput, ProcessOutput, RingOutput, SavedBy, StoreInput, StoreOutput,
    Written,
};
pub use vm_endpoint::Time;
