//! The decisions of a coordinator: moves (`coordinator`) and checkpoints (`checkpointing`).

mod checkpointing;
mod coordinator;

pub use coordinator::Coordinator;
