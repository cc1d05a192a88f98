//! Tests across real processes and hosts, and the simulator.
//!
//! [`cluster`] starts machines of real daemons, on loopback or in network namespaces. [`sim`] runs
//! the production state machines of whole machines in one process, from one seed. [`matrix`] plays
//! matrices of faults, cell by cell.

pub mod cluster;
pub mod matrix;
pub mod sim;

/// The programs in the user guide, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/program.md")]
pub struct UserGuide;
