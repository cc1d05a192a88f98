//! Contexts: conversations that do not meet.
//!
//! Each message belongs to a context, and a receive selects messages of one context alone. A library that
//! has a context of its own can send with any tag, and never receives what its user sends. A handle of a
//! task ([`Task`]) is a handle in one context.

use crate::{Task, error::RequestError, spawn::Spawn};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};
use vm_wire::{
    limits,
    task::{ContextAsk, ContextGiven, ENV_CONTEXT},
};

/// A context. It can be sent to other tasks, which then use it too ([`Task::in_context`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContextId(u32);

impl ContextId {
    /// The context in which a program begins.
    pub const PROGRAM: ContextId = ContextId(0);

    /// The context with that number; `None` for a number that no context has.
    pub const fn from_number(number: u32) -> Option<ContextId> {
        match number {
            0..=limits::CONTEXTS_MAX => Some(ContextId(number)),
            _ => None,
        }
    }

    /// Its number: 0 for [`ContextId::PROGRAM`].
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Task {
    /// A handle of this task in a new context. No other call of this or another task gets the same one;
    /// tasks that are to exchange messages in it are sent its [`Task::context_id`].
    ///
    /// ```no_run
    /// # fn example(vm: &vmlib::Task, worker: vmlib::Tid) -> Result<(), Box<dyn std::error::Error>> {
    /// let library = vm.context()?;
    /// vm.send(worker, 1, &library.context_id())?;
    /// // At the worker: let library = vm.in_context(vm.recv(parent, 1)?.value()?);
    /// library.send(worker, 1, "seen by the library of the worker alone")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Requests, groups and collectives are the same in every context, and events of watched tasks come to
    /// whichever handle asks first.
    ///
    /// # Errors
    /// [`RequestError`], see there: for example, the machine has given 2,147,483,647 contexts.
    pub fn context(&self) -> Result<Task, RequestError> {
        let ContextGiven { context } = self.shared.request(&ContextAsk {})?;
        Ok(self.in_context(ContextId(context)))
    }

    /// A handle of this task in that context.
    #[must_use]
    pub fn in_context(&self, context: ContextId) -> Task {
        Task::new(Arc::clone(&self.shared), context)
    }

    /// The context of this handle.
    pub fn context_id(&self) -> ContextId {
        self.context
    }
}

impl Spawn {
    /// The tasks begin in that context: the handle that [`crate::init()`] returns there is in it. Without
    /// this they begin in [`ContextId::PROGRAM`].
    #[must_use]
    pub fn in_context(self, context: ContextId) -> Self {
        self.env(ENV_CONTEXT, context.to_string())
    }
}
