//! Where the daemon's orders to stop are carried out, and whether some wait.
//!
//! An order stays in the interrupt socket until the task is where the order can be carried out: anywhere
//! ([`crate::image`]), in a call of the library if the program has callbacks
//! ([`crate::save_in_call`]), or at a safe point of a portable task ([`crate::portable`]).
//!
//! **Read in signal handlers**: these are atomic flags, and nothing here allocates or locks.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use vm_wire::interrupt::Order;

/// The program has declared the task portable.
static PORTABLE: AtomicBool = AtomicBool::new(false);
/// The program has callbacks around saves.
static HAS_CALLBACKS: AtomicBool = AtomicBool::new(false);
/// A thread carries out an order in a call of the library, and calls the callbacks.
static CALLED: AtomicBool = AtomicBool::new(false);
/// Orders wait in the interrupt socket for a safe point, or for a call of a task with callbacks.
static ORDERED: AtomicBool = AtomicBool::new(false);
/// The task is leaving the machine.
static LEAVES: AtomicBool = AtomicBool::new(false);

/// Whether this task is portable.
pub(crate) fn is_portable() -> bool {
    PORTABLE.load(SeqCst)
}

/// Makes this task portable. Returns whether it was before.
pub(crate) fn declare_portable() -> bool {
    PORTABLE.swap(true, SeqCst)
}

/// Notes that the program has callbacks. Returns whether it had some before.
pub(crate) fn declare_callbacks() -> bool {
    HAS_CALLBACKS.swap(true, SeqCst)
}

/// Whether orders wait for a safe point, or for a call of a task with callbacks.
pub(crate) fn is_ordered() -> bool {
    ORDERED.load(SeqCst)
}

/// Notes that orders wait.
pub(crate) fn note_order() {
    ORDERED.store(true, SeqCst);
}

/// The orders that wait are about to be read.
pub(crate) fn forget_order() {
    ORDERED.store(false, SeqCst);
}

/// From now on the task is not frozen any more.
pub(crate) fn leaves() {
    LEAVES.store(true, SeqCst);
}

/// Whether the task is leaving the machine.
pub(crate) fn is_leaving() -> bool {
    LEAVES.load(SeqCst)
}

/// Whether this task is stopped in calls of the library alone.
pub(crate) fn stop_in_calls() -> bool {
    HAS_CALLBACKS.load(SeqCst) && !is_portable() && !is_leaving()
}

/// Whether a thread calls the callbacks, or is about to: all orders are left to that thread.
pub(crate) fn are_called() -> bool {
    CALLED.load(SeqCst)
}

/// Whether orders wait for a call of the library, and no thread carries them out.
pub(crate) fn are_awaited() -> bool {
    is_ordered() && stop_in_calls() && !are_called()
}

/// The one thread that carries out orders in a call of the library, while this exists.
pub(crate) struct Called;

impl Called {
    /// Makes this thread that one, unless there is one.
    pub(crate) fn begin() -> Option<Self> {
        (!CALLED.swap(true, SeqCst)).then_some(Called)
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        CALLED.store(false, SeqCst);
    }
}

/// The order in a packet of the interrupt socket, if it is one that this library knows.
pub(crate) fn order_in(packet: &[u8]) -> Option<Order> {
    Order::from_bytes(packet).and_then(|(_, order)| order)
}
