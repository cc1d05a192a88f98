//! Other daemons. This folder owns the daemon's port and addresses, the handshake and the sealed
//! records of a link, the connections with their send queues, and how a daemon joins a machine.

pub mod interfaces;

pub mod address;
pub mod reach;

pub mod join;
pub mod sockets;

pub mod directs;
pub mod lossy;
pub mod queue;
pub mod secure_error;

pub mod records;
pub mod secure;

pub mod hello;

pub mod connection;
pub mod links;

pub mod arrival;
