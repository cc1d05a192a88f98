//! The memory of rings, and the eventfds that wake their tasks.
//!
//! The daemon makes the memory and hands it to the two tasks, and to nobody else. All of the memory is
//! allocated, so that no task is ended by a lack of it, and no task can change its size. The daemon
//! keeps no descriptor of the memory: it exists as long as one of the two tasks maps it.

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create},
    io::Errno,
};
use std::{
    collections::{HashMap, hash_map::Entry},
    os::fd::OwnedFd,
};
use vm_wire::{Tid, limits::RING_BYTES};

/// The descriptors that go to a task with a ring: the memory, the eventfd that wakes the task, and
/// the one that wakes its peer.
pub type RingDescriptors = [OwnedFd; 3];

/// The eventfds of the tasks that have rings.
#[derive(Debug, Default)]
pub struct Wakes {
    of_task: HashMap<Tid, OwnedFd>,
    /// A ring could not be made, and that was logged.
    warned: bool,
}

/// Memory without a name that cannot be run as a program. A hardened system (`vm.memfd_noexec`) grants
/// no other; old kernels have no such memory.
fn memory() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    memfd_create("vm-ring", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create("vm-ring", flags))
}

impl Wakes {
    /// Makes a ring. Returns the descriptors for each of its tasks; `None` if the system refuses it,
    /// which is logged once.
    pub fn make_ring(&mut self, ends: [Tid; 2]) -> Option<[RingDescriptors; 2]> {
        match self.descriptors(ends) {
            Ok(descriptors) => Some(descriptors),
            Err(error) => {
                if !std::mem::replace(&mut self.warned, true) {
                    log::warn!(
                        "tasks of this host exchange their messages through the daemon, which is \
                         slower: memory for them to share cannot be made ({error})"
                    );
                }
                None
            }
        }
    }

    fn descriptors(&mut self, [first, second]: [Tid; 2]) -> Result<[RingDescriptors; 2], Errno> {
        let memory = memory()?;
        fallocate(&memory, FallocateFlags::empty(), 0, RING_BYTES as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&memory, seals)?;
        let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
        let mut ring = |own, peer| {
            let wakes = [copy(self.of(own)?)?, copy(self.of(peer)?)?];
            let [own, peer] = wakes;
            Ok::<_, Errno>([copy(&memory)?, own, peer])
        };
        Ok([ring(first, second)?, ring(second, first)?])
    }

    fn of(&mut self, tid: Tid) -> Result<&OwnedFd, Errno> {
        Ok(match self.of_task.entry(tid) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                entry.insert(eventfd(0, flags)?)
            }
        })
    }

    /// The task has no ring any more.
    pub fn forget(&mut self, tid: Tid) {
        self.of_task.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;

    #[test]
    fn the_memory_of_a_ring_cannot_be_run_as_a_program() {
        let memory = memory().expect("memory");
        let mode = fstat(&memory).expect("its mode").st_mode;
        assert_eq!(mode & 0o111, 0, "{mode:o}");
    }
}
