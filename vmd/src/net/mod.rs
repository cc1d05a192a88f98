//! Other daemons. This folder owns the daemon's port and addresses, the handshake and the sealed
//! records of a link, the connections with their send queues, and how a daemon joins a machine.

pub mod address;
pub mod arrival;
pub mod connection;
pub mod hello;
pub mod interfaces;
pub mod join;
pub mod links;
pub mod queue;
pub mod reach;
pub mod records;
pub mod secure;
pub mod secure_error;
pub mod sockets;
