//! Tests across real processes and hosts, and the simulator.
//!
//! [`cluster`] starts machines of real daemons, on loopback or in network namespaces.

pub mod cluster;
