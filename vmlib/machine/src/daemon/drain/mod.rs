//! All tasks of a host leave it.
//!
//! ```text
//! console's daemon        drained host
//! DrainAsk             -> HostDraining into the log
//!                         each task: a move of its own, DRAIN_MOVES at a time
//!                      <- DrainEnd: who went where, who stayed and why
//! ```
//!
//! Once the log says that the host drains, nothing is placed there or moved there any more, so the
//! tasks that are there then are all that will have to leave. The host's daemon asks the coordinators
//! of their applications to move them, each as if a console had asked for it: the target is the
//! living host with most room. A task whose move failed is tried at another host, at
//! [`DRAIN_TRIES`](vm_wire::limits::DRAIN_TRIES) hosts in all. A task that cannot leave for a reason
//! that passes by itself - it starts, ends, is moving already, has a child process - is tried again,
//! for [`DRAIN_PATIENCE`](vm_wire::limits::DRAIN_PATIENCE) or as long as there is time
//! ([`Drain::waits_for`]). A task that cannot be moved stays and is named, and the others leave
//! nevertheless.
//!
//! A task that is suspended alone is handed on, and stays suspended (`suspended`).
//!
//! A drain may do more than move tasks ([`DrainWay`](vm_wire::peer::DrainWay)). *Save first*: each application with a task here
//! is saved before the host drains; if one cannot be, nothing is begun. *Suspend*: the application of
//! a task that cannot leave, because no host takes it or for any other reason, is suspended
//! (`suspension`); then the host drains also if no other one takes tasks.
//!
//! The host goes on draining until that is taken back, or it leaves. Whoever asks meanwhile waits
//! for the same end; whoever asks later has those tried again that stayed, and is told of all.
//!
//! A daemon may be told to drain its host by itself when it is asked to end
//! ([`DaemonConfig::drain_at_stop`](crate::DaemonConfig)): then it leaves when the drain is over, or
//! the time for it is.
//!
//! | file | concern |
//! |---|---|
//! | `state` | how far the drain is |
//! | `steps` | its steps, in which migration, checkpoints and suspension have a part |

mod state;
mod steps;

pub(super) use state::Drain;
