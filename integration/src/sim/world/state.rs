//! The state of the simulated world, and the events that change it.
//!
//! Code map: this file has the world's table of tables and its events; each table is in a file of its
//! own below. Nothing happens here: the files beside this one hold what events do.

pub(super) mod coordinator;
pub(super) mod disks;
pub(super) mod fault;
pub(super) mod history;
pub(super) mod image;
pub(super) mod process;
pub(super) mod shelf;
pub(super) mod store;
pub(super) mod wish;

use crate::sim::{
    coverage::{Coverage, Turns},
    ledger::Ledger,
    network::{Network, Slot},
    node::Node,
    program::Sabotage,
    queue::{Moment, Queue},
    random::Random,
};
use disks::{Disks, PartSent};
use fault::{Ambush, Heal};
use history::History;
use image::Image;
use process::{Order, Process};
use shelf::{Shelf, Shelving};
use std::collections::{BTreeMap, BTreeSet};
use store::{CutKey, Store};
use vm_machine::{ConnId, Input, MoveKey, Outbox};
use vm_wire::{Frame, HostId, MachineId, Tid, peer::MovePhase};
use wish::{DrainWish, Wish};

/// Options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Print each event.
    pub trace: bool,
    /// The rule that is broken on purpose, to see that the checkers notice.
    pub sabotage: Option<Sabotage>,
}

pub(super) enum Event {
    /// Something comes to a daemon from its own host.
    Input(Slot, Input),
    /// A frame arrives over a link.
    Frame {
        from: Slot,
        to: Slot,
        generation: u64,
        frame: Frame,
    },
    /// A daemon's deadline passes; void unless the daemon still waits for this moment.
    Tick(Slot, Moment),
    /// A lease's timer fires; void if the lease was renewed.
    Lease(Slot, Moment),
    /// A connection may be complete.
    Connect {
        from: Slot,
        to: Slot,
        give_up: Moment,
    },
    /// An end of a link notices that it broke.
    Broken {
        at: Slot,
        other: Slot,
        generation: u64,
    },
    /// A daemon asks to be let in.
    AskJoin(Slot),
    /// A joiner's answer arrives.
    Admitted(Slot, Frame),
    /// A process starts to speak.
    Enrol(usize),
    /// An input from a process, or from its end, arrives at its daemon.
    FromProcess(usize, Input),
    /// A report of a process arrives that the process made after that many orders for an image.
    Report(usize, u64, Input),
    /// An order arrives at a process.
    Order(usize, Order),
    /// A frame arrives in a coordinator's socket.
    ToCoordinator(usize, Frame),
    /// Something is due at a coordinator.
    TickCoordinator(usize, Moment),
    /// An image is written, or cannot be.
    Saved(usize),
    /// A process has sent most of its memory, under that ticket.
    Copied(usize, u64),
    /// The end of an image reaches its target.
    Crosses(usize),
    /// A process has written its image for the store, for that cut; or it cannot.
    Stored(usize, (CutKey, bool), bool),
    /// A process has written its image, to be suspended, or cannot.
    Shelved(Box<Shelving>),
    /// Consoles want tasks suspended, and resumed.
    Suspensions,
    /// A part of a checkpoint arrives at the host that wants it.
    PartCrosses(PartSent),
    /// Consoles want tasks moved.
    Wishes,
    /// A console that wanted a move goes away.
    Leaves(ConnId),
    /// A frame arrives in a task's socket.
    ToTask(usize, Frame),
    /// A program goes on.
    Wake(usize, Moment),
    /// A process is ended by a signal.
    Kill(usize, i32),
    /// A fault strikes, if this plan is not void.
    Strike(u64),
    /// The effect of a fault ends.
    Heal(Heal),
    /// A host that drains is to take tasks again.
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
    /// Nobody talks beyond its application, and applications that lose a host go back to their last
    /// checkpoint.
    pub(super) secluded: bool,
    /// Each host has a store of its own.
    pub(super) own_stores: bool,
    pub(super) disks: Disks,
    pub(super) shelf: Shelf,
    /// Living tasks, and the last few that ended, to talk to: of each application, or of all.
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
    /// Images on their way; `None`: no more.
    pub(super) images: Vec<Option<Image>>,
    /// For each freeze the process that went on.
    pub(super) claims: Vec<Option<usize>>,
    /// Tasks that daemons await, by their slots and tickets.
    pub(super) expected: BTreeMap<(Slot, u64), Tid>,
    /// Moves that consoles want.
    pub(super) wishes: BTreeMap<ConnId, Wish>,
    /// Where the image of a task goes that was not told yet to write it.
    pub(super) opened: BTreeMap<(Slot, Tid), (Slot, u64)>,
    /// The processes of coordinators.
    pub(super) coordinators: Vec<coordinator::Process>,
    /// For each move the last phase that a coordinator spoke of, and which one.
    pub(super) phases_met: BTreeMap<MoveKey, (MovePhase, usize)>,
    /// The coordinators that ordered each move.
    pub(super) ordered_by: BTreeMap<MoveKey, BTreeSet<usize>>,
    /// Drains that consoles want.
    pub(super) drains: BTreeMap<ConnId, DrainWish>,
    /// Checkpoints in the store that all hosts share.
    pub(super) store: Store,
    /// Where tasks left in order.
    pub(super) left_at: BTreeMap<Tid, HostId>,
    /// The next fault prefers this move: its source, its target, its task.
    pub(super) aim: Option<(Slot, Slot, Tid)>,
    /// The next fault waits for this.
    pub(super) ambush: Option<Ambush>,
    /// The next fault strikes a move in a phase that was waited for.
    pub(super) driven: bool,
    /// Numbers the plans for the next fault: older ones are void.
    pub(super) strikes: u64,
    /// Until then the network is broken somewhere, or a daemon is stalled.
    pub(super) blocked_until: Moment,
    /// Faults may take a majority away.
    pub(super) harsh: bool,
    pub(super) quiet_since: Option<Moment>,
    pub(super) halting: bool,
    pub(super) finished: bool,
    pub(super) events: u64,
    pub(super) outbox: Outbox,
}

/// The other end of a connection that a daemon knows by number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Connection {
    /// A process, by its place in the table.
    Process(usize),
    /// A daemon that wants to be let in.
    Joiner(Slot),
    /// Somebody with a console.
    Console,
}
