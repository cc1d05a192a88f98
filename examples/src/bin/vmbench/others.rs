//! What moves cost those that have no part in them: two tasks on one processor exchange 8 bytes
//! through their daemons, while on the other processor a large task moves between two other daemons.
//!
//! Nothing is done to have memory at hand, as before other rows: a virtual machine gives back to its
//! host what lies free, and that alone has everybody wait for tens of milliseconds who needs a page
//! then. For the same reason the pair needs no memory while it measures.

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
/// Round trips of a measurement for which there is memory before it begins.
const TIMES: usize = 1 << 20;
/// Round trips before each measurement that do not count.
const WARM: u32 = 1_000;

/// Round trips in microseconds.
#[derive(Debug, Default)]
pub struct Times(Vec<f64>);

impl Times {
    /// The one that so many of a thousand are not above.
    pub fn at(&mut self, per_mille: usize) -> f64 {
        self.0.sort_by(f64::total_cmp);
        let last = self.0.len().saturating_sub(1);
        let at = last * per_mille / 1000;
        self.0.get(at).copied().unwrap_or(0.0)
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

/// Round trips with moves of a task of so many bytes, and with nothing beside; the hosts by name, those
/// of the pair first. The daemons were pinned.
pub fn measure(vm: &Task, program: &str, hosts: &[String; 4], bytes: usize) -> Result<[Times; 2]> {
    let spawn = |words: &[&str], host: &str| -> Result<Tid> {
        let tids = vm.spawn(&Spawn::new(program).args(words.iter().copied()).on(host))?;
        tids.first().copied().context("no task was started")
    };
    let ponger = spawn(&["ponger"], &hosts[1])?;
    let pinger = spawn(&["pinger"], &hosts[0])?;
    vm.send(pinger, BEGIN, &ponger)?;
    let churner = spawn(&["churner", &bytes.to_string(), "1"], &hosts[2])?;
    vm.recv(churner, crate::ours::ANSWER)?;
    let moves = || -> Result<()> {
        for host in [&hosts[3], &hosts[2]].into_iter().cycle().take(MOVES) {
            vm.move_task(churner, Some(host))?;
        }
        Ok(())
    };
    let mut times = [(); 2].map(|()| Times::default());
    for _ in 0..ROUNDS {
        let mut length = Duration::ZERO;
        for (has_moves, times) in [true, false].into_iter().zip(&mut times) {
            vm.send_bytes(pinger, BEGIN, Bytes::new())?;
            let begin = Instant::now();
            if has_moves {
                moves()?;
                length = begin.elapsed();
            } else {
                // As long as the moves took.
                let ended = vm.recv_timeout(churner, STOP, length)?;
                ensure!(ended.is_none(), "it ended");
            }
            vm.send_bytes(pinger, REPORT, Bytes::new())?;
            let measured = vm.recv(pinger, REPORT)?;
            times.0.extend_from_slice(&measured.slice()?);
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
        // Memory that is there already.
        let mut times = vec![1.0; TIMES];
        times.clear();
        while vm.recv_timeout(master, REPORT, Duration::ZERO)?.is_none() {
            times.push(round()?);
        }
        vm.send_slice(master, REPORT, &times)?;
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
