//! The handle of this process in the machine.

use crate::{context::ContextId, error::RequestError, primitive::Shared};
use std::{cell::Cell, marker::PhantomData, sync::Arc};
use vm_wire::{
    HostId, MachineId, Tid,
    task::{ContextAsk, ContextGiven, FailKind, Failed},
};

/// This process as a task of the machine; from [`crate::init()`].
///
/// A handle belongs to one thread. Other threads get their own by [`Task::clone_handle`]: they are
/// the same task, and their calls take turns, except that one may wait while another sends or
/// receives.
///
/// To drop a handle does nothing: the task leaves the machine when its process ends (see
/// [`Task::exit`]), with the status of the process, which is known only then.
#[derive(Debug)]
pub struct Task {
    pub(crate) shared: Arc<Shared>,
    /// The context of the messages that this handle sends and receives.
    pub(crate) context: ContextId,
    /// Not `Sync`.
    one_thread: PhantomData<Cell<()>>,
}

impl Task {
    pub(crate) fn new(shared: Arc<Shared>, context: ContextId) -> Self {
        Task {
            shared,
            context,
            one_thread: PhantomData,
        }
    }

    /// A handle of the same task, in the same context, for another thread.
    #[must_use]
    pub fn clone_handle(&self) -> Task {
        self.shared.share();
        Task::new(Arc::clone(&self.shared), self.context)
    }

    /// The identity of this task.
    pub fn tid(&self) -> Tid {
        self.shared.welcome.tid
    }

    /// The task that spawned this one; `None` for a master.
    pub fn parent(&self) -> Option<Tid> {
        let parent = self.shared.welcome.parent;
        (!parent.is_none()).then_some(parent)
    }

    /// Its application: the tid of its master, which may be itself.
    pub fn app(&self) -> Tid {
        self.shared.welcome.app
    }

    /// Which of the tasks that were spawned together it is, from 0.
    pub fn index(&self) -> u32 {
        self.shared.welcome.index
    }

    /// The host where it runs. Another one after it was moved.
    pub fn host(&self) -> HostId {
        match crate::freeze::host() {
            HostId::NONE => self.shared.welcome.host,
            host => host,
        }
    }

    /// The machine. Another one after its application was brought back there.
    pub fn machine(&self) -> MachineId {
        match crate::freeze::host() {
            HostId::NONE => self.shared.welcome.machine,
            _ => crate::freeze::machine(),
        }
    }

    /// Leaves the machine, and the process goes on as one that is no task. What was sent before
    /// will be received; what others still send is dropped. `status` is told to those who watch.
    ///
    /// Without this call, the task leaves when its process ends in order: when `main` returns or
    /// `std::process::exit` is called; with the exit status of the process, so a panic in `main`
    /// tells 101.
    ///
    /// # Errors
    /// [`crate::ExitError`], see there. Later calls, in all threads, fail.
    pub fn exit(&self, status: i32) -> Result<(), crate::ExitError> {
        self.shared.leave(status)
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
        let unknown = || {
            let text = format!("the daemon gave context {context}, which is none");
            RequestError::Refused(Failed::new(FailKind::BadRequest, text))
        };
        let context = ContextId::from_number(context).ok_or_else(unknown)?;
        Ok(self.in_context(context))
    }

    /// A handle of this task in that context.
    #[must_use]
    pub fn in_context(&self, context: ContextId) -> Task {
        self.shared.share();
        Task::new(Arc::clone(&self.shared), context)
    }

    /// The context of this handle.
    pub fn context_id(&self) -> ContextId {
        self.context
    }
}
