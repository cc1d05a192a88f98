//! Handlers: functions of the program that the library calls with the messages that they select.
//!
//! The messages wait in the inbox ([`vm_endpoint::handlers`]). Each call of the library calls the handlers
//! before its own attempts, also between two of them while it waits: outside of the core's lock, one message
//! at a time, in the order of arrival. A handler may call the library itself; no handler is called within
//! it, and its own receives select what handlers select, too.
//!
//! Handlers wait while a message is half sent or a request is under way: the call of a handler might wait for
//! that call, which would wait for the handler.

use crate::{
    Task,
    clock::recent,
    error::{StartError, TaskError},
    functions::{Entered, Function, is_within},
    message::{Message, Source, Tag},
    primitive::{Attempt, Core, Locked, Phase, Shared},
    ring::Until,
};
use std::sync::{Arc, Mutex, PoisonError};
use vm_endpoint::{HandlerId, Received};
use vm_wire::limits;

/// A handler that was added, to be removed by [`Task::remove_handler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handler(HandlerId);

impl Task {
    /// Has `function` called with each message from `from` with `tag` in this handle's context, within any
    /// call of this task's library; with those that are unread now first. No receive outside of the handler
    /// gets such a message. Of several handlers that select a message the first one gets it. The function
    /// gets a handle in the same context, and may send and receive: a receive within it selects what
    /// handlers select, too.
    ///
    /// Handlers are called in the thread that makes the call, one at a time. They are not called while the
    /// program computes, sends a message that its receiver does not take yet, or waits for the reply to a
    /// request. A call that waits goes on when the handler returns. A panic in a handler leaves the call
    /// that was interrupted.
    ///
    /// A task that is moved or brought back keeps its handlers. A portable task adds them anew: the messages
    /// are saved, functions are not. What a handler does within a call that has the task's value, such as
    /// [`Task::recv_at`], is not in that value: there, a handler must not change what the value holds.
    ///
    /// ```no_run
    /// # fn example(vm: &vmlib::Task) -> Result<(), Box<dyn std::error::Error>> {
    /// const HOW_FAR: i32 = 7;
    /// let mut asked = 0;
    /// vm.add_handler(vmlib::ANY, HOW_FAR, move |vm, question| {
    ///     asked += 1;
    ///     let _ = vm.send(question.from(), HOW_FAR, &asked);
    /// })?;
    /// let work = vm.recv(vmlib::ANY, 1)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StartError::TooManyHandlers`], and when no calls are possible any more.
    pub fn add_handler(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        mut function: impl FnMut(&Task, Message) + Send + 'static,
    ) -> Result<Handler, StartError> {
        let filter = self.filter(from, tag);
        let (shared, context) = (Arc::downgrade(&self.shared), self.context);
        let function = move |message| {
            if let Some(shared) = shared.upgrade() {
                function(&Task::new(shared, context), message);
            }
        };
        let mut function: Option<Function> = Some(Arc::new(Mutex::new(function)));
        let functions = &self.shared.functions;
        self.shared.run(|core, _| {
            if core.endpoint.handlers() >= limits::HANDLERS_MAX {
                return Err(StartError::TooManyHandlers);
            }
            let id = core.endpoint.add_handler(filter);
            functions.with(|all| all.extend(function.take().map(|function| (id, function))));
            Ok(Attempt::Done(Handler(id)))
        })
    }

    /// Removes a handler. What it was not called with stays in the inbox, and receives select it. A handler
    /// may remove itself.
    ///
    /// # Errors
    /// [`TaskError`], when no calls are possible any more.
    pub fn remove_handler(&self, handler: Handler) -> Result<(), TaskError> {
        let functions = &self.shared.functions;
        self.shared.run(|core, _| {
            core.endpoint.remove_handler(handler.0);
            functions.with(|all| all.remove(&handler.0));
            Ok(Attempt::Done(()))
        })
    }
}

/// A thread calls a handler while this exists: no other thread calls one.
struct Calling<'a>(&'a Shared);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.lock().calls_handler = false;
    }
}

impl Core {
    /// Whether a handler may be called in this thread now.
    fn may_call_handler(&self) -> bool {
        let is_started = |to| self.started.is_half_sent(to);
        self.endpoint.handlers() > 0
            && !self.calls_handler
            && !is_within()
            && matches!(self.phase, Phase::Running)
            && !self.requests.is_open()
            && self.busy.iter().copied().all(is_started)
    }

    /// The next message for a handler, if one may be called.
    fn take_handled(&mut self) -> Option<(HandlerId, Received)> {
        if !self.may_call_handler() {
            return None;
        }
        self.read_rings(Until::Empty);
        let (id, received) = self.endpoint.take_handled(recent(), &mut self.out)?;
        self.awaited.received(received.from);
        self.calls_handler = true;
        Some((id, received))
    }
}

impl Shared {
    /// Calls the handlers of the messages that have come, with the core unlocked meanwhile.
    pub(crate) fn call_handlers<'a>(&'a self, mut core: Locked<'a>) -> Locked<'a> {
        while let Some((id, received)) = core.take_handled() {
            drop(core);
            let calling = Calling(self);
            if let Some(function) = self.functions.with(|all| all.get(&id).map(Arc::clone)) {
                let _entered = Entered::new();
                let mut function = function.lock().unwrap_or_else(PoisonError::into_inner);
                function(received.into());
            }
            drop(calling);
            core = self.lock();
            // Messages that came meanwhile may be for threads that sleep.
            self.wake(&core);
        }
        core
    }
}
