//! The functions of a task's handlers, and the threads that are in one. See [`crate::handlers`].

use crate::message::Message;
use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};
use vm_endpoint::HandlerId;

/// The function of one handler; locked while it is called.
pub(crate) type Function = Arc<Mutex<dyn FnMut(Message) + Send>>;

/// The functions of a task's handlers.
#[derive(Default)]
pub(crate) struct Functions(Mutex<BTreeMap<HandlerId, Function>>);

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Functions")
    }
}

impl Functions {
    /// Looks at the functions, or changes them. Not while one is called.
    pub(crate) fn with<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<HandlerId, Function>) -> T,
    ) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

thread_local! {
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a handler.
pub(crate) fn is_within() -> bool {
    WITHIN.get()
}

/// This thread is in a handler while it exists.
pub(crate) struct Entered;

impl Entered {
    pub(crate) fn new() -> Self {
        WITHIN.set(true);
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        WITHIN.set(false);
    }
}
