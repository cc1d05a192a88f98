//! Processes are started by threads beside the event loop.
//!
//! Who starts a process waits until that has become its program. It may be long: the program may lie
//! in a file system that is far away, or the new process may get no processor for seconds. A daemon
//! that waited for it would be lost, with all its tasks, once its lease ends. So a thread waits, one
//! process after the other: one thread for the programs of tasks and one for tasks that are brought back
//! ([`crate::process::launches`]), one for those that carry their images ([`crate::image::carriers`]), one for
//! coordinators ([`crate::process::coordinators`]), one for guardians ([`crate::process::guardian`]), so that none waits
//! for another's. It lives as long as the
//! daemon, because the parent-death signal that ties a process to the daemon belongs to the thread that
//! forked.

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

/// What became of an order: a child of this daemon and what belongs to it, or why there is none.
pub type Answer<T, E> = Result<(Pid, T), E>;

/// A thread that starts processes: it is given orders `O`.
#[derive(Debug)]
pub struct Starter<O, T, E> {
    orders: Sender<O>,
    answers: Receiver<Answer<T, E>>,
    thread: Pid,
    /// Orders without an answer.
    open: usize,
    /// Children that were in an answer, and were not waited for.
    told: HashSet<Pid>,
}

impl<O, T, E> Starter<O, T, E>
where
    O: Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    /// Starts the thread; it wakes the event loop with each answer.
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
                // Nobody hears it any more when the daemon ends.
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

    /// Has a process started. What is queued has its limit where orders are given.
    pub fn start(&mut self, order: O) {
        // The thread ends after this value alone.
        let _ = self.orders.send(order);
        self.open += 1;
    }

    /// What became of the oldest order without an answer, if that is known.
    pub fn answer(&mut self) -> Option<Answer<T, E>> {
        let answer = self.answers.try_recv().ok()?;
        self.open -= 1;
        if let Ok((pid, _)) = &answer {
            self.told.insert(*pid);
        }
        Some(answer)
    }

    /// Whether a child that has ended may be one that the thread has just started, or fails to: then
    /// nobody must wait for it before the answer.
    pub fn may_be_starting(&self, child: Pid) -> bool {
        let thread = format!("/proc/self/task/{}", self.thread.as_raw_nonzero());
        self.open > 0
            && !self.told.contains(&child)
            // What cannot be known may be.
            && children(Path::new(&thread)).is_none_or(|children| children.contains(&child))
    }

    /// Kills the child that is being started, if there is one: it may not become its program for long.
    /// Its answer is as if it had, and then had been killed.
    pub fn kill_starting(&self) {
        let thread = format!("/proc/self/task/{}", self.thread.as_raw_nonzero());
        let children = children(Path::new(&thread)).unwrap_or_default();
        // Those without an answer were not waited for: their numbers mean nobody else.
        for child in children.iter().filter(|child| !self.told.contains(child)) {
            let _ = rustix::process::kill_process(*child, Signal::KILL);
        }
    }

    /// A child was waited for: its number may be another one's.
    pub fn waited(&mut self, child: Pid) {
        self.told.remove(&child);
    }
}

/// The children of all threads of this process.
pub fn all_children() -> Vec<Pid> {
    // Some kernels have no such files.
    match children(Path::new("/proc/thread-self")) {
        Some(_) => children_by_thread(),
        None => children_by_parent(),
    }
}

/// Those that have not ended.
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

/// The children of a thread that has this folder in /proc; nothing if that cannot be read.
fn children(thread: &Path) -> Option<Vec<Pid>> {
    let text = fs::read_to_string(thread.join("children")).ok()?;
    let numbers = text.split_ascii_whitespace();
    let children = numbers.filter_map(|word| Pid::from_raw(word.parse().ok()?));
    Some(children.collect())
}

/// The children of a thread die with it: so does this daemon then, which would go on without them.
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
        // Children would die with this thread. Who is not woken looks a little later.
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
