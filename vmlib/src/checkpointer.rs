//! The interface that saves and restores a task: as an image, or by the value of a portable program.
//!
//! The six calls are those that the XtreemGCP report (Mehnert-Spahn and others, 2009) has grid
//! checkpointing make of every kernel checkpointer, so that one coordination serves them all: prepare,
//! stop, save, continue (here `go_on`), rebuild, resume. [`crate::freeze`] makes them as the daemon's
//! orders come:
//!
//! | order, or moment | image ([`crate::image`]) | portable ([`crate::portable`]) |
//! |---|---|---|
//! | `Copy` | prepare: memory is sent in rounds while the task runs | prepare: nothing can be sent yet |
//! | any | stop: at once, wherever it is; with callbacks, in a call of the library ([`crate::save_in_call`]) | stop: at a safe point; orders wait in the socket until then |
//! | `Freeze` | save: all threads stand, a copy of the process writes | save: the program's value and the library's state |
//! | `Go`, or `Cancel` | go on: what was begun is given up | go on: what was saved is written, if it is wanted later |
//! | the new process | rebuild: the restorer has read memory into place | rebuild: `vmlib::init` has read the state |
//! | its first `Go` | resume: all threads run | resume: `init` returns |
//!
//! Everything else is common: coordinator, channels, store, and how a task goes on.

use rustix::fd::OwnedFd;
use vm_wire::interrupt::Freeze;

/// A way to save tasks. Called in signal handlers and while threads stand: what a call may do says
/// each implementation.
pub(crate) trait Checkpointer: Sync {
    /// Begins to save while the task runs, into `image`. Tells the daemon when that is over, or that
    /// nothing was begun.
    fn prepare(&self, image: OwnedFd, compress: bool);

    /// Whether the task can be stopped where it is. If not, orders are left until it can.
    fn stop(&self) -> bool;

    /// Saves the task into `image`, which may have been begun, tells the daemon, and waits for its
    /// word to go on ([`crate::freeze::stand`]); or tells it why it cannot, and goes on.
    fn save(&self, image: OwnedFd, compress: bool, way: Freeze);

    /// The task goes on in this process. What was begun and not saved is given up.
    fn go_on(&self);

    /// This process was made of what was saved. Tells the daemon, and waits for its word.
    fn rebuild(&self);

    /// The task goes on in this process, which was made of what was saved.
    fn resume(&self);

    /// Whether a thread of this process, which was made of what was saved, may not use the processors
    /// that its program has put it on.
    fn is_elsewhere(&self) -> bool {
        false
    }
}
