//! The decisions of a coordinator, as pure state machines. `coordinator` takes every frame and
//! drives the moves; it passes orders about checkpoints to `checkpointing`, which makes one
//! checkpoint at a time.

mod checkpointing;
mod coordinator;

pub use coordinator::Coordinator;
