//! How a task leaves: in order, by call or at the end of its process.
//!
//! Messages of started sends go into their channels first, for a limited time; the rest is not sent.
//! Chunks that the channels retain go to the daemon, which sends them until they are acknowledged.
//! Then the library requests the exit, and the task stays until the machine has agreed. A process that
//! ends in order leaves by itself: a handler of the C library, which `exit` calls and tells the status.
//! (`atexit` is not told it, and a dropped handle does not know it: a `main` that returns an error
//! drops first and fails after.) `on_exit` is of glibc, as is all that saves a process.
//!
//! The two `unsafe` parts here are that function's declaration and its call.

use crate::{
    clock::now,
    error::{ExitError, InitError, TaskError},
    freeze,
    interruption::uninterrupted,
    orders::leaves,
    primitive::{Attempt, Phase, Shared},
    request::read_answer,
    resend,
};
use std::{
    ffi::{c_int, c_void},
    io, ptr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use vm_wire::{
    Message, Tid,
    task::{Done, Exit},
};

/// How long a process that ends waits for the receivers of started sends, and then for the machine to
/// agree.
const EXIT_TIME: Duration = Duration::from_secs(10);

/// The task that this process is.
static TASK: Mutex<Option<Arc<Shared>>> = Mutex::new(None);

unsafe extern "C" {
    /// glibc: calls `function` with the exit status and `argument` when the process ends.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Makes this process the task that `enrol` gives, if it is none yet, and sees that it leaves when
/// it ends.
pub(crate) fn once(
    enrol: impl FnOnce() -> Result<Arc<Shared>, InitError>,
) -> Result<Arc<Shared>, InitError> {
    let mut task = TASK.lock().unwrap_or_else(PoisonError::into_inner);
    if task.is_some() {
        return Err(InitError::Twice);
    }
    let shared = enrol()?;
    // SAFETY: the handler is a plain function that may be called at any exit, in any thread, and
    // does not look at its argument.
    if unsafe { on_exit(leave_at_exit, ptr::null_mut()) } != 0 {
        return Err(InitError::System {
            step: "registering what is done at the end of the process",
            cause: io::ErrorKind::OutOfMemory.into(),
        });
    }
    freeze::enrolled();
    resend::enrolled(Arc::<Shared>::clone(&shared));
    *task = Some(Arc::clone(&shared));
    Ok(shared)
}

/// Called by the C library in the thread that ends the process.
extern "C" fn leave_at_exit(status: c_int, _: *mut c_void) {
    // A thread that is just in `init` holds this lock; then there is no task that could leave.
    let Ok(task) = TASK.try_lock() else {
        return;
    };
    // It stays where it is: a signal handler may still look at its socket.
    let Some(task) = &*task else {
        return;
    };
    // A forked copy of the process is no task, and must not leave in its name.
    if !freeze::is_task() {
        return;
    }
    match task.leave(status) {
        Ok(()) | Err(ExitError::Task(TaskError::Left)) => {}
        Err(error) => log::warn!("{error}"),
    }
}

impl Shared {
    /// Leaves the machine in order.
    pub(crate) fn leave(&self, status: i32) -> Result<(), ExitError> {
        self.leave_within(status, EXIT_TIME)
    }

    /// Leaves the machine in order. Waits at most `time` for the receivers of started sends.
    pub(crate) fn leave_within(&self, status: i32, time: Duration) -> Result<(), ExitError> {
        uninterrupted(|| {
            let unsent = self.finish_started(time)?;
            self.leave_now(status)?;
            match unsent {
                Some((count, to)) => Err(ExitError::Unsent { count, to, time }),
                None => Ok(()),
            }
        })
    }

    /// Sends the messages of started sends. Returns the number left after `time`, and the first receiver.
    fn finish_started(&self, time: Duration) -> Result<Option<(usize, Tid)>, TaskError> {
        let until = now() + time;
        self.run_in_any_phase(|core, now| {
            core.phase.running()?;
            Ok(match core.started.unsent() {
                Some(_) if now < until => Attempt::Wait(Some(until)),
                unsent => Attempt::Done(unsent),
            })
        })
    }

    fn leave_now(&self, status: i32) -> Result<(), ExitError> {
        let until = now() + EXIT_TIME;
        let mut question = None;
        let mut asked = None;
        let answer = self.run_in_any_phase(|core, now| {
            let question = match &question {
                Some(question) => question,
                None => {
                    core.phase.running()?;
                    leaves();
                    core.phase = Phase::Leaving;
                    core.requests.clear();
                    core.rings.close_all(&mut core.endpoint, now);
                    let (retained, last) = core.endpoint.leave();
                    core.out.extend(retained);
                    question.insert(Exit { status, last }.frame())
                }
            };
            if let Phase::Broken(error) = &core.phase {
                return Err(ExitError::Task(error.clone().into()));
            }
            match core.ask(question, &mut asked, now) {
                Attempt::Done(answer) => {
                    core.phase = Phase::Left;
                    Ok(Attempt::Done(answer))
                }
                Attempt::Wait(_) if now >= until => {
                    core.phase = Phase::Left;
                    Err(ExitError::Silent(EXIT_TIME))
                }
                Attempt::Wait(again) => Ok(Attempt::Wait(again.into_iter().chain([until]).min())),
            }
        })?;
        read_answer::<Done>(&answer)?;
        Ok(())
    }
}
