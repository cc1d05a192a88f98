//! The decisions of the virtual parallel machine, as pure state machines.
//!
//! Nothing here does I/O, reads a clock or draws a random number: time comes in with every step,
//! seeds come in with the configuration, and what is to be done goes out as values. So the same code
//! runs in the daemon, in the task library and in the simulator.
//!
//! No table here is iterated in the random order of std's `HashMap`: wherever order can be seen,
//! tables are `BTreeMap`s.

pub mod io;
pub mod time;

pub use io::{ConnId, Input, LaunchSpec, Outbox, Output};
pub use time::Time;
