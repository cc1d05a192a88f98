//! What moves cost those that have no part in them: two tasks on one processor exchange 8 bytes
//! through their daemons, while on the other processor a large task moves between two other daemons.
//!
//! On a virtual machine whose host has other work, all processors stand still now and then, for tens
//! of milliseconds, and more often the more of them are busy. Such spans, which the kernel counts as
//! stolen, are left out of a row that has no goal: it shows beside the others how much of the longest
//! round trip is the computer's own.

use crate::sealed;
use anyhow::{Context, Result, ensure};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};
use std::{
    fs,
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

/// Rounds of quiet and moves.
const ROUNDS: usize = 5;
/// Moves of one round, there and back.
const MOVES: usize = 2;
/// How long it is looked at once whether the computer was there.
const SPAN: Duration = Duration::from_millis(20);
/// Round trips before each measurement that do not count.
const WARM: u32 = 1_000;

/// Round trips in microseconds.
#[derive(Debug, Default)]
pub struct Times {
    all: Vec<f64>,
    /// The longest of each span in which the computer was there all the time.
    longest: Vec<f64>,
}

impl Times {
    /// The one that so many of a thousand are not above.
    pub fn at(&mut self, per_mille: usize) -> f64 {
        self.all.sort_by(f64::total_cmp);
        let last = self.all.len().saturating_sub(1);
        let at = last * per_mille / 1000;
        self.all.get(at).copied().unwrap_or(0.0)
    }

    /// The longest of those during which the computer was there.
    pub fn longest_calm(&self) -> f64 {
        self.longest.iter().copied().fold(0.0, f64::max)
    }
}

/// The time of all processors that a virtual machine's host has given to others. In ticks; 0 where
/// there is no host.
fn stolen() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    // "cpu", user, nice, system, idle, iowait, irq, softirq, steal.
    let field = stat.split_whitespace().nth(8).context("/proc/stat")?;
    Ok(field.parse()?)
}

/// Tells the spans in which the host took the processors away from the others: a round trip then
/// takes as long as the host likes, with moves or without.
struct Spans {
    begin: Instant,
    stolen: u64,
    /// The longest round trip of the span that lasts.
    longest: f64,
    /// Of the one before: what is stolen at its end is counted a tick later.
    last: Option<f64>,
    /// Of those that count.
    done: Vec<f64>,
}

impl Spans {
    fn new() -> Result<Self> {
        Ok(Spans {
            begin: Instant::now(),
            stolen: stolen()?,
            longest: 0.0,
            last: None,
            done: Vec::new(),
        })
    }

    fn add(&mut self, time: f64) -> Result<()> {
        self.longest = self.longest.max(time);
        if self.begin.elapsed() < SPAN {
            return Ok(());
        }
        let stolen = stolen()?;
        let is_calm = stolen == self.stolen;
        self.done.extend(self.last.take().filter(|_| is_calm));
        self.last = Some(self.longest).filter(|_| is_calm);
        (self.stolen, self.longest, self.begin) = (stolen, 0.0, Instant::now());
        Ok(())
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

/// What happens beside the pair.
#[derive(Debug, Clone, Copy)]
enum Beside {
    /// A task moves.
    Moves,
    /// As many bytes travel between two bare processes on the processor of the moves.
    Bytes,
    Nothing,
}

/// Round trips with moves of a task of so many bytes, with as many bytes that travel alone, and with
/// nothing beside; the hosts by name, those of the pair first. The daemons were pinned.
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
    let memory = vec![1; bytes];
    let mut times = [(); 3].map(|()| Times::default());
    for _ in 0..ROUNDS {
        let mut length = Duration::from_secs(1);
        let all = [Beside::Moves, Beside::Bytes, Beside::Nothing];
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
                Beside::Bytes => {
                    pin(std::process::id(), Some(1))?;
                    for _ in 0..MOVES {
                        sealed::send(&memory)?;
                    }
                    pin(std::process::id(), None)?;
                }
                // As long as the moves took.
                Beside::Nothing => ensure!(
                    vm.recv_timeout(churner, STOP, length)?.is_none(),
                    "it ended"
                ),
            }
            vm.send_bytes(pinger, REPORT, Bytes::new())?;
            for part in [&mut times.all, &mut times.longest] {
                part.extend_from_slice(&vm.recv(pinger, REPORT)?.slice()?);
            }
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
    let round = || -> Result<f64> {
        let begin = Instant::now();
        vm.send_bytes(ponger, PING, ball.clone())?;
        vm.recv(ponger, PING)?;
        Ok(1e6 * begin.elapsed().as_secs_f64())
    };
    loop {
        let order = vm.recv(master, vmlib::ANY)?;
        if order.tag() == STOP {
            return Ok(());
        }
        for _ in 0..WARM {
            round()?;
        }
        let (mut times, mut spans) = (Vec::new(), Spans::new()?);
        while vm.recv_timeout(master, REPORT, Duration::ZERO)?.is_none() {
            let time = round()?;
            times.push(time);
            spans.add(time)?;
        }
        vm.send_slice(master, REPORT, &times)?;
        vm.send_slice(master, REPORT, &spans.done)?;
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
