//! Our side: the works as tasks of vmlib.
//!
//! A master starts the tasks and prints the result of the first of them. Each task does the work
//! once to warm up, with a tenth of the operations, and once to be measured, as `mpi.c` does.

use super::works::{Kind, Work};
use anyhow::{Context, Result};
use std::time::Instant;
use vmlib::{Bytes, Group, Op, Spawn, Task, Tid};

/// A message of a work.
const MESSAGE: i32 = 1;
/// To the master: the microseconds of an operation.
const MEASURED: i32 = 2;
/// From the master: all tasks have measured.
const STOP: i32 = 3;

/// The work of the master.
pub fn master(kind: Kind, bytes: usize, count: usize, tasks: u32) -> Result<()> {
    let vm = vmlib::init()?;
    let program = std::env::current_exe()?;
    let program = program.to_str().context("this program's path")?;
    let words = [kind.word(), &bytes.to_string(), &count.to_string()];
    let spawn = Spawn::new(program).arg("member").args(words);
    let members = vm.spawn(&spawn.count(tasks))?;
    let mut all = Vec::new();
    for member in &members {
        all.push(vm.recv(*member, MEASURED)?.value::<f64>()?);
    }
    vm.multicast_bytes(&members, STOP, Bytes::new())?;
    let micros = *all.first().context("no task was started")?;
    println!("{}", Work::result(kind, all.len(), bytes, count, micros));
    Ok(())
}

/// The work of the tasks.
pub fn member(kind: Kind, bytes: usize, count: usize) -> Result<()> {
    let vm = vmlib::init()?;
    let master = vm.parent().context("a member is spawned, not run")?;
    let mut member = Member::new(vm, bytes)?;
    member.run(kind, count / 10 + 1)?;
    member.vm.barrier(&mut member.group)?;
    let begin = Instant::now();
    member.run(kind, count)?;
    let micros = 1e6 * begin.elapsed().as_secs_f64() / count as f64;
    member.vm.send(master, MEASURED, &micros)?;
    // A task that ended would leave the group while others still wait in it.
    member.vm.recv(master, STOP)?;
    Ok(())
}

/// A task of a work.
struct Member {
    vm: Task,
    group: Group,
    all: Vec<Tid>,
    me: usize,
    body: Bytes,
}

impl Member {
    fn new(vm: Task, bytes: usize) -> Result<Self> {
        let all = vm.siblings()?;
        let mut group = vm.join(&format!("vmbench-{}", vm.app()))?;
        vm.await_members(&mut group, all.len())?;
        Ok(Member {
            me: vm.index() as usize,
            vm,
            group,
            all,
            body: Bytes::from(vec![0; bytes]),
        })
    }

    /// Does the operations of a work.
    fn run(&mut self, kind: Kind, count: usize) -> Result<()> {
        match kind {
            Kind::RoundTrip | Kind::Ring => (0..count).try_for_each(|_| self.pass()),
            Kind::Rate => self.stream(count),
            Kind::Barrier => {
                for _ in 0..count {
                    self.vm.barrier(&mut self.group)?;
                }
                Ok(())
            }
            Kind::Broadcast => self.broadcast(count),
            Kind::Allreduce => self.allreduce(count),
            Kind::AllToAll => self.all_to_all(count),
        }
    }

    /// Sends a message through all tasks, from the first and back to it.
    fn pass(&self) -> Result<()> {
        let (next, before) = (self.neighbour(1), self.neighbour(self.all.len() - 1));
        if self.me == 0 {
            self.vm.send_bytes(next, MESSAGE, self.body.clone())?;
            self.vm.recv(before, MESSAGE)?;
        } else {
            let message = self.vm.recv(before, MESSAGE)?;
            self.vm.send_bytes(next, MESSAGE, message.into_bytes())?;
        }
        Ok(())
    }

    fn stream(&self, count: usize) -> Result<()> {
        let other = self.neighbour(1);
        if self.me == 0 {
            for _ in 0..count {
                self.vm.send_bytes(other, MESSAGE, self.body.clone())?;
            }
            self.vm.recv(other, MESSAGE)?;
        } else {
            for _ in 0..count {
                self.vm.recv(other, MESSAGE)?;
            }
            self.vm.send_bytes(other, MESSAGE, Bytes::new())?;
        }
        Ok(())
    }

    /// One barrier at the end: the time counts until every task has all messages.
    fn broadcast(&mut self, count: usize) -> Result<()> {
        // Instances follow the order in which the tasks joined.
        let root = self.group.members().instance(self.all[0]);
        let root = root.context("the first task is not in the group")?;
        for _ in 0..count {
            self.vm
                .broadcast_bytes(&self.group, root, self.body.clone())?;
        }
        Ok(self.vm.barrier(&mut self.group)?)
    }

    fn allreduce(&self, count: usize) -> Result<()> {
        let mut numbers = vec![0.0f64; self.body.len() / size_of::<f64>()];
        for _ in 0..count {
            self.vm
                .allreduce_in_place(&self.group, Op::Sum, &mut numbers)?;
        }
        Ok(())
    }

    fn all_to_all(&self, count: usize) -> Result<()> {
        let blocks = self.body.repeat(self.all.len());
        for _ in 0..count {
            self.vm.alltoall(&self.group, &blocks)?;
        }
        Ok(())
    }

    /// The task `distance` after this one, in a ring.
    fn neighbour(&self, distance: usize) -> Tid {
        self.all[(self.me + distance) % self.all.len()]
    }
}
