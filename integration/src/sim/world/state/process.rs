//! The process of a task, and the orders that it gets from its daemon.

use super::store::CutKey;
use crate::sim::{
    network::Slot, node::Node, pipe::Pipe, program::Program, queue::Moment, random::Random,
    ring_memory::Memory,
};
use std::collections::{BTreeSet, VecDeque};
use vm_machine::{ConnId, Time};
use vm_wire::{Frame, Tid};

/// Whether a process runs its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gait {
    /// The program runs.
    Runs,
    /// The process is frozen and writes its image.
    Saves,
    /// The process is frozen and waits for the order to resume.
    Stands,
}

/// An order of a daemon to a process, over the interrupt socket.
#[derive(Debug, Clone)]
pub enum Order {
    /// Begin pre-copy: write into a connection to that slot with that ticket.
    Copy(Slot, u64),
    /// Freeze, and write an image into the store, for that cut, or have a copy write it.
    Save((CutKey, bool)),
    /// Freeze, and write the rest of the image; or write all of it into a connection to that slot
    /// with that ticket.
    Freeze(Option<(Slot, u64)>),
    /// Freeze, and write an image of that name into the store, under that number: the task is
    /// suspended.
    Suspend(String, u64),
    /// Abandon the image that was begun.
    Cancel,
    /// Resume, in that generation.
    Go(u32),
}

impl Order {
    /// Whether the order carries a descriptor for an image.
    pub fn is_of_image(&self) -> bool {
        matches!(
            self,
            Order::Copy(..) | Order::Save(_) | Order::Freeze(_) | Order::Suspend(..)
        )
    }
}

/// The process of a task.
pub struct Process {
    /// The slot of the process's daemon.
    pub slot: Slot,
    /// The tid of the task, as far as the process or its daemon knows it.
    pub tid: Tid,
    /// Whether the process exists.
    pub alive: bool,
    /// The data socket, once connected.
    pub conn: Option<ConnId>,
    /// The program, once the process got its Welcome.
    pub program: Option<Program>,
    /// Whether the daemon's queue for the process is full: data frames are dropped then.
    pub full: bool,
    /// Channels of which frames were dropped.
    pub dropped: BTreeSet<(Tid, Tid)>,
    pub token: Option<u64>,
    /// Frames that wait in the data socket, oldest first.
    pub socket: VecDeque<Frame>,
    /// Memory of rings that comes with the frames in the socket.
    pub memory: VecDeque<Memory>,
    /// Direct connections that come with the frames in the socket.
    pub pipes: VecDeque<Pipe>,
    /// No frame arrives in the socket before `arrival_in`, and none at the daemon before
    /// `arrival_out`.
    pub arrival_in: Moment,
    pub arrival_out: Moment,
    /// The moment at which the program continues, unless a frame comes before.
    pub wake_at: Option<Moment>,
    /// Whether the process runs its program.
    pub gait: Gait,
    /// While the process runs in pre-copy: the slot and ticket of its connection.
    pub copying: Option<(Slot, u64)>,
    /// Orders that the process has not read.
    pub orders: Vec<Order>,
    /// The number of orders for an image that were sent to the process, and the number that it has
    /// read.
    pub images: (u64, u64),
    /// No order arrives before `arrival_order`, and no report before `arrival_report`.
    pub arrival_order: Moment,
    pub arrival_report: Moment,
    /// The last freeze of the process, or the freeze of its image.
    pub freeze: Option<usize>,
    /// The slot that its image came from, until the process resumes.
    pub came_from: Option<Slot>,
    /// The library's clock minus the host's clock. Microseconds.
    pub offset: i64,
    /// A signal that ends the process when it resumes.
    pub pending_signal: Option<i32>,
    /// Whether the daemon has ended the process and ignores its reports.
    pub discarded: bool,
    pub random: Random,
}

impl Process {
    /// The reading of the library's clock in this process.
    pub fn time(&self, node: &Node, now: Moment) -> Time {
        Time(node.time(now).0.wrapping_add_signed(self.offset))
    }
}
