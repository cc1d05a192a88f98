//! Hosts: how this one arrives and leaves, and which ones cannot reach each other.
//!
//! | file | what it decides |
//! |---|---|
//! | `arrival` | when this host, which has just joined, has its links |
//! | `departure` | how this host leaves the machine, or ends with it |
//! | `unreachable` | which hosts cannot reach each other while others reach both, and the notes about them |

mod arrival;
mod departure;
mod unreachable;

pub(super) use arrival::Arrival;
pub(super) use departure::{Departure, HALTED, Next, signal_all};
pub(super) use unreachable::Unreachable;
