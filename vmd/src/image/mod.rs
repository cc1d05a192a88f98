//! Images of tasks. This folder owns the processes that transfer, store and read images, the memory
//! that tasks write images into, the daemon's view of the store and its bucket, and the system's
//! side of moves.

pub mod lent;
pub mod transfer;

pub mod store;

pub mod images;
pub mod suspended;

pub mod bucket;
pub mod memory;

pub mod carriers;
pub mod news;

pub mod moves;
