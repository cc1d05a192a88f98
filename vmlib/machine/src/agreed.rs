//! The agreed state: the value that every daemon of a machine holds alike.
//!
//! Hosts, tasks with their owners, applications and groups are one deterministic value. Only the
//! entries of one log change it ([`vm_wire::agreed::Entry`]). Every daemon applies the same entries
//! in the same order, so all daemons hold the same value at the same index. [`crate::agreement`]
//! makes the log; this module defines the effect of each entry.
//!
//! Three rules make it safe to propose a change without knowledge of other proposals:
//!
//! - A change carries its own conditions ("task t3.17 at host 3, incarnation 1"). The change is
//!   *void* if its conditions do not hold when it is applied: a void change has no effect, and
//!   every daemon sees that ([`Applied::Void`]).
//! - A daemon numbers its entries. An entry that was proposed twice is applied once.
//! - The entries of a host that was declared dead are void as a whole.
//!
//! The agreed state does not hold the *leader* and the *voters* (raft knows them), leases (the
//! leader knows them), watchers (the watcher's library knows them), and barriers (messages among
//! members).
//!
//! Everything is bounded. [`vm_wire::limits`] bounds living hosts and tasks, groups and
//! memberships. The last [`ENDED_MAX`](vm_wire::limits::ENDED_MAX) ended tasks and the last
//! [`DEPARTED_MAX`](vm_wire::limits::DEPARTED_MAX) departed hosts are remembered. So a snapshot
//! ([`Agreed::encode`]) always fits its frame.
//!
//! Reading order: `records` and `lives` (the records), `state` (the tables and their queries),
//! `apply` with `suspend`, `recover` and `revive` (the effect of each change), `applied` (the
//! report of the effect), `snapshot`.

mod applied;
mod apply;
mod lives;
mod records;
mod recover;
mod revive;
mod snapshot;
mod state;
mod suspend;
#[cfg(test)]
mod tests;

pub use applied::{Applied, Void};
pub use lives::{Lost, Recovering, Reviving, Suspension, Unsuspended};
pub use records::{Coordinated, CutUnderWay, Epochs, Host, HostPhase, Task};
pub use snapshot::SnapshotError;
pub use state::Agreed;
