//! The cost of moves for tasks that take no part in them: two tasks on one processor exchange 8
//! bytes through their daemons, while on the other processor a large task moves between two other
//! daemons.
//!
//! A virtual machine gives memory that is free for some seconds back to its host, and a task that
//! has left frees all its memory. While the host takes the memory, all processors of the virtual
//! machine may compute at a fraction of their speed, for tens of milliseconds, whichever process
//! had used the memory. So the longest round trip with moves is taken over the moves and some
//! seconds after each. It is compared with the effect of the computer itself: the longest round
//! trip while a plain process uses as much memory and ends, and for as long after it. That longest
//! round trip is also a row of its own, compared with a pair that is alone, without a goal. From
//! the first move on each round trip counts in one of the rows. No memory is allocated in advance
//! of a move, as in other rows, and the pair needs none while it measures.

use crate::{sealed, tags};
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

/// To the pinger: begin, with this partner.
const BEGIN: i32 = 1;
/// To the pinger: report the round trips since the last report. From the pinger: the report.
const REPORT: i32 = 2;
/// To the pinger or the ponger: end.
const STOP: i32 = 3;
/// Messages between pinger and ponger.
const PING: i32 = 4;
/// Size of each message. Bytes.
const SIZE: usize = 8;

/// Number of moves. After each the pair is alone for as long as the measurement with the move took,
/// and then beside a process.
const MOVES: usize = 10;
/// How long is measured after a move, and after the end of a process; and the wait before the first
/// move, because other rows may have freed more memory. A virtual machine that was observed gives
/// back some 384 MiB in two seconds.
const SETTLED: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_secs(40);
/// Round trips between two reports for which memory is allocated before the first.
const TIMES: usize = 1 << 20;

/// Round trips in microseconds.
#[derive(Debug, Default)]
pub struct Times(Vec<f64>);

impl Times {
    /// The time that `per_mille` of a thousand round trips do not exceed.
    pub fn at(&mut self, per_mille: usize) -> f64 {
        self.0.sort_by(f64::total_cmp);
        let last = self.0.len().saturating_sub(1);
        let at = last * per_mille / 1000;
        self.0.get(at).copied().unwrap_or(0.0)
    }
}

/// All round trips of the measurement.
#[derive(Debug, Default)]
pub struct Others {
    moves: Times,
    /// Round trips in some seconds after each move.
    after: Times,
    /// Round trips with no move and no process beside the pair.
    quiet: Times,
    /// Round trips beside a plain process, and in some seconds after its end.
    process: Times,
}

impl Others {
    /// The time that `per_mille` of a thousand round trips do not exceed, with moves and with
    /// nothing beside. For the longest, the time after the moves counts, too, and is compared with
    /// the longest beside processes. Elsewhere the time after the moves is left out, because it
    /// would hide their effect.
    pub fn at(&mut self, per_mille: usize) -> [f64; 2] {
        let moves = self.moves.at(per_mille);
        match per_mille {
            1000 => [
                moves.max(self.after.at(per_mille)),
                self.process.at(per_mille),
            ],
            _ => [moves, self.quiet.at(per_mille)],
        }
    }

    /// The longest beside processes and after their ends, and the longest with nothing beside.
    pub fn processes(&mut self) -> [f64; 2] {
        [&mut self.process, &mut self.quiet].map(|times| times.at(1000))
    }
}

/// Pins every thread of a process to one processor, together with what it starts from now on; or
/// unpins it.
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

/// Measures round trips with moves of a task of `bytes` bytes, and with nothing beside. `hosts` has
/// the names of the hosts, those of the pair first. The daemons must be pinned.
pub fn measure(vm: &Task, program: &str, hosts: &[String; 4], bytes: usize) -> Result<Others> {
    let spawn = |words: &[&str], host: &str| -> Result<Tid> {
        let tids = vm.spawn(&Spawn::new(program).args(words.iter().copied()).on(host))?;
        tids.first().copied().context("no task was started")
    };
    let ponger = spawn(&["ponger"], &hosts[1])?;
    let pinger = spawn(&["pinger"], &hosts[0])?;
    vm.send(pinger, BEGIN, &ponger)?;
    let churner = spawn(&["churner", &bytes.to_string(), "1"], &hosts[2])?;
    vm.recv(churner, tags::ANSWER)?;
    let wait = |time: Duration| -> Result<()> {
        let ended = vm.recv_timeout(churner, STOP, time)?;
        ensure!(ended.is_none(), "it ended");
        Ok(())
    };
    let report = |times: &mut Times| -> Result<()> {
        vm.send_bytes(pinger, REPORT, Bytes::new())?;
        let measured = vm.recv(pinger, REPORT)?;
        times.0.extend_from_slice(&measured.slice()?);
        Ok(())
    };
    wait(FIRST)?;
    report(&mut Times::default())?;
    let mut others = Others::default();
    let there_and_back = [&hosts[3], &hosts[2]];
    for host in there_and_back.into_iter().cycle().take(MOVES) {
        let begin = Instant::now();
        vm.move_task(churner, Some(host))?;
        report(&mut others.moves)?;
        wait(SETTLED)?;
        report(&mut others.after)?;
        wait(begin.elapsed())?;
        report(&mut others.quiet)?;
        sealed::use_memory(bytes)?;
        wait(SETTLED)?;
        report(&mut others.process)?;
    }
    // The pinger may wait for a reply, so it ends first and then stops the ponger.
    vm.send_bytes(pinger, STOP, Bytes::new())?;
    vm.send_bytes(churner, tags::STOP, Bytes::new())?;
    vm.recv(churner, tags::ANSWER)?;
    Ok(others)
}

/// A task that exchanges messages with another, and measures the round trips.
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
    // The memory is allocated here, before the measurement.
    let mut times = vec![1.0; TIMES];
    times.clear();
    loop {
        if let Some(order) = vm.recv_timeout(master, vmlib::ANY, Duration::ZERO)? {
            if order.tag() == STOP {
                vm.send_bytes(ponger, STOP, Bytes::new())?;
                return Ok(());
            }
            vm.send_slice(master, REPORT, &times)?;
            times.clear();
        }
        times.push(round()?);
    }
}

/// A task that replies to the pinger.
pub fn ponger() -> Result<()> {
    let vm = vmlib::init()?;
    loop {
        let message = vm.recv(vmlib::ANY, vmlib::ANY)?;
        if message.tag() == STOP {
            return Ok(());
        }
        vm.send_bytes(message.from(), PING, message.into_bytes())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beside_moves_is_compared_with_the_longest_beside_processes() {
        let mut others = Others {
            moves: Times(vec![1.0, 2.0, 7.0]),
            after: Times(vec![1.0, 20.0]),
            quiet: Times(vec![1.0, 3.0, 4.0]),
            process: Times(vec![19.0, 1.0]),
        };
        assert_eq!(others.at(1000), [20.0, 19.0]);
        assert_eq!(others.at(500), [2.0, 3.0]);
        assert_eq!(others.processes(), [19.0, 4.0]);
    }
}
