//! Restarts of applications from their checkpoints, by request or after a loss.
//!
//! ```text
//! requester's daemon   chooses a checkpoint, reads its manifest, places the tasks (`request`)
//! log                  Revive: the tasks live, in a higher generation
//! each owner           reads the manifest, restores its tasks, which are frozen (`owner`)
//! log                  Standing, of each owner
//! each owner           resumes its tasks
//! ```
//!
//! No task of the application runs before the last `Standing`. Any failure before that (a damaged
//! image, a process that ends, a lost host) ends the whole restart (`Abandon`, or the end of a
//! task). The checkpoint is then in the store as before.
//!
//! An image is verified while its task is restored, and a damaged image restores no task. The
//! daemon of the requester therefore chooses the last checkpoint whose files have the right
//! lengths, without reading it. If that checkpoint fails, the next choice reads the whole
//! checkpoint. Either it is whole, and the failure is reported; or it is passed over, and the
//! checkpoint before it is chosen.
//!
//! The manifest contains the state that the daemon had of each task at the cut. The restored task
//! has this state again. If a process of the earlier generation still runs on this host, the
//! restore begins after that process has ended.

mod inventory;
mod owner;
mod query;
mod recovery;
mod request;
mod table;

pub(super) use table::{Restart, Restarts};
