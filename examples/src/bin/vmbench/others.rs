//! What moves cost those that have no part in them: two tasks on one processor exchange 8 bytes
//! through their daemons, while on the other processor a large task moves between two other daemons.
//!
//! Where a processor stands still because the computer itself was away ([`crate::away`]), a round trip
//! takes so much longer, with moves or without. So the longest ones are told in two ways: without that
//! time, and as the clock has them. Beside the latter is what a process does to the pair that does nothing
//! but keep the other processor busy.

use crate::{
    away::{self, Away},
    rows::median,
    sealed,
};
use anyhow::{Context, Result, ensure};
use rustix::{
    process::{Pid, Signal, set_parent_process_death_signal},
    thread::{CpuSet, sched_setaffinity},
};
use std::{
    fs,
    process::{Child, Command},
    time::{Duration, Instant},
};
use vmlib::{Bytes, Spawn, Task, Tid};

/// To the pinger: begin to measure; from it: what it measured.
const BEGIN: i32 = 1;
/// To the pinger: say what you have measured.
const REPORT: i32 = 2;
/// To the pinger or the ponger: end.
const STOP: i32 = 3;
/// Between the two.
const PING: i32 = 4;
/// Of each of their messages. Bytes.
const SIZE: usize = 8;

/// Rounds of moves, of work, and of quiet.
const ROUNDS: usize = 5;
/// Moves of one round, there and back.
const MOVES: usize = 2;
/// Round trips before each measurement that do not count.
const WARM: u32 = 1_000;

/// Round trips of several rounds, in microseconds. Each figure is the median of those of the rounds.
#[derive(Debug, Default)]
pub struct Times(Vec<Round>);

#[derive(Debug)]
struct Round {
    /// Ascending.
    all: Vec<f64>,
    /// The longest, without the time in which the computer was away.
    longest_there: f64,
}

impl Times {
    fn add(&mut self, mut all: Vec<f64>, longest_there: f64) {
        all.sort_by(f64::total_cmp);
        self.0.push(Round { all, longest_there });
    }

    /// The one that so many of a thousand are not above.
    pub fn at(&self, per_mille: usize) -> f64 {
        let at = |round: &Round| {
            let at = round.all.len().saturating_sub(1) * per_mille / 1000;
            round.all.get(at).copied().unwrap_or(0.0)
        };
        median(self.0.iter().map(at).collect())
    }

    /// The longest, without the time in which the computer was away.
    pub fn longest_there(&self) -> f64 {
        median(self.0.iter().map(|round| round.longest_there).collect())
    }
}

/// Has every thread of a process, and what it starts from now on, on one processor, or on any.
pub fn pin(process: u32, processor: Option<usize>) -> Result<()> {
    let mut set = CpuSet::new();
    match processor {
        Some(processor) => set.set(processor),
        None => (0..CpuSet::MAX_CPU).for_each(|processor| set.set(processor)),
    }
    for entry in fs::read_dir(format!("/proc/{process}/task"))? {
        let name = entry?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        let thread = thread.and_then(Pid::from_raw).context("a thread's id")?;
        sched_setaffinity(Some(thread), &set)?;
    }
    Ok(())
}

/// What happens beside the pair, on the other processor.
#[derive(Debug, Clone, Copy)]
enum Beside {
    /// A task moves.
    Moves,
    /// A process computes.
    Work,
    Nothing,
}

/// A process that keeps the processor of the moves busy. Dropped it ends.
struct Worker(Child);

