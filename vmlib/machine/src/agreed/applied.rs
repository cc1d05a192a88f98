//! The effect of an applied change, or the reason why the change was void. Every daemon gets the
//! same effects in the same order, and each subsystem of the daemon acts on the effects that
//! concern it.

use super::lives::{Reviving, Unsuspended};
use vm_wire::{
    HostId, RequestKey, Tid,
    agreed::{Change, ExitStatus, SpawnRecord},
    checkpoint::AgreedPart,
};

/// The effect of an applied change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// A host joined the machine.
    HostJoined {
        /// Number of the new host.
        host: HostId,
        /// Nonce that the daemon drew at its start.
        nonce: u64,
    },
    /// The host has another address.
    HostAddress(HostId),
    /// The host is being drained.
    HostDraining(HostId),
    /// The host takes tasks again.
    HostResumed(HostId),
    /// The host began a planned leave.
    HostLeaving(HostId),
    /// The host completed a planned leave. The ends of its remaining tasks were reported just
    /// before.
    HostGone(HostId),
    /// The host was declared dead. The ends of its tasks were reported just before.
    HostDead(HostId),
    /// Tasks were spawned.
    Spawned(SpawnRecord),
    /// A task ended. Reports of the groups that it left follow.
    Exited {
        /// Id of the task.
        tid: Tid,
        /// Last owner of the task.
        host: HostId,
        /// Incarnation of the task at its end.
        incarnation: u32,
        /// Exit status of the task.
        status: ExitStatus,
    },
    /// A task moved, was suspended, or was resumed.
    Relocated {
        /// Id of the task.
        tid: Tid,
        /// Owner before the change.
        from: HostId,
        /// Owner after the change.
        to: HostId,
        /// Incarnation after the change.
        incarnation: u32,
        /// Whether the task is now suspended on its owner.
        suspended: bool,
    },
    /// A task stayed with its owner, because the outcome of a move was in doubt.
    Stayed {
        /// Id of the task.
        tid: Tid,
        /// Owner of the task.
        host: HostId,
        /// Incarnation after the change.
        incarnation: u32,
    },
    /// Members joined or left a group.
    Group {
        /// Name of the group.
        group: String,
        /// Version after the change; the machine never used it before.
        version: u64,
    },
    /// A task got a new context.
    Context {
        /// Id of the task.
        tid: Tid,
        /// The context.
        context: u32,
    },
    /// An application has a new coordinator.
    Coordinator {
        /// Task id of the application's master.
        app: Tid,
        /// Host of the coordinator's process.
        host: HostId,
        /// Coordinator term of the new coordinator.
        term: u32,
    },
    /// A checkpoint of an application begins.
    Cut {
        /// Task id of the application's master.
        app: Tid,
        /// Epoch from now on.
        epoch: u32,
        /// Agreed part of the checkpoint; `None` if a snapshot replaced the entries.
        agreed: Option<Box<AgreedPart>>,
    },
    /// All tasks of the application are frozen, and resume.
    CutGone {
        /// Task id of the application's master.
        app: Tid,
        /// Epoch of the cut.
        epoch: u32,
    },
    /// A cut has ended. If the application was stopped, the ends of its tasks were reported just
    /// before.
    CutEnded {
        /// Task id of the application's master.
        app: Tid,
        /// Epoch of the cut.
        epoch: u32,
        /// Whether a checkpoint was committed.
        saved: bool,
    },
    /// The application has another checkpoint policy.
    Policy(Tid),
    /// A restart of the application began: its tasks are to be restored on their owners.
    Revived {
        /// Task id of the application's master.
        app: Tid,
        /// Generation from now on.
        generation: u32,
    },
    /// The restart is complete: all tasks of the application resume.
    Started {
        /// Task id of the application's master.
        app: Tid,
        /// Generation of the application.
        generation: u32,
        /// Record of the restart; `None` if a snapshot replaced the entries.
        reviving: Option<Reviving>,
    },
    /// The restart failed. The ends of the restored tasks were reported just before.
    Abandoned {
        /// Task id of the application's master.
        app: Tid,
        /// Generation of the failed restart.
        generation: u32,
        /// The request for the restart.
        requester: RequestKey,
        /// Reason of the failure, as text for users.
        why: String,
    },
    /// The application recovers from its last checkpoint, or its recovery is tried again. The ends
    /// of its tasks were reported just before.
    RolledBack(Tid),
    /// All tasks of the application have ended, its master successfully: its checkpoints are to be
    /// removed.
    Finished {
        /// Task id of the application's master.
        app: Tid,
        /// Host whose daemon removes the checkpoints, if all hosts share a store.
        host: HostId,
    },
    /// The recovery of the application failed for the last time.
    GivenUp {
        /// Task id of the application's master.
        app: Tid,
        /// Reason of the failure, as text for users.
        why: String,
    },
    /// The application was suspended. The ends of its tasks and of the cut were reported just
    /// before.
    Suspended(Tid),
    /// The resumption failed. The ends of tasks that were restored for it were reported just
    /// before.
    NotResumed {
        /// Task id of the application's master.
        app: Tid,
        /// Reason of the failure, as text for users.
        why: String,
    },
    /// The application is not suspended any more.
    Unsuspended {
        /// Task id of the application's master.
        app: Tid,
        /// Reason of the end of the suspension.
        why: Unsuspended,
    },
    /// The machine is halted.
    Halted,
    /// The change had no effect, because its conditions did not hold.
    Void(Change, Void),
}

