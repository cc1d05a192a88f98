//! The cost of tasks that wait, and of the memory that tasks of one host share: three rows, each of an
//! application's tasks on the host of the measuring task.
//!
//! The tasks stand in a circle, and each exchanges small messages with as many neighbours on both
//! sides. They say when they have done so for a while, and then either wait for a message that does
//! not come, or go on. The measuring task reads `/proc`.

use crate::tags::{ANSWER, STOP};
use anyhow::{Context, Result, ensure};
use std::{
    fs, thread,
    time::{Duration, Instant},
};
use vmlib::{Bytes, Spawn, Task, Tid};

/// Messages between neighbours.
const HELLO: i32 = 7;
/// From the measuring task: begin.
const BEGIN: i32 = 8;
/// Rounds of messages before a task says that it is ready: enough for shared memory with each
/// neighbour.
const ROUNDS: u32 = 24;
/// Pause between two rounds of a task that goes on.
const PAUSE: Duration = Duration::from_millis(200);
/// A task may use the processor for so long after its last message.
const SETTLES: Duration = Duration::from_secs(1);
/// How long the processor time of waiting tasks is measured: longer than the library's longest timer.
const MEASURED: Duration = Duration::from_secs(10);
/// How long after its last message the memory of a pair is measured.
const UNUSED: Duration = Duration::from_secs(10);
/// The name of shared memory in `/proc/PID/smaps`.
const RING: &str = "/memfd:vm-ring";
const KIB: f64 = 1024.0;

/// Activity of the tasks once they are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// They wait for a message.
    Wait,
    /// They exchange messages from time to time.
    GoOn,
}

/// Tasks in a circle.
struct Circle {
    tasks: Vec<Tid>,
    pids: Vec<u32>,
}

/// The microseconds of processor time that a waiting task of `count` uses in a second.
pub fn processor_time(vm: &Task, program: &str, host: &str, count: usize) -> Result<f64> {
    let circle = Circle::start(vm, (program, host), count, 1, Then::Wait)?;
    thread::sleep(SETTLES);
    let before = circle.processor_ns()?;
    let begin = Instant::now();
    thread::sleep(MEASURED);
    let used = circle.processor_ns()? - before;
    let seconds = begin.elapsed().as_secs_f64();
    circle.stop(vm)?;
    Ok(used as f64 / 1000.0 / seconds / count as f64)
}

/// The memory that two tasks share some time after their last message. KiB.
pub fn of_idle_pair(vm: &Task, program: &str, host: &str) -> Result<f64> {
    let circle = Circle::start(vm, (program, host), 2, 1, Then::Wait)?;
    ensure!(circle.shared()? > 0.0, "the tasks have shared no memory");
    thread::sleep(UNUSED);
    let shared = circle.shared()?;
    circle.stop(vm)?;
    Ok(shared)
}

/// The memory of `count` tasks of which each exchanges messages with eight others: their own, and
/// what they share, once. KiB.
pub fn of_many(vm: &Task, program: &str, host: &str, count: usize) -> Result<f64> {
    let circle = Circle::start(vm, (program, host), count, 4, Then::GoOn)?;
    let mut own = 0.0;
    for pid in &circle.pids {
        own += mappings(*pid)?.iter().map(Mapping::own).sum::<f64>();
    }
    let shared = circle.shared()?;
    eprintln!(
        "{count} tasks: {:.0} MiB of their own, {:.0} MiB shared",
        own / KIB,
        shared / KIB
    );
    circle.stop(vm)?;
    Ok(own + shared)
}

impl Circle {
    /// Starts `count` tasks on a host, and waits until all are ready.
    fn start(
        vm: &Task,
        (program, host): (&str, &str),
        count: usize,
        reach: usize,
        then: Then,
    ) -> Result<Self> {
        let goes_on = (then == Then::GoOn).then(|| "--goes-on".to_owned());
        let words = ["waiter".to_owned(), reach.to_string()];
        let spawn = Spawn::new(program).args(words.into_iter().chain(goes_on));
        let tasks = vm.spawn(&spawn.count(count as u32).on(host))?;
        vm.multicast_bytes(&tasks, BEGIN, Bytes::new())?;
        let pid = |task: &Tid| Ok(vm.recv(*task, ANSWER)?.value::<u32>()?);
        let pids = tasks.iter().map(pid).collect::<Result<_>>()?;
        Ok(Circle { tasks, pids })
    }

