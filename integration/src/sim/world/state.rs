//! The state of the simulated world, and the events that change it.
//!
//! Code map: this file has the struct of all tables and the events; each table is in a file of its
//! own below. There is no behaviour here: the files beside this one handle the events.

pub(super) mod coordinator;
pub(super) mod disks;
pub(super) mod fault;
pub(super) mod history;
pub(super) mod image;
pub(super) mod process;
pub(super) mod request;
pub(super) mod shelf;
pub(super) mod store;

use crate::sim::{
    coverage::{Coverage, Turns},
    ledger::Ledger,
    network::{Network, Slot},
    node::Node,
    pipe::{DirectCounts, Pipe},
    program::Sabotage,
    queue::{Moment, Queue},
    random::Random,
    ring_memory::RingCounts,
};
use disks::{Disks, PartSent};
use fault::{Ambush, Heal};
use history::History;
use image::Image;
use process::{Order, Process};
use request::{DrainRequest, MoveRequest};
use shelf::{Shelf, Shelving};
use std::collections::{BTreeMap, BTreeSet};
use store::{CutKey, Store};
use vm_machine::{ConnId, Input, Outbox};
use vm_wire::{Frame, HostId, MachineId, RequestKey, Tid, peer::MovePhase};

/// Options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Print each event.
    pub trace: bool,
    /// The rule that is broken on purpose, to check that the checkers notice.
    pub sabotage: Option<Sabotage>,
}

pub(super) enum Event {
    /// An input comes to a daemon from its own host.
    Input(Slot, Input),
    /// A frame arrives over a link.
    Frame {
        from: Slot,
        to: Slot,
        generation: u64,
        frame: Frame,
    },
    /// The deadline of a daemon passes; void unless the daemon still waits for this moment.
    Tick(Slot, Moment),
    /// A lease's timer fires; void if the lease was renewed.
    Lease(Slot, Moment),
    /// A connection may be complete.
    Connect {
        from: Slot,
        to: Slot,
        give_up: Moment,
    },
    /// An end of a link notices that the link broke.
    Broken {
        at: Slot,
        other: Slot,
        generation: u64,
    },
    /// A daemon requests to join.
    AskJoin(Slot),
    /// The reply to a joining daemon arrives.
    Admitted(Slot, Frame),
    /// A process sends its first frame.
    Enrol(usize),
    /// An input from a process, or from its end, arrives at its daemon.
    FromProcess(usize, Input),
    /// A report arrives that the process made after it had read that number of orders for an image.
    Report(usize, u64, Input),
    /// An order arrives at a process.
    Order(usize, Order),
    /// A frame arrives in a coordinator's socket.
    ToCoordinator(usize, Frame),
    /// A deadline of a coordinator passes.
    TickCoordinator(usize, Moment),
    /// An image was written, or cannot be written.
    Saved(usize),
    /// A process has sent its memory in pre-copy, under that ticket.
    Copied(usize, u64),
    /// The end of an image reaches its target.
    Crosses(usize),
    /// A process has written its image for the store, for that cut, or has failed.
    Stored(usize, (CutKey, bool), bool),
    /// A process has written its image, to be suspended, or has failed.
    Shelved(Box<Shelving>),
    /// Consoles request suspensions and resumptions of tasks.
    Suspensions,
    /// A part of a checkpoint arrives at the host that requested it.
    PartCrosses(PartSent),
    /// Consoles request moves.
    Requests,
    /// A console that requested a move closes.
    Leaves(ConnId),
    /// A frame arrives in a task's socket.
    ToTask(usize, Frame),
    /// A program continues.
    Wake(usize, Moment),
    /// A direct connection comes to the port of the daemon that expects it.
    DirectComes(u64),
    /// Something is in a direct connection of a task.
    FarWake(Tid),
    /// A task is interrupted, because that direct connection was closed.
    Nudge(usize, u64),
    /// Something is in a ring of a process.
    RingWake(usize),
    /// A process is ended by a signal.
    Kill(usize, i32),
    /// A fault strikes, if this plan is not void.
    Strike(u64),
    /// The effect of a fault ends.
    Heal(Heal),
    /// The drain of a host is ended.
    Undrain(Slot),
    /// New masters are started if there are too few tasks.
    Populate,
    /// Checks whether everything has ended.
    Settled,
}

