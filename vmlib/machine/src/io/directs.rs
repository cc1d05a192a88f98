//! Direct connections between tasks of different hosts: events and orders.

use vm_wire::{Frame, Tid, direct::Connection};

/// An order about direct connections.
#[derive(Debug)]
pub enum DirectOutput {
    /// A task of another host may dial the port of this daemon, and open this connection.
    /// `Input::DirectCame` follows when it has proved the connection.
    Expect(Box<Connection>),
    /// Send this frame to a task of this host, with the descriptor of the connection that has come
    /// under that number.
    Open {
        /// The number of the connection.
        id: u64,
        /// The task that accepts the connection.
        tid: Tid,
        /// The frame for the task.
        frame: Frame,
    },
    /// The connection of that number is not expected any more: close it if it has come.
    Forget(u64),
    /// The connection of that number is closed: interrupt the task, which may compute, so that its
    /// library sends by the daemon what it retains for the peer.
    Nudge {
        /// The task.
        tid: Tid,
        /// The number of the connection.
        id: u64,
    },
}