    /// The processor time of all tasks so far. Nanoseconds.
    fn processor_ns(&self) -> Result<u64> {
        let mut all = 0;
        for pid in &self.pids {
            for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
                let times = fs::read_to_string(thread?.path().join("schedstat"))?;
                let used = times.split(' ').next().context("the time of a thread")?;
                all += used.parse::<u64>()?;
            }
        }
        Ok(all)
    }

    /// The memory that the tasks share, each piece once. KiB.
    fn shared(&self) -> Result<f64> {
        let mut all = 0.0;
        for pid in &self.pids {
            // Two tasks have mapped each piece.
            all += mappings(*pid)?.iter().map(Mapping::shared).sum::<f64>() / 2.0;
        }
        Ok(all)
    }

    /// Ends the tasks.
    fn stop(self, vm: &Task) -> Result<()> {
        vm.multicast_bytes(&self.tasks, STOP, Bytes::new())?;
        Ok(())
    }
}

/// A mapping of a process.
#[derive(Debug, Default, PartialEq)]
struct Mapping {
    is_ring: bool,
    /// Its size, and the process's part of the memory that is in use. KiB.
    size: f64,
    part: f64,
}

impl Mapping {
    fn own(&self) -> f64 {
        if self.is_ring { 0.0 } else { self.part }
    }

    fn shared(&self) -> f64 {
        if self.is_ring { self.size } else { 0.0 }
    }
}

/// The mappings of a process.
fn mappings(pid: u32) -> Result<Vec<Mapping>> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    Ok(read(&text))
}

fn read(smaps: &str) -> Vec<Mapping> {
    let kib = |text: &str| {
        let number = text.trim().strip_suffix(" kB")?;
        number.parse::<f64>().ok()
    };
    let mut found: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        if key.contains('-') {
            let is_ring = line.contains(RING);
            found.push(Mapping {
                is_ring,
                ..Mapping::default()
            });
        }
        let Some(last) = found.last_mut() else {
            continue;
        };
        match key {
            "Size" => last.size = kib(value).unwrap_or(0.0),
            "Pss" => last.part = kib(value).unwrap_or(0.0),
            _ => {}
        }
    }
    found
}

/// A task of a circle.
pub fn waiter(reach: usize, goes_on: bool) -> Result<()> {
    let vm = vmlib::init()?;
    let master = vm.parent().context("a waiter is spawned, not run")?;
    let all = vm.siblings()?;
    let me = vm.index() as usize;
    let steps = (1..=reach).flat_map(|step| [step, all.len() - step]);
    let mut neighbours: Vec<Tid> = steps.map(|step| all[(me + step) % all.len()]).collect();
    neighbours.sort();
    neighbours.dedup();
    vm.recv(master, BEGIN)?;
    for _ in 0..ROUNDS {
        vm.multicast_bytes(&neighbours, HELLO, Bytes::from_static(b"neighbour"))?;
        for neighbour in &neighbours {
            vm.recv(*neighbour, HELLO)?;
        }
    }
    vm.send(master, ANSWER, &std::process::id())?;
    if !goes_on {
        vm.recv(master, STOP)?;
        return Ok(());
    }
    while vm.recv_timeout(master, STOP, PAUSE)?.is_none() {
        vm.multicast_bytes(&neighbours, HELLO, Bytes::from_static(b"neighbour"))?;
        for neighbour in &neighbours {
            while vm.try_recv(*neighbour, HELLO)?.is_some() {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_told_apart_from_a_process_s_own() {
        let smaps = "\
7f00-7f10 rw-s 00000000 00:01 2050   /memfd:vm-ring (deleted)
Size:                392 kB
Pss:                  10 kB
Pss_Dirty:            10 kB
7f20-7f30 rw-p 00000000 00:00 0
Size:                 64 kB
Pss:                   8 kB
VmFlags: rd wr mr
";
        let found = read(smaps);
        let sums = [Mapping::shared, Mapping::own].map(|of| found.iter().map(of).sum::<f64>());
        assert_eq!(sums, [392.0, 8.0]);
    }
}
