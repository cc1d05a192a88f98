//! The process of a task, and the orders that its daemon gives it.

use super::store::CutKey;
use crate::sim::{network::Slot, node::Node, program::Program, queue::Moment, random::Random};
use std::collections::{BTreeSet, VecDeque};
use vm_machine::{ConnId, Time};
use vm_wire::{Frame, Tid};

/// Whether a process runs its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gait {
    /// The program runs.
    Runs,
    /// It stands and writes its image.
    Saves,
    /// It stands and waits for the word to go on.
    Stands,
}

/// An order of a daemon to a process, over its interrupt socket.
#[derive(Debug, Clone)]
pub enum Order {
    /// Begin to write your image into a connection to that slot with that ticket.
    Copy(Slot, u64),
    /// Stop, and write an image into the store, for that cut, or have a copy write it.
    Save((CutKey, bool)),
    /// Stop, and write the rest; or all of it into a connection to that slot with that ticket.
    Freeze(Option<(Slot, u64)>),
    /// Stop, and write an image of that name into the store, under that number: you are suspended.
    Suspend(String, u64),
    /// Give up what was begun.
    Cancel,
    /// Go on, in that generation.
    Go(u32),
}

impl Order {
    /// Whether it comes with a descriptor for an image.
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
    /// Its tid, as far as it or its daemon knows.
    pub tid: Tid,
    /// Whether the process exists.
    pub alive: bool,
    /// Its data socket, once connected.
    pub conn: Option<ConnId>,
    /// Its program, once welcomed.
    pub program: Option<Program>,
    /// The daemon's queue for it is full: frames of data are dropped.
    pub full: bool,
    /// Pairs of which frames were dropped.
    pub dropped: BTreeSet<(Tid, Tid)>,
    pub token: Option<u64>,
    /// Frames that wait in its data socket, oldest first.
    pub socket: VecDeque<Frame>,
    /// No frame arrives in its socket before this, and none at its daemon before that.
    pub arrival_in: Moment,
    pub arrival_out: Moment,
    /// When its program goes on, unless a frame comes before.
    pub wake_at: Option<Moment>,
    /// Whether the process runs its program.
    pub gait: Gait,
    /// It sends its memory, while it runs, to that slot with that ticket.
    pub copying: Option<(Slot, u64)>,
    /// Orders that it has not read.
    pub orders: Vec<Order>,
    /// How many orders for an image were sent to it, and how many it has read.
    pub images: (u64, u64),
    /// No order arrives before this, and no report before that.
    pub arrival_order: Moment,
    pub arrival_report: Moment,
    /// The last freeze that it was in, or whose image it is.
    pub freeze: Option<usize>,
    /// Where its image came from, until it goes on.
    pub came_from: Option<Slot>,
    /// The library's clock minus the host's clock. Microseconds.
    pub offset: i64,
    /// A signal that ends it when it goes on.
    pub pending_signal: Option<i32>,
    /// Its daemon has ended it and hears nothing of it any more.
    pub discarded: bool,
    pub random: Random,
}

impl Process {
    /// The reading of the library's clock in this process.
    pub fn time(&self, node: &Node, now: Moment) -> Time {
        Time(node.time(now).0.wrapping_add_signed(self.offset))
    }
}
