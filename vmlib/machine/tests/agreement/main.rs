//! Tests of the agreement of many hosts: scripts with recorded results, and many random runs.

mod network;
mod random;
mod script;
