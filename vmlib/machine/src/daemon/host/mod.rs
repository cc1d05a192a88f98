//! Hosts: how this one arrives, and which ones cannot reach each other.
//!
//! | file | what it decides |
//! |---|---|
//! | `arrival` | when this host, which has just joined, has its links |
//! | `unreachable` | which hosts cannot reach each other while others reach both, and who is told |

mod arrival;
mod unreachable;

pub(super) use arrival::Arrival;
pub(super) use unreachable::Unreachable;
