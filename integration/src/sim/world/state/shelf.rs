//! Images of single tasks that are suspended.

use crate::sim::{network::Slot, program::Program, random::Random};
use std::collections::BTreeMap;
use vm_machine::Time;
use vm_wire::{MachineId, Tid};

/// The images of tasks that are suspended.
pub struct Shelf {
    pub random: Random,
    pub used: bool,
    /// Images that tasks are to write here: the name and the number of each image.
    pub opened: BTreeMap<(Slot, Tid), (String, u64)>,
    pub images: BTreeMap<String, Shelved>,
}

/// The image of a suspended task.
pub struct Shelved {
    pub slot: Slot,
    pub tid: Tid,
    pub freeze: usize,
    pub program: Program,
    pub at: Time,
}

/// An image that is being written.
pub struct Shelving {
    pub index: usize,
    pub name: String,
    pub number: u64,
    pub saved: bool,
    pub image: Shelved,
}

impl Shelf {
    pub fn new(machine: MachineId) -> Self {
        let bits = u64::from(machine.get());
        Shelf {
            random: Random::new(bits ^ 0x5355_5350),
            used: bits % 4 == 1,
            opened: BTreeMap::new(),
            images: BTreeMap::new(),
        }
    }

    /// Whether tasks are suspended in this world.
    pub fn is_used(&self) -> bool {
        self.used
    }
}
