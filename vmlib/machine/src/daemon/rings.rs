//! The rings of this host: memory that two tasks share to exchange messages past the daemon.
//!
//! A task asks for a ring after a few messages to a peer. The daemon opens the ring if both tasks run
//! on this host, belong to one application, and are not about to freeze. The shell makes the memory
//! and sends its descriptor to both tasks. When one of the two tasks is frozen to be moved, or has
//! ended, the daemon forgets the ring and tells both tasks. The content of a ring is never needed: a
//! sender retains each chunk until the receiver has acknowledged it.

use super::{context::Context, local_task::LocalTask};
use crate::RingOutput;
use std::collections::BTreeMap;
use vm_wire::{
    Message, Tid, limits,
    task::{RingClosed, RingOpen},
};

/// The open rings of this host.
#[derive(Debug, Default)]
pub(super) struct Rings {
    /// For each task the rings that it has: the number of each ring, by peer.
    of_task: BTreeMap<Tid, BTreeMap<Tid, u64>>,
    /// Number of open rings.
    count: usize,
}

impl Rings {
    /// Opens a ring between two tasks of this host, whose process ids are `pids`, unless they have one
    /// or the limit of the host is reached.
    pub fn open(&mut self, cx: &mut Context, ends: [Tid; 2], pids: [u32; 2]) {
        let [first, second] = ends;
        let exists = self
            .of_task
            .get(&first)
            .is_some_and(|rings| rings.contains_key(&second));
        if exists || self.count >= limits::RINGS_PER_HOST {
            return;
        }
        // A late frame about a ring that these tasks had on another host does not match this one,
        // because each daemon counts from a random number.
        let id = cx.config.nonce.wrapping_add(cx.next_request);
        cx.next_request += 1;
        self.count += 1;
        let ends = [(first, second, 0), (second, first, 1)].map(|(tid, peer, end)| {
            self.of_task.entry(tid).or_default().insert(peer, id);
            let pid = pids[1 - usize::from(end)];
            let open = RingOpen { peer, id, end, pid };
            (tid, open.frame().between(cx.tid, tid))
        });
        let ends = Box::new(ends);
        cx.emit(RingOutput::Open { id, ends });
    }

    /// Closes all rings of a task that is frozen to be moved, or has ended.
    pub fn close_all_of(&mut self, cx: &mut Context, tid: Tid) {
        for (peer, id) in self.of_task.remove(&tid).unwrap_or_default() {
            self.count -= 1;
            self.forget(peer, tid);
            cx.tell_route_closed(peer, tid, id);
            cx.tell_route_closed(tid, peer, id);
        }
        cx.emit(RingOutput::Forget(tid));
    }

    /// Closes a ring that one of its tasks cannot use or has given up, or that the shell could not make.
    pub fn close(&mut self, cx: &mut Context, tid: Tid, closed: &RingClosed) {
        let peer = closed.peer;
        let rings = self.of_task.get(&tid);
        if rings.and_then(|rings| rings.get(&peer)) != Some(&closed.id) {
            return;
        }
        self.count -= 1;
        self.forget(tid, peer);
        self.forget(peer, tid);
        cx.tell_route_closed(peer, tid, closed.id);
    }

    fn forget(&mut self, tid: Tid, peer: Tid) {
        if let Some(rings) = self.of_task.get_mut(&tid) {
            rings.remove(&peer);
            if rings.is_empty() {
                self.of_task.remove(&tid);
            }
        }
    }

    /// Number of rings of a task.
    pub fn count_of(&self, tid: Tid) -> usize {
        self.of_task.get(&tid).map_or(0, BTreeMap::len)
    }

    /// Number of open rings.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl LocalTask {
    /// Whether the task can have rings and direct connections now: it runs, and it is not about to freeze. A portable task
    /// has none, because it reads messages until it comes to a safe point, when its peers are frozen
    /// already.
    pub(super) fn takes_rings(&self) -> bool {
        self.is_settled() && !self.frozen && !self.is_suspended() && !self.stops.is_portable()
    }
}
