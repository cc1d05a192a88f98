//! The machine's side: a partner task on each host, which replies.

use crate::{
    others::{self, Others},
    plans::{Hosts, Plan, What},
    sealed,
    tags::{ANSWER, ECHO, FLUSH, STOP, TAKE},
    waiting,
};
use anyhow::{Context, Result, bail, ensure};
use std::time::{Duration, Instant};
use vmlib::{ANY, Bytes, MoveReport, MoveWay, Spawn, Task, Tid};

/// The measuring task and its partners.
pub struct Ours {
    vm: Task,
    program: String,
    near: Partner,
    far: Partner,
}

/// A partner on a host of that name.
struct Partner {
    tid: Tid,
    host: String,
}

impl Ours {
    /// Starts a partner on this host and one on another.
    pub fn start(vm: Task) -> Result<Self> {
        let program = std::env::current_exe()?;
        let program = program
            .to_str()
            .context("the path of this program is not UTF-8")?
            .to_owned();
        let partner = |is_near: bool| {
            let hosts = vm.hosts()?;
            let host = hosts
                .into_iter()
                .find(|host| (host.id == vm.host()) == is_near);
            let host = host.context("it takes two hosts")?.facts.name;
            let tids = vm.spawn(&Spawn::new(&program).arg("partner").on(&host))?;
            let tid = *tids.first().context("no partner was started")?;
            anyhow::Ok(Partner { tid, host })
        };
        let (near, far) = (partner(true)?, partner(false)?);
        Ok(Ours {
            vm,
            program,
            near,
            far,
        })
    }

    /// Runs one turn of a row.
    pub fn run(&self, plan: &Plan) -> Result<()> {
        let vm = &self.vm;
        let Partner { tid: partner, host } = match plan.hosts {
            Hosts::One => &self.near,
            Hosts::Two | Hosts::TwoPlain => &self.far,
        };
        match plan.what {
            What::RoundTrip | What::SealedRoundTrip => {
                let body = Bytes::from(vec![0; plan.size]);
                for _ in 0..plan.count {
                    vm.send_bytes(*partner, ECHO, body.clone())?;
                    let answer = vm.recv(*partner, ANSWER)?;
                    ensure!(
                        answer.len() == plan.size,
                        "an answer of {} bytes",
                        answer.len()
                    );
                }
            }
            What::Stream => {
                let body = Bytes::from(vec![0; plan.size]);
                for _ in 0..plan.count {
                    vm.send_bytes(*partner, TAKE, body.clone())?;
                }
                vm.send_bytes(*partner, FLUSH, Bytes::new())?;
                vm.recv(*partner, ANSWER)?;
            }
            What::Freeze { .. } | What::Move | What::Others(_) => {
                bail!("moves are measured by themselves")
            }
            What::Waiting | What::IdlePair | What::ManyTasks => {
                bail!("tasks that wait are measured by themselves")
            }
            What::Saved(_) => bail!("checkpoints are measured from outside"),
            What::Spawn => {
                let greeters = Spawn::new(&self.program).arg("greeter").on(host);
                let greeters = vm.spawn(&greeters.count(plan.count as u32))?;
                for greeter in greeters {
                    vm.recv(greeter, ANSWER)?;
                }
            }
        }
        Ok(())
    }

    /// Moves a task with `bytes` bytes of memory there and back, a number of times, and calls
    /// `with` between the moves. The first move does not count.
    pub fn moves(
        &self,
        bytes: usize,
        percent: u64,
        way: MoveWay,
        moves: u32,
        mut with: impl FnMut() -> Result<()>,
    ) -> Result<Vec<MoveReport>> {
        let vm = &self.vm;
        let churner = Spawn::new(&self.program).args(["churner".to_owned(), bytes.to_string()]);
        let churner = churner.arg(percent.to_string()).on(&self.near.host);
        let tids = vm.spawn(&churner)?;
        let tid = *tids.first().context("no task was started")?;
        vm.recv(tid, ANSWER)?;
        let there_and_back = [&self.far.host, &self.near.host];
        let to = there_and_back.iter().cycle().take(moves as usize + 1);
        let mut reports = Vec::new();
        for host in to {
            sealed::find_memory(bytes)?;
            reports.push(vm.move_task_by(tid, Some(host), way)?);
            with()?;
        }
        vm.send_bytes(tid, STOP, Bytes::new())?;
        vm.recv(tid, ANSWER)?;
        reports.remove(0);
        Ok(reports)
    }

