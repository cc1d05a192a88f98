//! Reads the tokens of processes, in threads of their own.
//!
//! The initial environment of a process lies in the process's memory. A read of it waits for the
//! lock on the process's memory map, and for the page if the page is not present. A process that
//! hangs on a disk that is gone may hold up its reader for ever. So threads read the tokens, and a
//! thread that is held up is left alone: only the token of that process stays unknown.

use crate::{fault, process::usage};
use mio::Waker;
use rustix::process::Pid;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};
use vm_wire::Tid;

/// Number of threads for one batch of processes.
const THREADS: usize = 4;

/// Reads the tokens of processes with `read`, in threads of their own, and reports each with
/// `tell`.
///
/// # Errors
/// When no thread can be started; no token is reported then.
pub fn read_all(
    pids: Vec<Pid>,
    read: impl Fn(Pid) -> Option<u64> + Clone + Send + 'static,
    tell: impl Fn(Pid, Option<u64>) + Clone + Send + 'static,
) -> io::Result<()> {
    let threads = pids.len().min(THREADS);
    let left = Arc::new(Mutex::new(pids.into_iter()));
    for number in 0..threads {
        let (left, read, tell) = (Arc::clone(&left), read.clone(), tell.clone());
        let next = move || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = move || {
            while let Some(pid) = next() {
                tell(pid, read(pid));
            }
        };
        let started = thread::Builder::new().name("token".to_owned()).spawn(work);
        match started {
            Err(error) if number == 0 => return Err(error),
            // The threads that were started read the tokens that this one would have read.
            _ => {}
        }
    }
    Ok(())
}

fn read(pid: Pid) -> Option<u64> {
    fault::at_carrier("token");
    usage::token(pid)
}

/// The purpose for which the token of a process is read.
#[derive(Debug, Clone)]
pub enum Why {
    /// The process was restored as this task.
    BroughtBack(Tid),
    /// The process may have been left by an ended task with one of these tokens.
    Left(Arc<[u64]>),
}

/// The requests of the event loop. Each process that hangs holds up at most one thread.
#[derive(Debug)]
pub struct Tokens {
    /// Children of this daemon whose token was requested: the number of the request, and its
    /// purpose.
    asked: HashMap<Pid, (u64, Why)>,
    number: u64,
    tell: Sender<(u64, Pid, Option<u64>)>,
    told: Receiver<(u64, Pid, Option<u64>)>,
    waker: Arc<Waker>,
}

impl Tokens {
    /// Without requests. The event loop is woken when [`Tokens::answer`] has a token.
    pub fn new(waker: Arc<Waker>) -> Tokens {
        let (tell, told) = mpsc::channel();
        Tokens {
            asked: HashMap::new(),
            number: 0,
            tell,
            told,
            waker,
        }
    }

    /// Requests the token of a child that was restored as a task.
    pub fn ask_of_task(&mut self, pid: Pid, tid: Tid) {
        self.ask(vec![pid], &Why::BroughtBack(tid));
    }

    /// Requests the tokens of children that tasks with `tokens` may have left. A child whose token
    /// is already requested is left out.
    pub fn ask_of_left(&mut self, mut pids: Vec<Pid>, tokens: Vec<u64>) {
        pids.retain(|pid| !self.asked.contains_key(pid));
        self.ask(pids, &Why::Left(tokens.into()));
    }

    fn ask(&mut self, pids: Vec<Pid>, why: &Why) {
        self.number += 1;
        let number = self.number;
        for pid in &pids {
            self.asked.insert(*pid, (number, why.clone()));
        }
        let (tell, waker) = (self.tell.clone(), Arc::clone(&self.waker));
        let told = move |pid, token| {
            // There is no receiver any more when the daemon ends.
            let _ = tell.send((number, pid, token)).map(|()| waker.wake());
        };
        if let Err(error) = read_all(pids, read, told) {
            log::warn!("what tasks have left is not looked for: {error}");
            self.asked.retain(|_, (asked, _)| *asked != number);
        }
    }

    /// The next result: the child, the purpose, and the child's token if it has one.
    pub fn answer(&mut self) -> Option<(Pid, Why, Option<u64>)> {
        loop {
            let (number, pid, token) = self.told.try_recv().ok()?;
            if self.asked.get(&pid).is_some_and(|it| it.0 == number) {
                let (_, why) = self.asked.remove(&pid)?;
                return Some((pid, why, token));
            }
        }
    }

    /// Forgets a child that was waited for: its number may be another process's from now on.
    pub fn waited(&mut self, child: Pid) {
        self.asked.remove(&child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_process_whose_memory_cannot_be_read_delays_no_other() {
        let pids: Vec<Pid> = (1..=20).filter_map(Pid::from_raw).collect();
        let hangs = pids[0];
        let (tell, told) = mpsc::channel();
        let read = move |pid: Pid| {
            if pid == hangs {
                loop {
                    thread::park();
                }
            }
            Some(7)
        };
        let tell = move |pid, token| tell.send((pid, token)).expect("heard");
        read_all(pids.clone(), read, tell).expect("threads");
        let mut answers = Vec::new();
        while answers.len() + 1 < pids.len() {
            let answer = told.recv_timeout(Duration::from_secs(20));
            answers.push(answer.expect("an answer"));
        }
        answers.sort_by_key(|(pid, _)| pid.as_raw_nonzero());
        let others: Vec<_> = pids[1..].iter().map(|pid| (*pid, Some(7))).collect();
        assert_eq!(answers, others);
    }

    #[test]
    fn a_token_of_a_process_that_was_waited_for_is_dropped() {
        let poll = mio::Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        let mut tokens = Tokens::new(Arc::new(waker));
        let [gone, here] = [1, 2].map(|number| Pid::from_raw(number).expect("a number"));
        for (number, pid) in [(1, gone), (2, here), (3, gone)] {
            tokens.asked.insert(pid, (number, Why::BroughtBack(Tid(1))));
        }
        tokens.waited(gone);
        for (number, pid) in [(1, gone), (2, here), (3, gone), (1, here)] {
            tokens.tell.send((number, pid, Some(9))).expect("heard");
        }
        let answer = tokens.answer().expect("one");
        assert_eq!((answer.0, answer.2), (here, Some(9)));
        assert!(tokens.answer().is_none());
    }
}
