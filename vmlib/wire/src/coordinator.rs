//! Frames between the coordinator of an application and its daemon, on a socket of their own.
//!
//! The first frame of the coordinator is [`CoordinatorReady`]. The daemon sends [`Serve`], with the
//! term, once the log has appointed the coordinator. The coordinator reaches other daemons through
//! its own daemon: [`Mail`] holds an order and the host at its other end. Each frame to the
//! coordinator carries a number in the header. The coordinator replies with [`Heard`] and that
//! number after it has processed the frame, so the daemon notices a coordinator that hangs. The end
//! of the socket is the end of the coordinator.

use crate::{
    codec::{Body, message},
    id::{HostId, Tid},
};
use serde::{Deserialize, Serialize};

message! { CoordinatorReady Serve Mail Heard }

/// The first frame of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorReady {
    /// Its process id.
    pub pid: u32,
}

/// A daemon to its coordinator: the log has made this process the coordinator of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// The application.
    pub app: Tid,
    /// The coordinator term, which its orders bear.
    pub term: u32,
    /// The host of its daemon.
    pub host: HostId,
}

/// An order between the coordinator and the daemon of another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// The host that the order is for, or came from.
    pub host: HostId,
    /// The order, encoded by [`crate::peer::Order::to_payload`].
    pub order: Body,
}

/// The coordinator has processed the frame with that number, and all frames before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {}
