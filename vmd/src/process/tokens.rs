//! The tokens of processes, read by threads of their own.
//!
//! The environment that a process began with lies in its memory. Whoever reads it waits for the lock on
//! that process's map of memory, and for the page if that is not there. A process that hangs on a disk
//! that is gone may hold up its reader for ever. So threads read, and one that is held up is left
//! behind: it costs what was to be known of that process, and nothing else.

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

/// Threads for what is asked at one time.
const THREADS: usize = 4;

/// Reads the tokens of processes in threads of their own, by `read`, and tells each.
///
/// # Errors
/// When there is no thread: none is told.
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
            // Those before it read what it would have.
            _ => {}
        }
    }
    Ok(())
}

fn read(pid: Pid) -> Option<u64> {
    fault::at_carrier("token");
    usage::token(pid)
}

/// Why the token of a process is asked for.
#[derive(Debug, Clone)]
pub enum Why {
    /// It was brought back as that task.
    BroughtBack(Tid),
    /// It may have been left by a task with one of these tokens, which has ended.
    Left(Arc<[u64]>),
}

/// What the event loop asks. At most one thread is held up for each process that hangs.
#[derive(Debug)]
pub struct Tokens {
    /// Children of this daemon whose answers are awaited, under which number and why.
    asked: HashMap<Pid, (u64, Why)>,
    number: u64,
    tell: Sender<(u64, Pid, Option<u64>)>,
    told: Receiver<(u64, Pid, Option<u64>)>,
    waker: Arc<Waker>,
}

impl Tokens {
    /// Nothing is asked yet. The event loop is woken when [`Tokens::answer`] has something.
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

    /// Asks for the token of a child that was brought back as a task.
    pub fn ask_of_task(&mut self, pid: Pid, tid: Tid) {
        self.ask(vec![pid], &Why::BroughtBack(tid));
    }

    /// Asks for the tokens of children that tasks with those tokens may have left. Those that were
    /// asked and have not answered are not asked again.
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
            // Nobody hears it any more when the daemon ends.
            let _ = tell.send((number, pid, token)).map(|()| waker.wake());
        };
        if let Err(error) = read_all(pids, read, told) {
            log::warn!("what tasks have left is not looked for: {error}");
            self.asked.retain(|_, (asked, _)| *asked != number);
        }
    }

    /// The next answer: of which child, why it was asked, and its token if it has one.
    pub fn answer(&mut self) -> Option<(Pid, Why, Option<u64>)> {
        loop {
            let (number, pid, token) = self.told.try_recv().ok()?;
            if self.asked.get(&pid).is_some_and(|it| it.0 == number) {
                let (_, why) = self.asked.remove(&pid)?;
                return Some((pid, why, token));
            }
        }
    }

    /// A child was waited for: its number may be another one's.
    pub fn waited(&mut self, child: Pid) {
        self.asked.remove(&child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_process_whose_memory_cannot_be_read_holds_up_no_other() {
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
    fn an_answer_about_a_process_that_was_waited_for_is_none() {
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
