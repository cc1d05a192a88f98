//! Restarts of applications from their checkpoints, by request or after a loss.
//!
//! ```text
//! asked daemon   chooses a checkpoint, reads its manifest, places the tasks (`request`)
//! log            Revive: the tasks live again, under a higher generation
//! each owner     reads the manifest, restores its tasks; they stand (`owner`)
//! log            Standing, of each owner
//! each owner     lets them go on
//! ```
//!
//! Until the last `Standing` no task has run. Whatever goes wrong before it (a damaged image, a
//! process that ends, a host that dies) ends all of it (`Abandon`, or the end of a task), and the
//! checkpoint is in the store as before.
//!
//! An image is verified while its task is restored, and a damaged image restores no task. So the last
//! checkpoint is chosen by a look at its lengths alone. If that checkpoint fails, the next choice is
//! made by reading all of it: either it is whole, and the failure is reported; or it is passed over,
//! and the checkpoint before it is chosen.
//!
//! The knowledge of the daemon about a task at the cut is in the manifest and belongs to the task again. A process
//! of the earlier generation may still be here: the new process is made when that has ended.

mod inventory;
mod owner;
mod query;
mod recovery;
mod request;
mod table;

pub(super) use table::{Restart, Restarts};
