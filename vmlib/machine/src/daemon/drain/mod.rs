//! The drain of a host: all tasks leave it.
//!
//! ```text
//! requester's daemon      drained host
//! DrainAsk           ->   proposes HostDraining
//!                         moves each task, at most DRAIN_MOVES at a time
//!                    <-   DrainEnd: tasks that left, tasks that stayed with the reasons
//! ```
//!
//! After the log has applied that the host drains, no task is placed on it or moved to it. The
//! tasks on the host at that moment are therefore all tasks that have to leave. The host's daemon
//! requests the moves from the coordinators of their applications, as for a request of a console.
//! The target is the living host with the most room.
//!
//! - A task whose move failed is tried at another host, at
//!   [`DRAIN_TRIES`](vm_wire::limits::DRAIN_TRIES) hosts in all.
//! - A task that cannot leave for a reason that passes (it starts, ends, moves already, or has a
//!   child process) is tried again for [`DRAIN_PATIENCE`](vm_wire::limits::DRAIN_PATIENCE), or
//!   as long as the time limit of the drain allows ([`Drain::waits_for`]).
//! - A task that cannot be moved stays, and the report names it. The other tasks leave
//!   nevertheless.
//! - A single suspended task is handed on to another host, and stays suspended (`suspended_tasks`).
//!
//! A drain has two options ([`DrainWay`](vm_wire::peer::DrainWay)):
//!
//! - *Save first*: a checkpoint of each application with a task here is made before the host
//!   drains. If one fails, the drain does not begin.
//! - *Suspend*: if a task cannot leave, because no host takes it or for another reason, its
//!   application is suspended (`suspension`). The host then also drains if no other host takes
//!   tasks.
//!
//! The host drains until the drain is undone, or until the host leaves. A request while tasks are
//! moving gets the same report. A later request tries the tasks that stayed once more; its reply
//! reports all tasks.
//!
//! A daemon can be configured to drain its host when it is asked to end
//! ([`DaemonConfig::drain_at_stop`](crate::DaemonConfig)). Such a daemon leaves when the drain has
//! ended, or when the time limit is reached.
//!
//! | file | concern |
//! |---|---|
//! | `state` | the state of the drain |
//! | `steps` | its steps, in which migration, checkpoints and suspension take part |

mod state;
mod steps;

pub(super) use state::Drain;
