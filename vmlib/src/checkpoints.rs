//! Checkpoints that a program has made at moments of its choice: what `vm checkpoint` does, for
//! programs.
//!
//! The task that asks is in the checkpoint itself, in the midst of its call. If its application is
//! brought back, that call ends there: the application's generation is another one than when it
//! began, which the library sees before it asks for anything again.

use crate::{RequestError, Task, error::TaskError, primitive::Attempt, request::read_answer};
use std::time::Duration;
use vm_wire::{
    Frame, Message as _, Tid,
    checkpoint::{CheckpointReport, RestartReport},
    limits,
    task::{ResumeApp, Resumed, SaveApp, Saved, SuspendApp},
};

/// How the process that returns from [`Task::checkpoint`] came there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checkpointed {
    /// It went on all the time, and the checkpoint is in the store.
    Saved(CheckpointReport),
    /// Its application was brought back from a checkpoint that was made during the call, as a rule
    /// the one that the call asked for: by `vm restart`, or by itself when a host was lost.
    Restored,
}

impl Task {
    /// Saves all tasks of this application together, as `vm checkpoint` does, and returns when the
    /// checkpoint is in the store. The tasks stand still for some milliseconds, until all of them
    /// do; all but this one then go on with their work while it is written.
    ///
    /// Like `fork`, it may return more than once: with [`Checkpointed::Restored`] in the process that
    /// is made of the checkpoint when the application is brought back. No checkpoint is made then.
    ///
    /// # Errors
    /// [`RequestError::Refused`] when there is no checkpoint, with the reason; the application runs
    /// on, and what was in the store is there. [`FailKind::Refused`](crate::FailKind) when a task
    /// cannot be saved, or when another checkpoint of the application is just being made: of several
    /// tasks that want one at the same time, the first gets it. `System` when it could not be
    /// stored, or its coordinator does not answer.
    pub fn checkpoint(&self) -> Result<Checkpointed, RequestError> {
        self.save_by(&SaveApp {}.frame())
    }

    /// Suspends the application of that master, as `vm suspend` does: it is saved and ends with that, and
    /// the machine remembers it until it is resumed. For so long, if that is said: after it the
    /// application has ended, and its checkpoint stays in the store. Returns when it has ended.
    ///
    /// It may be this task's own application. Then this call returns only in the process that is made
    /// of the checkpoint, with [`Checkpointed::Restored`], or with an error.
    ///
    /// # Errors
    /// [`RequestError::Refused`] when it runs on, with the reason: as for [`Task::checkpoint`];
    /// [`FailKind::Refused`](crate::FailKind) also when it is suspended already, or when the task is
    /// not a master; `Limit` when too many applications are; `NoSuchTask`.
    pub fn suspend(&self, app: Tid, time: Option<Duration>) -> Result<Checkpointed, RequestError> {
        let for_ms = time.map_or(0, |time| {
            let ms = time.min(2 * limits::SUSPENDED_FOR_MAX).as_millis();
            // Not even a part of a millisecond is without end.
            (ms as u64).max(1)
        });
        self.save_by(&SuspendApp { app, for_ms }.frame())
    }

    /// Resumes the application of that master, which is suspended, as `vm resume` does. Returns when all
    /// its tasks run.
    ///
    /// # Errors
    /// [`RequestError::Refused`] when it stays suspended, with the reason:
    /// [`FailKind::Refused`](crate::FailKind) when it is not suspended, or is just being resumed;
    /// `Limit` when there is no room for it; `System` when it could not be brought back.
    pub fn resume(&self, app: Tid) -> Result<RestartReport, RequestError> {
        let Resumed { report } = self.shared.request(&ResumeApp { app })?;
        Ok(report)
    }

    /// Asks for a checkpoint of, perhaps, this task's own application.
    fn save_by(&self, question: &Frame) -> Result<Checkpointed, RequestError> {
        let (mut asked, mut begun) = (None, None);
        let answer = self.shared.run(|core, now| {
            let generation = core.endpoint.generation();
            if *begun.get_or_insert(generation) != generation {
                if asked.is_some() {
                    core.requests.clear();
                }
                return Ok::<_, TaskError>(Attempt::Done(None));
            }
            Ok(match core.ask(question, &mut asked, now) {
                Attempt::Done(answer) => Attempt::Done(Some(answer)),
                Attempt::Wait(until) => Attempt::Wait(until),
            })
        });
        if let Err(TaskError::Interrupted) = answer {
            self.shared.give_up(&asked);
        }
        let Some(answer) = answer? else {
            return Ok(Checkpointed::Restored);
        };
        let Saved { report } = read_answer(&answer)?;
        Ok(Checkpointed::Saved(report))
    }
}
