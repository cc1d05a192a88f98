//! What a program does around a save of its task: for what the machine cannot bring back, and the program
//! can, such as a socket of its own.
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
    Task,
    error::TaskError,
    freeze,
    image::Image,
    interrupt::{self, interrupt_socket, last_order, next_order},
    portable::{self, Own, order_in},
    primitive::Shared,
};
use std::{
    cell::Cell,
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};
use vm_wire::interrupt::{ORDER_MAX, Order, Report};

/// The program has callbacks.
static DECLARED: AtomicBool = AtomicBool::new(false);
/// A thread carries out an order in a call, and calls them.
static CALLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static WITHIN: Cell<Within> = const { Cell::new(Within::Nothing) };
}

/// Which callbacks this thread is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Nothing,
    Before,
    After,
}

/// What a program does around each save of its task: for a checkpoint, a move, or `vm suspend`. A socket of
/// its own, say, is closed before, and opened again afterwards. See [`Task::around_saves`].
pub trait Callbacks: Send {
    /// The task is about to be saved: lets go of what cannot be. It may make any system call, but no call of
    /// this library, which fails with [`TaskError::InCallback`]. Other tasks of the application may stand
    /// until it returns.
    ///
    /// What a portable task wants to be saved has to be in its value already.
    ///
    /// # Errors
    /// Why there must be no save now: then there is no checkpoint, or no move, and whoever wanted it is told
    /// this text.
    fn before_save(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// The task goes on in the same process, whether it was saved or not.
    fn after_save(&mut self) {}

    /// The task goes on in a new process, perhaps on another host: it was moved, resumed, or brought back
    /// from a checkpoint. Of a portable task called before [`Task::portable`] returns there.
    fn after_resume(&mut self) {}
}

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
    /// [`TaskError::InCallback`].
    ///
    /// A portable task is saved at its safe points, with or without these. To hear of a resume, they have to be
    /// there before [`Task::portable`] is called.
    pub fn around_saves(&self, callbacks: Box<dyn Callbacks>) {
        lock(&self.shared.own).callbacks.push(callbacks);
        if !portable::is_declared() && !DECLARED.swap(true, SeqCst) {
            declare();
        }
    }
}

/// The daemon is to know that this task is stopped in calls alone.
fn declare() {
    freeze::report_over(interrupt_socket(), 0, Report::InCalls);
}

/// Whether this task is stopped in calls of the library alone. May be called in a signal handler.
pub(crate) fn stop_in_calls() -> bool {
    DECLARED.load(SeqCst) && !portable::is_declared() && !freeze::is_leaving()
}

/// Whether a thread calls them, or is about to: then all orders are left to it. May be called in a signal
/// handler.
pub(crate) fn are_called() -> bool {
    CALLED.load(SeqCst)
}

/// Whether orders wait for a call of the library, and no thread carries them out.
pub(crate) fn are_awaited() -> bool {
    portable::is_ordered() && stop_in_calls() && !are_called()
}

/// An error in `before_save`, which may make no call.
pub(crate) fn may_call() -> Result<(), TaskError> {
    match WITHIN.get() {
        Within::Before => Err(TaskError::InCallback),
        Within::Nothing | Within::After => Ok(()),
    }
}

/// An error in any of them: none may come to a safe point.
pub(crate) fn may_be_saved() -> Result<(), TaskError> {
    match WITHIN.get() {
        Within::Before | Within::After => Err(TaskError::InCallback),
        Within::Nothing => Ok(()),
    }
}

/// This thread is in callbacks while it exists.
struct Entered;

impl Entered {
    fn new(within: Within) -> Self {
        WITHIN.set(within);
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        WITHIN.set(Within::Nothing);
    }
}

/// Calls `before_save` of each. If one refuses, those before it hear that there was no save.
pub(crate) fn before(all: &mut [Box<dyn Callbacks>]) -> Result<(), String> {
    let entered = Entered::new(Within::Before);
    let refused = all
        .iter_mut()
        .enumerate()
        .find_map(|(index, each)| Some((index, each.before_save().err()?)));
    drop(entered);
    match refused {
        Some((index, why)) => {
            after(&mut all[..index], false);
            Err(why)
        }
        None => Ok(()),
    }
}

/// The task goes on; `elsewhere`: in a new process.
pub(crate) fn after(all: &mut [Box<dyn Callbacks>], elsewhere: bool) {
    let _entered = Entered::new(Within::After);
    for each in all.iter_mut().rev() {
        match elsewhere {
            true => each.after_resume(),
            false => each.after_save(),
        }
    }
}

/// This thread carries out orders in a call, and no other one does, while it exists.
struct Called;

impl Called {
    fn begin() -> Option<Self> {
        if CALLED.swap(true, SeqCst) {
            return None;
        }
        // A thread that has begun before takes its orders; it takes no more.
        interrupt::await_carried_out();
        Some(Called)
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        CALLED.store(false, SeqCst);
    }
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
            self.carry_out();
            drop(called);
            // What came meanwhile was left to this thread.
            interrupt::heed(interrupt::borrowed(interrupt_socket()));
        }
    }

    fn carry_out(&self) {
        portable::forget_order();
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
        let may_save = before(&mut taken.all);
        mem::forget(unanswered);
        match may_save {
            Ok(()) => {
                let renewals = freeze::renewals();
                interrupt::carry_out(packet, image);
                let elsewhere = freeze::renewals() != renewals && freeze::is_moved();
                if elsewhere {
                    declare();
                }
                after(&mut taken.all, elsewhere);
            }
            Err(why) => freeze::refuse(&Image, packet, &why),
        }
    }
}
