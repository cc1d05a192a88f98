//! Threads for work that may wait for a disk, beside the event loop.
//!
//! The jobs are: to look up a program, because its file system may be far away; to measure what
//! hundreds of processes use; to commit a checkpoint, which waits until the data is on a disk; and
//! to inspect a checkpoint before a restart, or to read all of it if a restart has failed. Each
//! kind of job has one thread with a bounded queue. Results come back through a channel, and the
//! thread wakes the event loop.

use crate::{
    fault,
    image::{
        store::{CheckpointQuery, StoreLocation},
        suspended,
    },
    process::{program::ProgramPath, usage},
};
use anyhow::Context as _;
use mio::Waker;
use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread,
};
use vm_machine::{Input, ProcessInput, StoreInput};
use vm_store::CheckpointId;
use vm_wire::{
    Tid,
    checkpoint::{Checkpoint, Committed},
    task::{FailKind, Failed},
};

/// Bound on the jobs that wait for one thread.
const QUEUE_JOBS: usize = 8_192;

enum Job {
    Find {
        question: u64,
        program: String,
        dir: Option<String>,
    },
    Measure {
        question: u64,
        tasks: Vec<(Tid, u32)>,
    },
    Commit(Box<Checkpoint>),
    Drop(Tid, CheckpointId),
    DropSuspended(Tid, String),
    Load(u64, CheckpointQuery),
    Stock(u64, CheckpointQuery),
    Forget(Tid),
}

/// The queues of the job threads and the channel of their results.
#[derive(Debug)]
pub struct Jobs {
    find: SyncSender<Job>,
    measure: SyncSender<Job>,
    commit: SyncSender<Job>,
    load: SyncSender<Job>,
    answers: Receiver<Input>,
}

impl Jobs {
    /// Starts the threads.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn start(
        path: ProgramPath,
        store: StoreLocation,
        waker: &Arc<Waker>,
    ) -> anyhow::Result<Jobs> {
        let (done, answers) = mpsc::channel();
        let path = Arc::new(path);
        let worker = |name: &str| -> anyhow::Result<SyncSender<Job>> {
            let (queue, jobs) = mpsc::sync_channel(QUEUE_JOBS);
            let (path, store) = (path.clone(), store.clone());
            let (done, waker) = (done.clone(), waker.clone());
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || work(&path, &store, &jobs, &done, &waker))
                .context("cannot start a thread")?;
            Ok(queue)
        };
        Ok(Jobs {
            find: worker("find")?,
            measure: worker("measure")?,
            commit: worker("commit")?,
            load: worker("load")?,
            answers,
        })
    }

    /// Looks up a program. If the thread's queue is full, the result is a failure, returned at
    /// once.
    pub fn find(&self, question: u64, program: String, dir: Option<String>) -> Option<Input> {
        let job = Job::Find {
            question,
            program,
            dir,
        };
        let failed = refused(&self.find, job, "look up more programs")?;
        Some(Input::Process(ProcessInput::ProgramFound(
            question,
            Err(failed),
        )))
    }

    /// Measures what tasks use. If the thread's queue is full, an empty result is returned at once.
    pub fn measure(&self, question: u64, tasks: Vec<(Tid, u32)>) -> Option<Input> {
        match self.measure.try_send(Job::Measure { question, tasks }) {
            Ok(()) => None,
            Err(_) => Some(Input::Process(ProcessInput::Usage(question, Vec::new()))),
        }
    }

    /// Commits a checkpoint. If the thread's queue is full, a failed commit is returned at once.
    pub fn commit(&self, checkpoint: Box<Checkpoint>) -> Option<Input> {
        let (app, epoch) = (checkpoint.agreed.app, checkpoint.agreed.epoch);
        let job = Job::Commit(checkpoint);
        let result = Err(refused(&self.commit, job, "commit more checkpoints")?);
        Some(Input::Store(StoreInput::Committed(Committed {
            app,
            epoch,
            result,
        })))
    }

    /// Removes the files of a checkpoint that was not committed. If the thread's queue is full, the
    /// files stay until the next checkpoint is committed.
    pub fn drop_checkpoint(&self, app: Tid, id: CheckpointId) {
        let _ = self.commit.try_send(Job::Drop(app, id));
    }

    /// Removes the image of a task that is no longer suspended. If the thread's queue is full, the
    /// image stays.
    pub fn drop_suspended(&self, app: Tid, name: String) {
        let _ = self.commit.try_send(Job::DropSuspended(app, name));
    }

    /// Reads the contents of a checkpoint. If the thread's queue is full, a failure is returned at
    /// once.
    pub fn load(&self, question: u64, look: CheckpointQuery) -> Option<Input> {
        let failed = refused(
            &self.load,
            Job::Load(question, look),
            "read more checkpoints",
        )?;
        Some(Input::Store(StoreInput::Loaded(question, Err(failed))))
    }

    /// Reads the store inventory of an application. If the thread's queue is full, a failure is
    /// returned at once.
    pub fn stock(&self, question: u64, look: CheckpointQuery) -> Option<Input> {
        let failed = refused(&self.load, Job::Stock(question, look), "look at its store")?;
        Some(Input::Store(StoreInput::Inventory(question, Err(failed))))
    }

    /// Removes all checkpoints of an application. If the thread's queue is full, the checkpoints
    /// stay.
    pub fn forget(&self, app: Tid) {
        if self.commit.try_send(Job::Forget(app)).is_err() {
            log::warn!("the daemon waits for a disk: the checkpoints of {app} stay in its store");
        }
    }

    /// The next result of a job, if one has come.
    pub fn answer(&self) -> Option<Input> {
        self.answers.try_recv().ok()
    }
}

/// Gives a job to a thread. Returns the failure if the thread's queue is full.
fn refused(thread: &SyncSender<Job>, job: Job, what: &str) -> Option<Failed> {
    thread.try_send(job).err()?;
    let text = format!("the daemon waits for a disk and cannot {what} now");
    Some(Failed::new(FailKind::System, text))
}

fn work(
    path: &ProgramPath,
    store: &StoreLocation,
    jobs: &Receiver<Job>,
    done: &Sender<Input>,
    waker: &Waker,
) {
    for job in jobs {
        let answer = match job {
            Job::Find {
                question,
                program,
                dir,
            } => Input::Process(ProcessInput::ProgramFound(
                question,
                path.find(&program, dir.as_deref()),
            )),
            Job::Measure { question, tasks } => {
                Input::Process(ProcessInput::Usage(question, usage::measure(&tasks)))
            }
            Job::Commit(checkpoint) => {
                fault::at("commit");
                Input::Store(StoreInput::Committed(store.commit(&checkpoint)))
            }
            Job::Load(question, look) => {
                Input::Store(StoreInput::Loaded(question, store.load(look).map(Box::new)))
            }
            Job::Stock(question, look) => {
                Input::Store(StoreInput::Inventory(question, store.stock(look)))
            }
            Job::Forget(app) => {
                store.forget(app);
                continue;
            }
            Job::DropSuspended(app, name) => {
                suspended::forget(store, app, &name);
                continue;
            }
            Job::Drop(app, id) => {
                store.drop_checkpoint(app, id);
                continue;
            }
        };
        let woken: Result<(), io::Error> = done
            .send(answer)
            .map_err(io::Error::other)
            .and_then(|()| waker.wake());
        if woken.is_err() {
            // The event loop has ended.
            return;
        }
    }
}
