//! The inputs and outputs of a daemon's state machine.
//!
//! The shell (`vmd`, or the simulator) passes one [`Input`] at a time to `Daemon::step`, and then
//! carries out the entries of the [`Outbox`] in order. Inputs and outputs of one kind are an enum
//! of their own, so that the shell's dispatch is short.

mod connection;
mod consoles;
mod directs;
mod links;
mod moves;
mod processes;
mod rings;
mod store;

pub use connection::ConnId;
pub use consoles::ConsoleInput;
pub use directs::DirectOutput;
pub use links::LinkOutput;
pub use moves::{MoveInput, MoveOutput, Written};
pub use processes::{LaunchSpec, ProcessInput, ProcessOutput};
pub use rings::RingOutput;
pub use store::{SavedBy, StoreInput, StoreOutput};

use crate::Time;
use std::collections::VecDeque;
use vm_wire::{Frame, HostId, Tid, task::Enrol};

/// An event for a daemon.
#[derive(Debug)]
pub enum Input {
    /// Time has passed: `Daemon::deadline` is reached.
    Tick,
    /// A link to `host` is up: both ends have proved the secret and sent Hello. Frames on an older
    /// link are lost.
    LinkUp(HostId),
    /// The link to `host` is gone, or could not be made.
    LinkDown(HostId),
    /// A frame came over the link to `host`.
    Peer(HostId, Frame),
    /// A frame came from an authenticated daemon that has no host number yet.
    Joiner(ConnId, Frame),
    /// Other hosts reach this host at that address, not at the address that it stated.
    Address(String),
    /// A process of this host enrols. `pid` comes from the kernel.
    Enrol {
        /// Its data socket.
        conn: ConnId,
        /// Process id.
        pid: u32,
        /// Its first frame.
        enrol: Enrol,
    },
    /// A frame came over a task's data socket.
    Task(Tid, Frame),
    /// A task's data socket is closed.
    TaskGone(Tid),
    /// A console, a joiner or a connection that never enrolled is gone.
    ConnGone(ConnId),
    /// Data frames from the first to the second task of each pair were dropped because a queue was
    /// full. The queue has room again.
    Dropped(Vec<(Tid, Tid)>),
    /// The process of a coordinator sent a frame.
    Coordinator(u64, Frame),
    /// The memory of the ring between these two tasks could not be made.
    RingFailed {
        /// The number of the ring.
        id: u64,
        /// The two tasks.
        ends: [Tid; 2],
    },
    /// An expected direct connection has come to the daemon's port, and has proved its number.
    DirectCame(u64),
    /// The user requests that this daemon leaves (SIGTERM, SIGINT).
    Stop,
    /// An event of the connection of a console.
    Console(ConsoleInput),
    /// An event of a process on this host.
    Process(ProcessInput),
    /// An event of a task that moves, is frozen or is restored.
    Move(MoveInput),
    /// An event of the store of checkpoints, or a reply from it.
    Store(StoreInput),
}

/// An order of a daemon to its shell.
#[derive(Debug)]
pub enum Output {
    /// Send on the link to a host. Without a link the frame is dropped.
    Peer(HostId, Frame),
    /// Send to a joining daemon. After a `Refused`, close the connection.
    Joiner(ConnId, Frame),
    /// The connection is the data socket of a task from now on. Send the Welcome first, with the
    /// descriptor of the interrupt socket.
    Welcome {
        /// The connection.
        conn: ConnId,
        /// The task.
        tid: Tid,
        /// The frame with the Welcome.
        frame: Frame,
        /// For a master: send a second descriptor, through which the process that the library forks
        /// is connected as the coordinator of that number. If the library forks none,
        /// `CoordinatorGone` follows.
        coordinator: Option<u64>,
    },
    /// The enrolment failed, or a console broke the protocol: send the frame, then close the
    /// connection.
    Reject(ConnId, Frame),
    /// Send on a task's data socket. Without one the frame is dropped.
    Task(Tid, Frame),
    /// A task broke the protocol: close its data socket; `TaskGone` follows.
    CloseTask(Tid),
    /// Send to a console. Without the connection the frame is dropped.
    Console(ConnId, Frame),
    /// Send to the process of a coordinator. Without the process the frame is dropped.
    Coordinator(u64, Frame),
    /// The end of the lease: arm the timer that kills this daemon then. `None`: this host is the
    /// only one and needs no lease: disarm the timer.
    Lease(Option<Time>),
    /// Print a message for the user.
    Note(String),
    /// Flush the queues to the consoles, end all tasks, close everything, exit. `Ok`: an orderly
    /// end.
    End(Result<String, String>),
    /// About the links to other daemons.
    Link(LinkOutput),
    /// About a process on this host.
    Process(ProcessOutput),
    /// About a task that moves, is frozen or is restored.
    Move(MoveOutput),
    /// To the store of checkpoints.
    Store(StoreOutput),
    /// About rings between tasks of this host.
    Ring(RingOutput),
    /// About direct connections to tasks of other hosts.
    Direct(DirectOutput),
}

/// Outputs, in the order in which the shell carries them out.
pub type Outbox = VecDeque<Output>;

impl From<LinkOutput> for Output {
    fn from(order: LinkOutput) -> Self {
        Output::Link(order)
    }
}

impl From<ProcessOutput> for Output {
    fn from(order: ProcessOutput) -> Self {
        Output::Process(order)
    }
}

impl From<MoveOutput> for Output {
    fn from(order: MoveOutput) -> Self {
        Output::Move(order)
    }
}

impl From<StoreOutput> for Output {
    fn from(order: StoreOutput) -> Self {
        Output::Store(order)
    }
}

impl From<RingOutput> for Output {
    fn from(order: RingOutput) -> Self {
        Output::Ring(order)
    }
}

impl From<DirectOutput> for Output {
    fn from(order: DirectOutput) -> Self {
        Output::Direct(order)
    }
}

impl From<ConsoleInput> for Input {
    fn from(event: ConsoleInput) -> Self {
        Input::Console(event)
    }
}

impl From<ProcessInput> for Input {
    fn from(event: ProcessInput) -> Self {
        Input::Process(event)
    }
}

impl From<MoveInput> for Input {
    fn from(event: MoveInput) -> Self {
        Input::Move(event)
    }
}

impl From<StoreInput> for Input {
    fn from(event: StoreInput) -> Self {
        Input::Store(event)
    }
}
