//! Notify: the end of a task, hosts that come and go.
//!
//! A task is notified once of each event that it watches: of the end of a task after the last message
//! of that task. Events wait in the inbox beside the messages until [`Task::recv_event`] or
//! [`Task::next`] takes them.

use crate::{
    Task,
    clock::now,
    error::{RecvError, RequestError},
    primitive::{Attempt, none_or_wait},
};
use std::time::Duration;
use vm_endpoint::Notice;
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    task::{Done, Watch, Watched},
};

/// Something that this task watches has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A task has ended. All that it sent to this one before is in the inbox; if it did not leave
    /// in order, all that arrived.
    TaskEnded {
        /// The ended task.
        tid: Tid,
        /// Its exit status.
        status: ExitStatus,
    },
    /// A host was added to the machine.
    HostAdded {
        /// Number of the host.
        host: HostId,
        /// Name of the host.
        name: String,
    },
    /// A host was deleted, or was lost.
    HostDeleted {
        /// Number of the host.
        host: HostId,
        /// Name of the host.
        name: String,
    },
}

impl From<Notice> for Event {
    fn from(notice: Notice) -> Self {
        match notice {
            Notice::Ended { tid, status } => Event::TaskEnded { tid, status },
            Notice::Host(event) if event.added => Event::HostAdded {
                host: event.host,
                name: event.name,
            },
            Notice::Host(event) => Event::HostDeleted {
                host: event.host,
                name: event.name,
            },
        }
    }
}

impl Task {
    /// Asks to be told of the end of a task; at once, if it has ended already.
    ///
    /// # Errors
    /// [`RequestError`], see there.
    pub fn watch_task(&self, tid: Tid) -> Result<(), RequestError> {
        self.watch(Watched::Task(tid), true)
    }

    /// Asks no more to be told of the end of a task.
    ///
    /// # Errors
    /// [`RequestError`], see there.
    pub fn unwatch_task(&self, tid: Tid) -> Result<(), RequestError> {
        self.watch(Watched::Task(tid), false)
    }

    /// Asks to be told of hosts that are added, deleted or lost.
    ///
    /// # Errors
    /// [`RequestError`], see there.
    pub fn watch_hosts(&self) -> Result<(), RequestError> {
        self.watch(Watched::HostAdded, true)?;
        self.watch(Watched::HostDeleted, true)
    }

    /// Asks no more to be told of hosts.
    ///
    /// # Errors
    /// [`RequestError`], see there.
    pub fn unwatch_hosts(&self) -> Result<(), RequestError> {
        self.watch(Watched::HostAdded, false)?;
        self.watch(Watched::HostDeleted, false)
    }

    /// The next event; waits for it no longer than `time`, or for ever if that is `None`.
    ///
    /// # Errors
    /// [`RecvError`], see there.
    pub fn recv_event(&self, time: Option<Duration>) -> Result<Option<Event>, RecvError> {
        let until = time.map(|time| now() + time);
        let mut looked = false;
        self.shared
            .run(|core, now| match core.endpoint.take_notice() {
                Some(notice) => Ok(Attempt::Done(Some(notice.into()))),
                None => Ok(none_or_wait(until, now, &mut looked)),
            })
    }

    fn watch(&self, what: Watched, on: bool) -> Result<(), RequestError> {
        self.shared.request::<Done>(&Watch { what, on })?;
        Ok(())
    }
}
