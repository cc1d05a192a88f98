//! Connections of consoles.

use super::connection::ConnId;
use vm_wire::Frame;

/// An event of the connection of a console.
#[derive(Debug)]
pub enum ConsoleInput {
    /// A frame came from a console.
    Frame(ConnId, Frame),
    /// The queue to a console is longer than the shell allows. No output of tasks is to be sent
    /// there until there is room.
    Full(ConnId),
    /// A console that was full has room again.
    Room(ConnId),
}
