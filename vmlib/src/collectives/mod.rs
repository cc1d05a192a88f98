//! Collective calls: what the members of a group compute and exchange together.
//!
//! All members of a group make the same collective calls in the same order. Each call is a set of
//! messages among the members, in a context that no receive of the program selects. Other messages
//! of the program may be sent and received between the calls, but are not needed for them.
//!
//! | call | effect |
//! |---|---|
//! | [`Task::broadcast`], [`Task::broadcast_bytes`], [`Task::broadcast_slice`] | one member's value for all |
//! | [`Task::reduce`], [`Task::reduce_by`] | the values of all, combined, for one member |
//! | [`Task::allreduce`], [`Task::allreduce_in_place`], [`Task::allreduce_by`] | the same, for all |
//! | [`Task::min_with_place`], [`Task::max_with_place`] | the extreme value of all, and who has it, for all |
//! | [`Task::scan`], [`Task::scan_by`], [`Task::exclusive_scan`] | the combined values of the lower instances |
//! | [`Task::gather`], [`Task::gatherv`], [`Task::gather_bytes`] | the values of all, for one member |
//! | [`Task::scatter`], [`Task::scatterv`], [`Task::scatter_bytes`] | one member's blocks, one for each |
//! | [`Task::allgather`], [`Task::allgatherv`], [`Task::allgather_bytes`] | the values of all, for all |
//! | [`Task::alltoall`], [`Task::alltoallv`], [`Task::alltoall_bytes`] | a block from each for each |
//!
//! The values are slices of a [`Number`] type, and are combined place by place with an [`Op`] or with
//! the program's own operation. Calls without `v` and `_bytes` need equally many values from all
//! members; the others take as many as each member passes. [`Task::barrier`] is a call of its own,
//! which members may join and leave meanwhile.
//!
//! ```no_run
//! # use vmlib::Op;
//! # fn example(vm: &vmlib::Task) -> Result<(), Box<dyn std::error::Error>> {
//! let mut group = vm.join("integral")?;
//! vm.await_members(&mut group, 4)?;
//! // Each member sums its share of the terms; all get the sum of all.
//! let (n, step) = (group.size(), 1e-6);
//! let mine = (group.instance() as usize..1_000_000).step_by(n);
//! let own: f64 = mine.map(|i| 4.0 / (1.0 + ((i as f64 + 0.5) * step).powi(2))).sum();
//! let pi = vm.allreduce(&group, Op::Sum, &[own])?[0] * step;
//! # Ok(())
//! # }
//! ```
//!
//! # Who takes part
//!
//! The members of the version that the handle has ([`Group::members`]). Members that joined later do
//! not take part, until the handles of all have the new version: let all members call
//! [`Task::await_members`], then [`Task::barrier`], which brings all to one version.
//!
//! A member in a call that hears of another member in a call under a newer version gets
//! [`GroupError::Version`]. The member with the newer version waits. So the first one calls
//! [`Task::refresh`], which brings its handle to that version at least, and repeats the call. Under
//! each version the calls are counted from the beginning, so the repeated call is the first one under
//! the new version, as it is for the others. A call that had ended for some members and not for others
//! when the version changed cannot be repeated by all: let all calls end before members join.
//!
//! # Failure
//!
//! A call fails with an error that names the member: [`crate::RecvError::Ended`] when that member
//! has ended, [`GroupError::Left`] when it has left the group, [`GroupError::OutOfStep`] when it makes
//! another call, [`GroupError::Failed`] when the call failed there for a reason that its own error
//! tells. A member at which a call fails tells all members that may wait for it, so the call fails or
//! is completed at each of them, and none waits for ever. After the end of a member, [`Task::refresh`]
//! brings the handle to a version without it.
//!
//! A member that has all that it waits for returns without an error, also when others have ended: the
//! root of a broadcast may end right after the call, and a member that only sends in a reduction does
//! not learn of the end of the root. As with every receive, the end of a member may be noticed half a
//! second late.
//!
//! # The same bits
//!
//! All members of an allreduce get the same bits, and the same call with the same values and as many
//! members gives them again, also after moves and restarts. An operation of the program's own is
//! associative; if it is not commutative too, [`Operands::ByInstance`] gives it the operands in the
//! order of the instances.
//!
//! # How it is built
//!
//! [`choice`] selects the algorithm. `call` numbers the calls and tells failures; `mailbox` waits for
//! a part of one member. Messages carry the group's version and the number of the call behind their
//! payload (`wire`): those of earlier calls are dropped, those of later ones kept, for a fast member
//! may be in the next call already. Long values go in segments that fit into one chunk of the channel,
//! and are combined in place.

mod broadcast;
mod exchange;
mod gather;
mod reduce;
mod scan;

mod divided;
pub(crate) mod tree;

mod call;
mod item;
mod mailbox;
mod op;
mod progress;
mod wire;

pub mod choice;

pub use op::{Op, Operands};
pub(crate) use progress::Progress;
pub(crate) use wire::{CONTROL, left};

#[cfg(doc)]
use crate::{Group, GroupError, Number, Task};
