//! The life of a task on this host: the start of its process, the process, and the task's end.
//!
//! ```text
//! Launch   NotBegun -> Begun -> Done          Begun -> NotBegun: the start failed
//! Process  Unconnected -> Connected           it has enrolled, once
//!          Connected -> Unconnected           its data socket was closed
//!          either -> Ended                    the process has ended
//!          either -> Suspended                the log has suspended the task
//!          Suspended -> Ended -> Connected    the log has resumed the task here
//! End      None -> Proposed -> Applied        an end that another daemon proposed: None -> Applied
//! ```
//!
//! A task that arrives or is restored begins as `Connected`; as `Suspended` if it was handed on; as
//! `Ended` if its process ended before the log gave the task to this host. If the log voids a
//! proposed end, because the task has a new incarnation, the end stays `Proposed` and is proposed
//! again.

use crate::Time;
use vm_wire::{agreed::ExitStatus, checkpoint::Part};

/// The start of a task's process by this daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launch {
    /// The daemon has not ordered the start, or the start failed. Or the daemon does not start this
    /// process: a user started it, or the task has arrived or was restored.
    NotBegun,
    /// Ordered from the shell at this time. The task may enrol before the shell reports the start.
    Begun(Time),
    /// The process has run since this time.
    Done(Time),
}

/// The process of a task on this host.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Process {
    /// It runs or is being started, and has no data socket: it has not enrolled yet, or its data
    /// socket was closed, so it is about to end.
    Unconnected,
    /// It runs and has a data socket.
    Connected,
    /// It has ended. A suspended task that resumes here passes through this state.
    Ended,
    /// There is none: the task is suspended, and its image is this one in the store.
    Suspended(Part),
}

impl Process {
    /// The process of a task that has arrived or was restored. `lost`: it has ended already.
    pub fn arrived(lost: bool) -> Self {
        match lost {
            true => Process::Ended,
            false => Process::Connected,
        }
    }

    /// Whether a process runs or is being started.
    pub fn exists(&self) -> bool {
        matches!(self, Process::Unconnected | Process::Connected)
    }

    /// Whether the process has a data socket.
    pub fn is_connected(&self) -> bool {
        *self == Process::Connected
    }

    /// Whether the task is notified of events: it has a data socket; or it is suspended, and gets
    /// the notifications when it is resumed.
    pub fn takes_notices(&self) -> bool {
        matches!(self, Process::Connected | Process::Suspended(_))
    }

    /// The image of a suspended task.
    pub fn image(&self) -> Option<&Part> {
        match self {
            Process::Suspended(image) => Some(image),
            _ => None,
        }
    }

    /// The data socket was closed.
    pub fn disconnect(&mut self) {
        if self.is_connected() {
            *self = Process::Unconnected;
        }
    }
}

/// The end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It lives.
    None,
    /// This daemon has proposed its end, with this status, to the log.
    Proposed(ExitStatus),
    /// The log has applied its end.
    Applied {
        /// Whether it left in order.
        left: bool,
        /// The status (`RolledBack` or `Suspended`) if the log has ended it together with its
        /// application. The application may be restarted while this process still ends.
        together: Option<ExitStatus>,
    },
}

impl End {
    /// The status that was proposed, while the log has not applied the end.
    pub fn proposed(self) -> Option<ExitStatus> {
        match self {
            End::Proposed(status) => Some(status),
            End::None | End::Applied { .. } => None,
        }
    }

    /// Whether the log has applied the end.
    pub fn is_applied(self) -> bool {
        matches!(self, End::Applied { .. })
    }

    /// Whether the task leaves in order, or has left: the acknowledgements of its messages go to
    /// the keeper.
    pub fn leaves(self) -> bool {
        match self {
            End::None => false,
            End::Proposed(status) => matches!(status, ExitStatus::Left(_)),
            End::Applied { left, .. } => left,
        }
    }

    /// The status if the log has ended the task together with its application.
    pub fn together(self) -> Option<ExitStatus> {
        match self {
            End::Applied { together, .. } => together,
            End::None | End::Proposed(_) => None,
        }
    }

    /// The log has applied the end of the task.
    pub fn apply(&mut self, status: ExitStatus) {
        let with_app = matches!(status, ExitStatus::Suspended | ExitStatus::RolledBack);
        *self = End::Applied {
            left: self.leaves(),
            together: with_app.then_some(status).or(self.together()),
        };
    }
}