/// The state of all hosts, processes, links and checkers of one run.
pub struct World {
    pub(super) options: Options,
    pub(super) queue: Queue<Event>,
    pub(super) random: Random,
    pub(super) machine: MachineId,
    pub(super) nodes: Vec<Node>,
    pub(super) network: Network,
    pub(super) processes: Vec<Process>,
    pub(super) connections: BTreeMap<ConnId, Connection>,
    pub(super) connection_next: u64,
    /// Tasks send only to tasks of their own application, and applications that lose a host are
    /// restarted from their last checkpoint.
    pub(super) secluded: bool,
    /// Each host has a store of its own.
    pub(super) own_stores: bool,
    pub(super) disks: Disks,
    pub(super) shelf: Shelf,
    /// Living tasks, and the last few that ended, as receivers of messages: for each application,
    /// or for all.
    pub(super) rosters: BTreeMap<Tid, Vec<Tid>>,
    /// Every tid that ever had a process.
    pub(super) launched: BTreeSet<Tid>,
    pub(super) ledger: Ledger,
    pub(super) history: History,
    /// Hosts that ended otherwise than by a planned leave.
    pub(super) crashed: BTreeSet<HostId>,
    pub(super) coverage: Coverage,
    /// Counts of outcomes of moves and checkpoints.
    pub(super) turns: Turns,
    /// Images in transfer; `None` once the transfer has ended.
    pub(super) images: Vec<Option<Image>>,
    /// For each freeze the process that has resumed.
    pub(super) claims: Vec<Option<usize>>,
    /// Tasks that daemons expect, by slot and ticket.
    pub(super) expected: BTreeMap<(Slot, u64), Tid>,
    /// Moves that consoles requested.
    pub(super) requests: BTreeMap<ConnId, MoveRequest>,
    /// The target and ticket of an image that its task was not told to write yet.
    pub(super) opened: BTreeMap<(Slot, Tid), (Slot, u64)>,
    /// The processes of coordinators.
    pub(super) coordinators: Vec<coordinator::Process>,
    /// For each move the last phase that a coordinator reported, and the coordinator.
    pub(super) phases_met: BTreeMap<RequestKey, (MovePhase, usize)>,
    /// The coordinators that ordered each move.
    pub(super) ordered_by: BTreeMap<RequestKey, BTreeSet<usize>>,
    /// Drains that consoles requested.
    pub(super) drains: BTreeMap<ConnId, DrainRequest>,
    /// Checkpoints in the store that all hosts share.
    pub(super) store: Store,
    /// The host on which each task left in order.
    pub(super) left_at: BTreeMap<Tid, HostId>,
    /// The next fault prefers this move: its source, its target, its task.
    pub(super) aim: Option<(Slot, Slot, Tid)>,
    /// The event that the next fault waits for.
    pub(super) ambush: Option<Ambush>,
    /// Whether the next fault strikes a move in a phase that was waited for.
    pub(super) driven: bool,
    /// Number of the plan for the next fault: earlier plans are void.
    pub(super) strikes: u64,
    /// The moment until which the network is broken somewhere, or a daemon is stalled.
    pub(super) blocked_until: Moment,
    /// The moment from which the network may break while the machine recovers.
    pub(super) next_break: Moment,
    /// Whether faults may take a majority away.
    pub(super) harsh: bool,
    pub(super) quiet_since: Option<Moment>,
    pub(super) halting: bool,
    pub(super) finished: bool,
    pub(super) events: u64,
    pub(super) rings: RingCounts,
    pub(super) directs: DirectCounts,
    /// The daemon that expects each direct connection.
    pub(super) awaited_directs: BTreeMap<u64, Slot>,
    /// Direct connections that tasks have dialled, and that are not with their peers yet.
    pub(super) dialled: BTreeMap<u64, Pipe>,
    pub(super) outbox: Outbox,
}

/// The other end of a connection that a daemon knows by number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Connection {
    /// A process, by its place in the table.
    Process(usize),
    /// A daemon that requests to join.
    Joiner(Slot),
    /// A console.
    Console,
}
