//! Starts processes in threads beside the event loop.
//!
//! The start of a process waits until the child has become its program. That may take long: the
//! program may lie in a file system that is far away, or the child may get no processor for
//! seconds. If the event loop waited, the daemon could lose its lease, and with it all its tasks.
//! So a thread waits, for one process after the other. There is one thread for each kind: the
//! programs of tasks, restored tasks ([`crate::process::launches`]), transfer processes
//! ([`crate::image::carriers`]), coordinators ([`crate::process::coordinators`]), guardians
//! ([`crate::process::guardian`]). So none waits for another kind. A thread lives as long as the
//! daemon, because the parent-death signal that ties a process to the daemon belongs to the thread
//! that forked.

use crate::process::usage;
use mio::Waker;
use rustix::process::{Pid, Signal};
use std::{
    collections::HashSet,
    fs, io,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

/// The result of an order: a child of this daemon and its companion value, or the error.
pub type Answer<T, E> = Result<(Pid, T), E>;

/// A thread that starts processes. Its orders have the type `O`.
#[derive(Debug)]
pub struct Starter<O, T, E> {
    orders: Sender<O>,
    answers: Receiver<Answer<T, E>>,
    thread: Pid,
    /// Number of orders without a result.
    open: usize,
    /// Children that were in a result, and were not waited for.
    told: HashSet<Pid>,
}

impl<O, T, E> Starter<O, T, E>
where
    O: Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    /// Starts the thread. It wakes the event loop with each result.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(
        name: &str,
        start: impl Fn(O) -> Answer<T, E> + Send + 'static,
        waker: Arc<Waker>,
    ) -> io::Result<Starter<O, T, E>> {
        let (orders, queue) = mpsc::channel();
        let (done, answers) = mpsc::channel();
        let (number, numbered) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let known = number.send(rustix::thread::gettid());
                // There is no receiver any more when the daemon ends.
                let _ = known.map(|()| work(start, &queue, &done, &waker));
            })?;
        let thread = numbered.recv().map_err(io::Error::other)?;
        Ok(Starter {
            orders,
            answers,
            thread,
            open: 0,
            told: HashSet::new(),
        })
    }

    /// Has a process started. The caller bounds the number of orders.
    pub fn start(&mut self, order: O) {
        // The thread ends only after this value was dropped.
        let _ = self.orders.send(order);
        self.open += 1;
    }

    /// The result of the oldest order without one, if it is known.
    pub fn answer(&mut self) -> Option<Answer<T, E>> {
        let answer = self.answers.try_recv().ok()?;
        self.open -= 1;
        if let Ok((pid, _)) = &answer {
            self.told.insert(*pid);
        }
        Some(answer)
    }

    /// Whether a child that has ended may be one that the thread has just started, or fails to
    /// start. The child must not be waited for before its result has come.
    pub fn may_be_starting(&self, child: Pid) -> bool {
        let thread = format!("/proc/self/task/{}", self.thread.as_raw_nonzero());
        self.open > 0
            && !self.told.contains(&child)
            // If the children cannot be read, the answer is yes.
            && children(Path::new(&thread)).is_none_or(|children| children.contains(&child))
    }

    /// Kills the child that is being started, if there is one: it may take long to become its
    /// program. Its result is that of a process that was started and then killed.
    pub fn kill_starting(&self) {
        // A child without a result was not waited for, so its number still refers to it.
        for child in self
            .children()
            .iter()
            .filter(|child| !self.told.contains(child))
        {
            let _ = rustix::process::kill_process(*child, Signal::KILL);
        }
    }

    /// The children that the thread has started, and the siblings that these children have made
    /// (`CLONE_PARENT`).
    pub fn children(&self) -> Vec<Pid> {
        let thread = format!("/proc/self/task/{}", self.thread.as_raw_nonzero());
        children(Path::new(&thread)).unwrap_or_default()
    }

    /// Forgets a child that was waited for: its number may be another process's from now on.
    pub fn waited(&mut self, child: Pid) {
        self.told.remove(&child);
    }
}

/// The children of all threads of this process.
pub fn all_children() -> Vec<Pid> {
    // Some kernels do not have these files.
    match children(Path::new("/proc/thread-self")) {
        Some(_) => children_by_thread(),
        None => children_by_parent(),
    }
}

/// The children that ended processes have left to this process, and all children that its first thread has
/// started: the kernel gives orphans to the first thread.
pub fn adopted_children() -> Vec<Pid> {
    let first = format!("/proc/self/task/{}", rustix::process::getpid());
    children(Path::new(&first)).unwrap_or_else(children_by_parent)
}

/// The children that have not ended.
fn children_by_parent() -> Vec<Pid> {
    let own = rustix::process::getpid();
    let children = usage::all().into_iter().filter(|it| it.parent == Some(own));
    children.map(|it| it.pid).collect()
}

fn children_by_thread() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    threads
        .filter_map(|thread| children(&thread.ok()?.path()))
        .flatten()
        .collect()
}

/// The children of the thread whose folder in /proc is `thread`; none if they cannot be read.
fn children(thread: &Path) -> Option<Vec<Pid>> {
    let text = fs::read_to_string(thread.join("children")).ok()?;
    let numbers = text.split_ascii_whitespace();
    let children = numbers.filter_map(|word| Pid::from_raw(word.parse().ok()?));
    Some(children.collect())
}

/// Ends the daemon if the thread ends: the kernel kills the children of the thread with it, and the
/// daemon must not go on without them.
struct LivesAsLong;

impl Drop for LivesAsLong {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

fn work<O, T, E>(
    start: impl Fn(O) -> Answer<T, E>,
    orders: &Receiver<O>,
    done: &Sender<Answer<T, E>>,
    waker: &Waker,
) {
    let _tie = LivesAsLong;
    for order in orders {
        if done.send(start(order)).is_err() {
            return;
        }
        // Children would die with this thread, so an error of the waker does not end it: the loop
        // takes the result at its next turn.
        let _ = waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_are_found_by_their_thread_and_by_their_parent() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn();
        let child = child.as_mut().expect("cat runs");
        let pid = Pid::from_child(child);
        for found in [all_children(), children_by_thread(), children_by_parent()] {
            assert!(found.contains(&pid), "{pid} is not in {found:?}");
        }
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(!children_by_parent().contains(&pid));
    }
}
