//! What one subsystem of a daemon has another one do.
//!
//! A subsystem calls no sibling: it leaves an effect in the context, and `settle` delivers the
//! effects in their order. The effects that the delivery of an effect leaves are delivered before
//! those that waited behind it, as if the subsystem had called its sibling.

use super::asked::MoveAsker;
use vm_wire::console::Answer;

/// See the module.
#[derive(Debug)]
pub(super) enum Effect {
    /// The request of a console, a task, or this daemon itself has its reply.
    Reply(MoveAsker, Answer),
}