/// Reasons why a change was void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Void {
    /// The machine has been halted.
    #[error("the machine has been halted")]
    Halted,
    /// The proposer is dead or has left the machine.
    #[error("its proposer is not in the machine any more")]
    Proposer,
    /// A present host has that name.
    #[error("host {0} has that name")]
    NameTaken(HostId),
    /// The store of the new host is of another kind than the store of this host: shared, or one for
    /// each host.
    #[error("{0} has another kind of store")]
    OtherStore(HostId),
    /// The same daemon has joined before.
    #[error("that daemon has joined as {0}")]
    JoinedBefore(HostId),
    /// The host does not exist, or takes no tasks.
    #[error("{0} takes no tasks")]
    NoHost(HostId),
    /// The task does not exist, or has ended.
    #[error("{0} is not alive")]
    NoTask(Tid),
    /// The task has another owner or another incarnation.
    #[error("the task is on {0} with incarnation {1}")]
    Moved(HostId, u32),
    /// The request has spawned these tasks before.
    #[error("the request was carried out before")]
    BornBefore,
    /// A name is empty or too long, a number is out of its range.
    #[error("malformed")]
    Malformed,
    /// A limit of the machine or the host is reached.
    #[error("a limit is reached")]
    Limit,
    /// The coordinator term of the change is not the next one, or not the current one.
    #[error("the coordinator's last term is {0}")]
    Term(u32),
    /// Another cut is under way, the named cut is not under way, or the named step of the cut is
    /// not due.
    #[error("another checkpoint is under way, or none")]
    Cut,
    /// A task or application that is to be restarted lives.
    #[error("{0} is alive")]
    Alive(Tid),
    /// A group that is to be restored has members.
    #[error("a group of its name has members")]
    GroupTaken,
    /// The application is not being restarted, or this host has reported before.
    #[error("it is not being brought back, or was again")]
    Revival,
    /// The application is not suspended, or is being resumed.
    #[error("it is not suspended, or is just being resumed")]
    Suspension,
    /// The change was requested in an earlier generation of the application.
    #[error("its application went back to a checkpoint meanwhile")]
    Generation,
    /// The host is not draining, or is the last host that takes tasks.
    #[error("{0} is not draining, or is the last host that takes tasks")]
    Draining(HostId),
    /// The task is a member already, or is no member.
    #[error("no change of membership")]
    Member,
}
