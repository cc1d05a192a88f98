//! The agreed state: what every daemon of a machine holds alike.
//!
//! Hosts, tasks with their owners, applications and groups are one deterministic value, changed
//! only by the entries of one log ([`vm_wire::agreed::Entry`]). Every daemon applies the same
//! entries in the same order, so all of them are equal at the same index. How the log comes about
//! is the matter of [`crate::agreement`]; here is only what an entry does.
//!
//! Three rules make it safe to propose a change without knowing what others propose:
//!
//! - A change carries its own conditions ("task t3.17 at host 3, incarnation 1") and is *void* if
//!   they do not hold when it is applied: it changes nothing, and everybody sees so
//!   ([`Applied::Void`]).
//! - A daemon numbers its entries; one that was proposed twice is applied once.
//! - What a host proposed that was declared dead meanwhile is void as a whole.
//!
//! What is absent, on purpose: where a *leader* or a *voter* is (raft knows), leases (the leader
//! knows), who watches whom (the watcher's library knows), barriers (messages among members).
//!
//! Everything is bounded: living hosts and tasks, groups and memberships by the limits of
//! [`vm_wire::limits`]; of what has ended, the last [`ENDED_MAX`](vm_wire::limits::ENDED_MAX) tasks and
//! the last [`DEPARTED_MAX`](vm_wire::limits::DEPARTED_MAX) hosts are remembered. So a snapshot
//! ([`Agreed::encode`]) always fits its frame.

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
