//! Tasks and consoles of this host. This folder owns the UNIX socket, the connections of tasks and
//! consoles to it, the interrupt sockets of tasks, and the flow from a console's keyboard to a
//! task's standard input.

pub mod locals;
pub mod rings;

pub mod interrupts;

pub mod consoles;
