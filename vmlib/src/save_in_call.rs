//! The save of a task whose program has callbacks around saves: for what an image cannot hold, and the
//! program can make again, such as a socket of its own.
//!
//! A callback is the program's own code: it allocates, locks and makes any system call, so it cannot be
//! called in a signal handler at an arbitrary point. Once a program has registered some
//! ([`Task::around_saves`]), its task is stopped in its calls of the library alone, and the daemon knows
//! that (`Report::InCalls`). The orders to stop wait in the interrupt socket, and only that they are there is
//! noted, as for a portable task ([`crate::portable`]); the next call of the library, or the one that waits,
//! carries them out, outside of the core's lock and of every section:
//!
//! ```text
//! Hold    ->  Held: the task stands in this call, until the next order
//! Freeze  ->  Held; before_save of each; the image, with all threads; after_save, or after_resume
//! ```
//!
//! Memory that is sent ahead while the task runs (`Copy`) needs no callback, and does not wait. While a thread
//! carries out an order here, all others leave theirs to it.
//!
//! No `unsafe` here.

use crate::{
    Callbacks, Task, callbacks, freeze,
    image::Image,
    interrupt,
    interrupt_socket::{borrowed, interrupt_socket, last_order, next_order},
    orders::{Called, are_awaited, declare_callbacks, forget_order, is_portable, order_in},
    portable_state::Own,
    primitive::Shared,
};
use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};
use vm_wire::interrupt::{ORDER_MAX, Order, Report};

impl Task {
    /// Has these called around each save of this task, in the thread that makes a call of the library then:
    /// `before_save` after those that were registered before, `after_save` and `after_resume` before them.
    /// If one refuses the save, those before it are told `after_save`.
    ///
    /// From then on the task is saved within its calls of the library alone, also within one that waits, and
    /// has 20 seconds to come to one; else there is no checkpoint, or no move, and it runs on. So a task
    /// that computes for long calls [`Task::try_recv`] every second or more often. Other threads may be
    /// anywhere, and are in its image. What locks the program holds around its calls are held while these
    /// are called.
    ///
    /// `after_save` and `after_resume` may send and receive; orders that come meanwhile wait for the next
    /// call outside of them. A safe point of a portable task within them fails with
    /// [`TaskError::InCallback`](crate::error::TaskError::InCallback).
    ///
    /// A portable task is saved at its safe points, with or without these. To hear of a resume, they have to be
    /// there before [`Task::portable`] is called.
    pub fn around_saves(&self, callbacks: Box<dyn Callbacks>) {
        lock(&self.shared.own).callbacks.push(callbacks);
        if !is_portable() && !declare_callbacks() {
            declare();
        }
    }
}

/// The daemon is to know that this task is stopped in calls alone.
fn declare() {
    freeze::report_over(interrupt_socket(), 0, Report::InCalls);
}

/// The callbacks, while they are called; then they are back, before those that were registered meanwhile.
struct Taken<'a> {
    own: &'a Mutex<Own>,
    all: Vec<Box<dyn Callbacks>>,
}

impl<'a> Taken<'a> {
    fn from(own: &'a Mutex<Own>) -> Self {
        let all = mem::take(&mut lock(own).callbacks);
        Taken { own, all }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut own = lock(self.own);
        self.all.append(&mut own.callbacks);
        own.callbacks = mem::take(&mut self.all);
    }
}

fn lock(own: &Mutex<Own>) -> MutexGuard<'_, Own> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An order to save that nobody would answer if a callback panicked.
struct Unanswered<'a>(&'a [u8]);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            freeze::refuse(&Image, self.0, "a callback of its program has panicked");
        }
    }
}

impl Shared {
    /// Carries out the orders that wait for a call of the library, if some do. Not within a section.
    pub(crate) fn save_in_call(&self) {
        while are_awaited() {
            let Some(called) = Called::begin() else {
                return;
            };
            // A thread that has begun before takes its orders; it takes no more.
            interrupt::await_carried_out();
            self.carry_out();
            drop(called);
            // What came meanwhile was left to this thread.
            interrupt::heed(borrowed(interrupt_socket()));
        }
    }

    fn carry_out(&self) {
        forget_order();
        let mut packet = [0; ORDER_MAX];
        let Some(mut last) = last_order(&mut packet) else {
            return;
        };
        if order_in(&packet[..last.0]) == Some(Order::Hold) {
            interrupt::carry_out(&packet[..last.0], None);
            freeze::report(Report::Held);
            last = next_order(&mut packet);
        }
        let (len, image) = last;
        let packet = &packet[..len];
        if !matches!(order_in(packet), Some(Order::Freeze { .. })) {
            return interrupt::carry_out(packet, image);
        }
        // From here on it takes as long as the callbacks and the image do.
        freeze::report_held(packet);
        let mut taken = Taken::from(&self.own);
        let unanswered = Unanswered(packet);
        let may_save = callbacks::before(&mut taken.all);
        mem::forget(unanswered);
        match may_save {
            Ok(()) => {
                let renewals = freeze::renewals();
                interrupt::carry_out(packet, image);
                let elsewhere = freeze::renewals() != renewals && freeze::is_moved();
                if elsewhere {
                    declare();
                }
                callbacks::after(&mut taken.all, elsewhere);
            }
            Err(why) => freeze::refuse(&Image, packet, &why),
        }
    }
}
