//! What the coordinator of an application and its daemon say to each other, on a socket of their own.
//!
//! The coordinator speaks to other daemons through its own: [`Mail`] holds an order and the host
//! that it is for, or from. Its first frame is [`CoordinatorReady`]; it is told which term it serves
//! ([`Serve`]) once the log has it. Each frame to it carries a number in the header, and is answered
//! with [`Heard`] and that number when it was acted on: so its daemon sees that it does not hang. The
//! end of the socket is the end of the coordinator.

use crate::{
    codec::{Body, message},
    id::{HostId, Tid},
};
use serde::{Deserialize, Serialize};

message! { CoordinatorReady Serve Mail Heard }

/// The first frame of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorReady {
    /// Its process.
    pub pid: u32,
}

/// The log has made this process the coordinator of that application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// The application.
    pub app: Tid,
    /// The term that its orders bear.
    pub term: u32,
    /// The host of its daemon.
    pub host: HostId,
}

/// An order, as between daemons, and the other end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Whose daemon it is for, or came from.
    pub host: HostId,
    /// What [`crate::peer::Order::to_payload`] makes.
    pub order: Body,
}

/// The frame of that number, and all before it, was acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {}
