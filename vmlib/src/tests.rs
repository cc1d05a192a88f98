//! The library against a relay that stands in for the daemon: real sockets, several tasks in one
//! process, each in a thread of its own.

mod collective_failures;
mod collectives;
mod contexts;
mod groups;
mod handlers;
mod interruption;
mod members;
mod messages;
mod nonblocking;
pub(crate) mod process;
mod recv_into;
mod relay;
mod requests;
mod threads;
