//! Moving tasks, and emptying hosts of them: what `vm move`, `vm check` and `vm drain` do, for
//! programs.

use crate::{RequestError, Task};
use vm_wire::{
    Tid,
    peer::{DrainReport, MoveReport, MoveWay},
    task::{CheckTask, Checked, DrainHost, Drained, MoveTask, Moved},
};

impl Task {
    /// Moves a task, which may be this one, to the host of that name or number (`h3`), or to the one
    /// that the machine chooses: the living host with most room. All other tasks go on meanwhile.
    /// Returns when the task runs there, and how that went.
    ///
    /// A task that moves itself returns from this call on the new host.
    ///
    /// # Errors
    /// [`RequestError::Refused`] when the task runs on where it was, with the reason:
    /// [`FailKind::Refused`](crate::FailKind) for what cannot be moved (see [`Task::can_move`]),
    /// `Limit` for a host without room, `HostLost` or `System` for a move that was begun and taken
    /// back; `NoSuchTask`, `NoSuchHost`.
    pub fn move_task(&self, tid: Tid, host: Option<&str>) -> Result<MoveReport, RequestError> {
        self.move_task_by(tid, host, MoveWay::default())
    }

    /// As [`Task::move_task`], and says how the task's memory travels.
    ///
    /// # Errors
    /// As for [`Task::move_task`].
    pub fn move_task_by(
        &self,
        tid: Tid,
        host: Option<&str>,
        way: MoveWay,
    ) -> Result<MoveReport, RequestError> {
        let to = host.map(str::to_owned);
        let Moved { report } = self.shared.request(&MoveTask { tid, to, way })?;
        Ok(report)
    }

    /// The reasons against moving a task; none if the task can be moved. They are the reasons that
    /// [`Task::move_task`] would give, as far as they are known without stopping the task: a program
    /// may hold what only an attempt finds.
    ///
    /// # Errors
    /// [`RequestError`], see there.
    pub fn can_move(&self, tid: Tid) -> Result<Vec<String>, RequestError> {
        let Checked { reasons } = self.shared.request(&CheckTask { tid })?;
        Ok(reasons)
    }

    /// Has all tasks of a host move to others, this one too if it is there; the host takes no more
    /// until `vm drain --undo`, or its end. Returns when each has left or is given up, and who went
    /// where and who stayed, and why. Asked again, it tries those that stayed once more.
    ///
    /// # Errors
    /// [`RequestError::Refused`] when there is no other host that takes tasks: then nothing is
    /// begun; when the drain is taken back, or the host is lost or leaves meanwhile; `NoSuchHost`.
    pub fn drain(&self, host: &str) -> Result<DrainReport, RequestError> {
        let host = host.to_owned();
        let Drained { report } = self.shared.request(&DrainHost { host })?;
        Ok(report)
    }
}
