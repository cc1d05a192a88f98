//! Processes of tasks are started by a thread beside the event loop.
//!
//! Who starts a process waits until that has become its program. It may be long: the program may lie
//! in a file system that is far away, or the new process may get no processor for seconds. A daemon
//! that waited for it would be lost, with all its tasks, once its lease ends. So a thread waits, one
//! process after the other. It lives as long as the daemon, because the parent-death signal that ties
//! a task to the daemon belongs to the thread that forked.

use crate::spawn::{Spawner, Started};
use mio::Waker;
use rustix::{fd::OwnedFd, process::Pid};
use std::{
    fs, io,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};
use vm_machine::LaunchSpec;
use vm_wire::task::{FailKind, Failed};

/// What is to be started.
#[derive(Debug)]
pub enum Order {
    /// The process of a task.
    Task(Box<LaunchSpec>),
    /// The process that becomes a task that was saved, see [`Spawner::bring_back`].
    Image {
        /// Whether the files that the task writes are to be rolled back.
        roll_back: bool,
        /// Where its image comes from, its data socket, its interrupt socket.
        handed: [OwnedFd; 3],
    },
}

/// The thread.
#[derive(Debug)]
pub struct Starter {
    orders: Sender<Order>,
    answers: Receiver<Result<Started, Failed>>,
    thread: Pid,
}

impl Starter {
    /// Starts the thread; it wakes the event loop with each answer.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(spawner: Spawner, waker: Arc<Waker>) -> io::Result<Starter> {
        let (orders, queue) = mpsc::channel();
        let (done, answers) = mpsc::channel();
        let (name, named) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("start".to_owned())
            .spawn(move || {
                let named = name.send(rustix::thread::gettid());
                // Nobody hears it any more when the daemon ends.
                let _ = named.map(|()| work(&spawner, &queue, &done, &waker));
            })?;
        let thread = named.recv().map_err(io::Error::other)?;
        Ok(Starter {
            orders,
            answers,
            thread,
        })
    }

    /// Has a process started. Who orders waits for the answer before the next one, so that what is
    /// queued has its limit there.
    pub fn start(&self, order: Order) {
        // The thread ends after this value alone.
        let _ = self.orders.send(order);
    }

    /// What became of the oldest order without an answer, if that is known.
    pub fn answer(&self) -> Option<Result<Started, Failed>> {
        self.answers.try_recv().ok()
    }

    /// Whether the thread has forked this child, perhaps as what is being started.
    pub fn has_forked(&self, child: Pid) -> bool {
        let thread = format!("/proc/self/task/{}", self.thread.as_raw_nonzero());
        children(Path::new(&thread)).contains(&child)
    }
}

/// The children of all threads of this process.
pub fn all_children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    threads
        .flat_map(|thread| thread.map_or_else(|_| Vec::new(), |thread| children(&thread.path())))
        .collect()
}

/// The children of a thread that has this folder in /proc; none if it has ended.
fn children(thread: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(thread.join("children")).unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|word| Pid::from_raw(word.parse().ok()?))
        .collect()
}

fn work(
    spawner: &Spawner,
    orders: &Receiver<Order>,
    done: &Sender<Result<Started, Failed>>,
    waker: &Waker,
) {
    for order in orders {
        let answer = match order {
            Order::Task(spec) => spawner.spawn(&spec),
            Order::Image { roll_back, handed } => {
                spawner.bring_back(roll_back, &handed).map_err(|error| {
                    let text = format!("the task cannot be brought back: {error}");
                    Failed::new(FailKind::System, text)
                })
            }
        };
        if done.send(answer).is_err() {
            return;
        }
        // Tasks would die with this thread. Who is not woken looks a little later.
        let _ = waker.wake();
    }
}
