//! Repetition of messages by the daemon, while the program makes no call.
//!
//! A direct connection that is closed loses what is under way, and its sender may compute for an hour
//! before its next call. So the daemon interrupts the sender ([`Order::Resend`]), and the handler writes
//! what is retained to the data socket. A process that was made of an image writes all that it retains.
//!
//! The order does not wait behind one to stop, which a task with callbacks leaves for its next call: the
//! handler looks past it. A portable task leaves all orders for its safe points. It has no direct
//! connection: it gives up those that it had in the call in which it becomes portable, and takes no new
//! one.
//!
//! If a thread is within the library, that thread does it, when it lets go of the library's state: it
//! looks at [`PENDING`] behind that, and the handler has set it before it has tried to lock.
//!
//! **Runs in signal handlers**: nothing here allocates or waits for a lock. No `unsafe` here.

use crate::{orders::order_in, ring::area};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU8, Ordering::SeqCst},
};
use vm_wire::interrupt::Order;

/// The messages that are to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Again {
    /// Messages that went by direct connections that are closed.
    Lost = 1,
    /// All retained messages: this process was made of an image.
    All = 2,
}

/// The task, which retains messages.
pub(crate) trait Retains: Send + Sync {
    /// Writes that to the data socket; `false` if a thread is within the library.
    fn resend(&self, again: Again) -> bool;
}

/// The task that this process is.
static TASK: OnceLock<Arc<dyn Retains>> = OnceLock::new();
/// An [`Again`] that was not carried out yet, or 0.
static PENDING: AtomicU8 = AtomicU8::new(0);

/// From now on orders concern that task.
pub(crate) fn enrolled(task: Arc<dyn Retains>) {
    // A process is one task.
    let _ = TASK.set(task);
}

/// Carries out the order in a packet of the interrupt socket, if it is one to send again.
pub(crate) fn heed_order(packet: &[u8]) -> bool {
    let is_it = note_order(packet);
    if is_it {
        resend(Again::Lost);
    }
    is_it
}

/// Notes the order in a packet of the interrupt socket, if it is one to send again. A task that stands
/// carries it out when it goes on.
pub(crate) fn note_order(packet: &[u8]) -> bool {
    let Some(Order::Resend { id }) = order_in(packet) else {
        return false;
    };
    area::note_lost(id);
    true
}

/// Sends again now, or when the thread that is within the library lets go of its state.
pub(crate) fn resend(again: Again) {
    PENDING.fetch_max(again as u8, SeqCst);
    heed();
}

/// Sends again what was not yet.
pub(crate) fn heed() {
    while let Some(again) = pending()
        && let Some(task) = TASK.get()
    {
        if !task.resend(again) {
            return;
        }
    }
}

/// The next repetition is carried out by the caller, who has locked the library's state.
pub(crate) fn begin() {
    PENDING.store(0, SeqCst);
}

fn pending() -> Option<Again> {
    match PENDING.load(SeqCst) {
        0 => None,
        1 => Some(Again::Lost),
        _ => Some(Again::All),
    }
}
