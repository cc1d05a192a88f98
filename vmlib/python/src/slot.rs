//! A handle of the library that one call uses at a time.

use crate::failures::Failure;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The place of a handle in an object of Python.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
enum State<T> {
    Free(T),
    /// A call in some thread is using the handle.
    InUse,
    /// The handle was given away.
    Closed,
}

impl<T> Slot<T> {
    pub(crate) fn new(handle: T) -> Self {
        Slot {
            state: Mutex::new(State::Free(handle)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the handle was not given away.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.lock(), State::Closed)
    }

    /// Takes the handle for a call.
    pub(crate) fn borrow(&self) -> Result<T, Failure> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::InUse) {
            State::Free(handle) => Ok(handle),
            State::InUse => Err(Failure::handle(
                "another call is using this handle: make one call with it at a time",
            )),
            State::Closed => {
                *state = State::Closed;
                Err(Failure::handle(
                    "this handle is of no use any more: the request is complete, or the group was left",
                ))
            }
        }
    }

    /// Puts the handle back after a call; `None` closes the slot.
    pub(crate) fn put_back(&self, handle: Option<T>) {
        *self.lock() = handle.map_or(State::Closed, State::Free);
    }

    /// Looks at the handle.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> Result<R, Failure> {
        match &*self.lock() {
            State::Free(handle) => Ok(look(handle)),
            State::InUse => Err(Failure::handle(
                "another call is using this handle: make one call with it at a time",
            )),
            State::Closed => Err(Failure::handle(
                "this handle is of no use any more: the request is complete, or the group was left",
            )),
        }
    }
}
