//! What a change did when it was applied, or why it did nothing.

use super::lives::{Reviving, Unsuspended};
use vm_wire::{
    HostId, RequestKey, Tid,
    agreed::{Change, ExitStatus, SpawnRecord},
    checkpoint::AgreedPart,
};

/// What an applied change did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// A host is new.
    HostJoined {
        /// The number it was given.
        host: HostId,
        /// What it drew at its start.
        nonce: u64,
    },
    /// A host is reached at another address.
    HostAddress(HostId),
    /// The host's tasks are to leave.
    HostDraining(HostId),
    /// The host takes tasks again.
    HostResumed(HostId),
    /// A planned leave began.
    HostLeaving(HostId),
    /// A planned leave is complete. The ends of tasks that still were there came just before.
    HostGone(HostId),
    /// A host was declared dead. The ends of its tasks came just before.
    HostDead(HostId),
    /// Tasks were born.
    Spawned(SpawnRecord),
    /// A task ended. The groups that it was in follow.
    Exited {
        /// The task.
        tid: Tid,
        /// Where it was.
        host: HostId,
        /// Its incarnation there.
        incarnation: u32,
        /// How it ended.
        status: ExitStatus,
    },
    /// A task moved, was suspended, or was resumed.
    Relocated {
        /// The task.
        tid: Tid,
        /// Its owner before.
        from: HostId,
        /// Its owner now.
        to: HostId,
        /// Its incarnation now.
        incarnation: u32,
        /// Whether it is suspended there.
        suspended: bool,
    },
    /// A task stayed: a move ended in doubt.
    Stayed {
        /// The task.
        tid: Tid,
        /// Its owner.
        host: HostId,
        /// Its incarnation now.
        incarnation: u32,
    },
    /// A group has new members, or fewer.
    Group {
        /// Its name.
        group: String,
        /// Its version now; never used before in this machine.
        version: u64,
    },
    /// An application has another coordinator.
    Coordinator {
        /// The application.
        app: Tid,
        /// Where its process is.
        host: HostId,
        /// Its term.
        term: u32,
    },
    /// A checkpoint of an application begins.
    Cut {
        /// The application.
        app: Tid,
        /// Its epoch from now on.
        epoch: u32,
        /// What was agreed about it then; not known where a later state was given at once.
        agreed: Option<Box<AgreedPart>>,
    },
    /// All its tasks stand, and go on.
    CutGone {
        /// The application.
        app: Tid,
        /// The epoch of the cut.
        epoch: u32,
    },
    /// It has ended. The ends of the application's tasks came just before if it was stopped.
    CutEnded {
        /// The application.
        app: Tid,
        /// The epoch of the cut.
        epoch: u32,
        /// Whether it left a checkpoint.
        saved: bool,
    },
    /// Checkpoints of an application are made in another way.
    Policy(Tid),
    /// An application is brought back: its tasks are to be where the state says.
    Revived {
        /// The application.
        app: Tid,
        /// Its generation from now on.
        generation: u32,
    },
    /// It is back: all its tasks go on.
    Started {
        /// The application.
        app: Tid,
        /// Its generation.
        generation: u32,
        /// How it was brought back; not known where a later state was given at once.
        reviving: Option<Reviving>,
    },
    /// It is not brought back. The ends of its tasks came just before.
    Abandoned {
        /// The application.
        app: Tid,
        /// The generation that it would have had.
        generation: u32,
        /// Who had asked for it.
        asker: RequestKey,
        /// For people.
        why: String,
    },
    /// An application goes back to its last checkpoint, or has to be brought back once more. The ends
    /// of its tasks came just before.
    RolledBack(Tid),
    /// All of an application has ended, its master well: its checkpoints go.
    Finished {
        /// The application.
        app: Tid,
        /// Whose daemon removes them, where all hosts share a store.
        host: HostId,
    },
    /// An application that went back could not be brought back.
    GivenUp {
        /// The application.
        app: Tid,
        /// For people.
        why: String,
    },
    /// An application is suspended. The ends of its tasks and of the cut came just before.
    Suspended(Tid),
    /// It could not be resumed. If processes of its tasks stood, their ends came just before.
    NotResumed {
        /// The application.
        app: Tid,
        /// For people.
        why: String,
    },
    /// It is suspended no more.
    Unsuspended {
        /// The application.
        app: Tid,
        /// Why not.
        why: Unsuspended,
    },
    /// The machine ends.
    Halted,
    /// Nothing: the change's conditions did not hold.
    Void(Change, Void),
}

/// Why a change was void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Void {
    /// The machine has been halted.
    #[error("the machine has been halted")]
    Halted,
    /// The proposer is dead or has left.
    #[error("its proposer is not in the machine any more")]
    Proposer,
    /// A living host has that name.
    #[error("host {0} has that name")]
    NameTaken(HostId),
    /// Its store is not of the kind that this host's is: all share one, or each has its own.
    #[error("{0} has another kind of store")]
    OtherStore(HostId),
    /// The same daemon has joined before.
    #[error("that daemon has joined as {0}")]
    JoinedBefore(HostId),
    /// No such host, or it is not living.
    #[error("{0} takes no tasks")]
    NoHost(HostId),
    /// No such living task.
    #[error("{0} is not alive")]
    NoTask(Tid),
    /// The task is elsewhere, or of another incarnation.
    #[error("the task is on {0} with incarnation {1}")]
    Moved(HostId, u32),
    /// The request bore these tasks before.
    #[error("the request was carried out before")]
    BornBefore,
    /// A name is empty or too long, a number is out of its range.
    #[error("malformed")]
    Malformed,
    /// A limit of the machine or the host is reached.
    #[error("a limit is reached")]
    Limit,
    /// The application has, or had, a coordinator of another term.
    #[error("the coordinator's last term is {0}")]
    Term(u32),
    /// A cut is under way, or the one that is meant is not, or it is not its turn.
    #[error("another checkpoint is under way, or none")]
    Cut,
    /// What is to be brought back lives.
    #[error("{0} is alive")]
    Alive(Tid),
    /// A group that is to be brought back has members.
    #[error("a group of its name has members")]
    GroupTaken,
    /// No such application is being brought back.
    #[error("it is not being brought back, or was again")]
    Revival,
    /// No such application is suspended, or it is just being resumed.
    #[error("it is not suspended, or is just being resumed")]
    Suspension,
    /// It was asked in an earlier generation of the application.
    #[error("its application went back to a checkpoint meanwhile")]
    Generation,
    /// The host does not drain, or is the last one that takes tasks.
    #[error("{0} is not draining, or is the last host that takes tasks")]
    Draining(HostId),
    /// The task is in the group, or is not.
    #[error("no change of membership")]
    Member,
}