impl Worker {
    fn start() -> Result<Self> {
        let worker = Worker(Command::new(sealed::OWN).arg("work").spawn()?);
        pin(worker.0.id(), Some(1))?;
        Ok(worker)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It does not end by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process.
pub fn work() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    loop {
        std::hint::spin_loop();
    }
}

/// Round trips with moves of a task of so many bytes, with a process beside them that computes, and with
/// nothing; the hosts by name, those of the pair first. The daemons were pinned.
pub fn measure(vm: &Task, program: &str, hosts: &[String; 4], bytes: usize) -> Result<[Times; 3]> {
    let spawn = |words: &[&str], host: &str| -> Result<Tid> {
        let tids = vm.spawn(&Spawn::new(program).args(words.iter().copied()).on(host))?;
        tids.first().copied().context("no task was started")
    };
    let ponger = spawn(&["ponger"], &hosts[1])?;
    let pinger = spawn(&["pinger"], &hosts[0])?;
    vm.send(pinger, BEGIN, &ponger)?;
    let churner = spawn(&["churner", &bytes.to_string(), "1"], &hosts[2])?;
    vm.recv(churner, crate::ours::ANSWER)?;
    let there_and_back = [&hosts[3], &hosts[2]];
    let mut times = [(); 3].map(|()| Times::default());
    for _ in 0..ROUNDS {
        let mut length = Duration::from_secs(1);
        let all = [Beside::Moves, Beside::Work, Beside::Nothing];
        for (beside, times) in all.into_iter().zip(&mut times) {
            sealed::find_memory(bytes)?;
            vm.send_bytes(pinger, BEGIN, Bytes::new())?;
            let begin = Instant::now();
            match beside {
                Beside::Moves => {
                    for host in there_and_back.iter().cycle().take(MOVES) {
                        vm.move_task(churner, Some(host))?;
                    }
                    length = begin.elapsed();
                }
                Beside::Work | Beside::Nothing => {
                    let worker = matches!(beside, Beside::Work).then(Worker::start);
                    let _worker = worker.transpose()?;
                    // As long as the moves took.
                    let ended = vm.recv_timeout(churner, STOP, length)?;
                    ensure!(ended.is_none(), "it ended");
                }
            }
            vm.send_bytes(pinger, REPORT, Bytes::new())?;
            let all = vm.recv(pinger, REPORT)?.slice()?.into_owned();
            times.add(all, vm.recv(pinger, REPORT)?.value()?);
        }
    }
    for tid in [pinger, ponger, churner] {
        vm.send_bytes(
            tid,
            if tid == churner {
                crate::ours::STOP
            } else {
                STOP
            },
            Bytes::new(),
        )?;
    }
    vm.recv(churner, crate::ours::ANSWER)?;
    Ok(times)
}

/// A task that exchanges messages with another, and measures.
pub fn pinger() -> Result<()> {
    let vm = vmlib::init()?;
    let master = vm.parent().context("a pinger is spawned, not run")?;
    let ponger: Tid = vm.recv(master, BEGIN)?.value()?;
    let ball = Bytes::from(vec![0; SIZE]);
    let mut away = Away::look_on()?;
    let round = || -> Result<()> {
        vm.send_bytes(ponger, PING, ball.clone())?;
        vm.recv(ponger, PING)?;
        Ok(())
    };
    loop {
        let order = vm.recv(master, vmlib::ANY)?;
        if order.tag() == STOP {
            return Ok(());
        }
        for _ in 0..WARM {
            round()?;
        }
        let (mut times, mut longest_there) = (Vec::new(), 0.0);
        while vm.recv_timeout(master, REPORT, Duration::ZERO)?.is_none() {
            let begin = away::now();
            round()?;
            let end = away::now();
            times.push(end - begin);
            if end - begin > longest_there {
                let there = end - begin - away.between(begin, end)?;
                longest_there = there.max(longest_there);
            }
        }
        vm.send_slice(master, REPORT, &times)?;
        vm.send(master, REPORT, &longest_there)?;
    }
}

/// The other.
pub fn ponger() -> Result<()> {
    let vm = vmlib::init()?;
    let master = vm.parent().context("a ponger is spawned, not run")?;
    loop {
        let message = vm.recv(vmlib::ANY, vmlib::ANY)?;
        if message.from() == master {
            return Ok(());
        }
        vm.send_bytes(message.from(), PING, message.into_bytes())?;
    }
}