    /// The cost of moves of a task of `bytes` bytes for other tasks: see [`others::measure`]. The
    /// daemons' processes are pinned meanwhile, the first two to one processor, the others and this
    /// process to another.
    pub fn others(&self, bytes: usize, daemons: &[u32]) -> Result<Others> {
        ensure!(daemons.len() == 4, "it takes four hosts");
        let mut hosts = self.vm.hosts()?;
        hosts.sort_by_key(|host| host.facts.name.clone());
        let names: Vec<String> = hosts.into_iter().map(|host| host.facts.name).collect();
        let names = names.first_chunk().context("it takes four hosts")?;
        let processes = || daemons.iter().copied().chain([std::process::id()]);
        for (index, process) in processes().enumerate() {
            others::pin(process, Some(usize::from(index >= 2)))?;
        }
        let measured = others::measure(&self.vm, &self.program, names, bytes);
        for process in processes() {
            others::pin(process, None)?;
        }
        measured
    }

    /// The figure of a row about tasks that wait, or about memory, on this host.
    pub fn waiting(&self, plan: &Plan) -> Result<f64> {
        let (vm, program, host) = (&self.vm, &self.program, &self.near.host);
        match plan.what {
            What::Waiting => waiting::processor_time(vm, program, host, plan.count),
            What::IdlePair => waiting::of_idle_pair(vm, program, host),
            _ => waiting::of_many(vm, program, host, plan.count),
        }
    }

    /// Sends the partners the message that ends them.
    pub fn stop(self) -> Result<()> {
        self.vm
            .multicast_bytes(&[self.near.tid, self.far.tid], STOP, Bytes::new())?;
        Ok(())
    }
}

/// A task that replies until it is told to stop.
pub fn partner() -> Result<()> {
    let vm = vmlib::init()?;
    let master = vm.parent().context("a partner is spawned, not run")?;
    loop {
        let message = vm.recv(master, ANY)?;
        match message.tag() {
            ECHO => vm.send_bytes(master, ANSWER, message.into_bytes())?,
            TAKE => {}
            FLUSH => vm.send_bytes(master, ANSWER, Bytes::new())?,
            STOP => return Ok(()),
            tag => bail!("an unknown tag {tag}"),
        }
    }
}

/// A task that rewrites some of its memory, page after page, until it is told to stop. If `tells`,
/// it reports after each restart that it computes again and that its memory is whole.
pub fn churner(bytes: usize, percent: u64, tells: bool) -> Result<()> {
    const WORDS: usize = 512;
    /// The stride is large, so that neighbouring pages are seldom rewritten one after the other.
    const STRIDE: usize = 7919;
    let vm = vmlib::init()?;
    let master = vm.parent().context("a churner is spawned, not run")?;
    let mut memory: Vec<u64> = (1..=(bytes / 8) as u64).collect();
    let pages = memory.len() / WORDS;
    vm.send_bytes(master, ANSWER, Bytes::new())?;
    let (start, mut done, mut page) = (Instant::now(), 0, 0);
    // A restored task has another process number.
    let mut process = std::process::id();
    while vm
        .recv_timeout(master, STOP, Duration::from_millis(5))?
        .is_none()
    {
        let due = start.elapsed().as_micros() as u64 * pages as u64 * percent / 100_000_000;
        while done < due {
            page = (page + STRIDE) % pages;
            memory[page * WORDS..][..WORDS].fill(due | 1);
            done += 1;
        }
        if tells && process != std::process::id() {
            process = std::process::id();
            ensure!(memory.iter().all(|word| *word != 0), "memory was lost");
            vm.send_bytes(master, ANSWER, Bytes::new())?;
        }
    }
    ensure!(memory.iter().all(|word| *word != 0), "memory was lost");
    vm.send_bytes(master, ANSWER, Bytes::new())?;
    Ok(())
}

/// A task that reports its start, and ends.
pub fn greeter() -> Result<()> {
    let vm = vmlib::init()?;
    let master = vm.parent().context("a greeter is spawned, not run")?;
    vm.send_bytes(master, ANSWER, Bytes::new())?;
    Ok(())
}
