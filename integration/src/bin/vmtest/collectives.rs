//! Members of a group that make every collective call, and check every value.

use super::shared::{RESULT, STOP, host_names, me};
use anyhow::{Context, ensure};
use vmlib::{Bytes, Group, Op, Operands, Task};

/// Lengths of the values: few, more than a segment, many segments.
const LENGTHS: [usize; 3] = [3, 10_000, 30_000];

/// `count` members on all hosts make collective calls until a line comes on standard input.
pub fn collectives(vm: &Task, count: u64) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let member = me(&["collectives-member", &count.to_string()])?;
    let members = vm.spawn(&member.count(count as u32).on_each(hosts))?;
    std::io::stdin().read_line(&mut String::new())?;
    vm.multicast(&members, STOP, &())?;
    let mut rounds = Vec::new();
    for member in members {
        rounds.push(vm.recv(member, RESULT)?.value::<u64>()?);
    }
    let all = rounds[0];
    ensure!(rounds.iter().all(|rounds| *rounds == all), "{rounds:?}");
    println!("collectives: {all} rounds, every value right");
    Ok(())
}

pub fn collectives_member(vm: &Task, count: u64) -> anyhow::Result<()> {
    let parent = vm.parent().context("a member has a parent")?;
    let mut group = vm.join("collectives")?;
    vm.await_members(&mut group, count as usize)?;
    let mut rounds = 0u64;
    loop {
        let root = (rounds % count) as u32;
        // The calls stop at all members in the same round.
        let mut done = group.instance() == root && vm.probe(parent, STOP)?.is_some();
        vm.broadcast(&group, root, &mut done)?;
        if done {
            break;
        }
        let length = LENGTHS[(rounds % LENGTHS.len() as u64) as usize];
        round(vm, &group, rounds, root, length).with_context(|| format!("round {rounds}"))?;
        vm.barrier(&mut group)?;
        rounds += 1;
    }
    Ok(vm.send(parent, RESULT, &rounds)?)
}

fn values(instance: u32, round: u64, length: usize) -> Vec<u64> {
    let first = u64::from(instance) + round * 1_000;
    (first..first + length as u64).collect()
}

fn round(vm: &Task, group: &Group, round: u64, root: u32, length: usize) -> anyhow::Result<()> {
    let (me, n) = (group.instance(), group.size() as u32);
    let own = values(me, round, length);
    let of = |instance| values(instance, round, length);
    let sum_to = |end: u32| {
        let mut sum = vec![0u64; length];
        for instance in 0..end {
            let values = of(instance);
            sum.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum += value);
        }
        sum
    };
    let all: Vec<u64> = (0..n).flat_map(of).collect();
    let is_root = me == root;

    let mut given = own.clone();
    vm.broadcast_slice(group, root, &mut given)?;
    ensure!(given == of(root), "broadcast");
    let bytes = Bytes::from(vec![me as u8; length]);
    ensure!(
        vm.broadcast_bytes(group, root, bytes)? == vec![root as u8; length],
        "broadcast of bytes"
    );

    let reduced = vm.reduce(group, root, Op::Sum, &own)?;
    ensure!(reduced == is_root.then(|| sum_to(n)), "reduce");
    ensure!(
        vm.allreduce(group, Op::Sum, &own)? == sum_to(n),
        "allreduce"
    );
    let last = vm.allreduce_by(group, Operands::ByInstance, &own, |_, last| last)?;
    ensure!(last == of(n - 1), "allreduce in order");
    let greatest = vm.max_with_place(group, &own[..1])?;
    ensure!(greatest == [(of(n - 1)[0], n - 1)], "greatest");
    ensure!(vm.scan(group, Op::Sum, &own)? == sum_to(me + 1), "scan");
    let below = vm.exclusive_scan(group, Op::Sum, &own)?;
    ensure!(below == (me > 0).then(|| sum_to(me)), "exclusive scan");

    let gathered = vm.gather(group, root, &own)?;
    ensure!(gathered == is_root.then(|| all.clone()), "gather");
    let scattered = vm.scatter(group, root, if is_root { &all } else { &[] })?;
    ensure!(scattered == own, "scatter");
    ensure!(vm.allgather(group, &own)? == all, "allgather");
    let blocks: Vec<u64> = (0..n).flat_map(|to| of(me + 10 * to)).collect();
    let received: Vec<u64> = (0..n).flat_map(|from| of(from + 10 * me)).collect();
    ensure!(vm.alltoall(group, &blocks)? == received, "alltoall");

    let part = |instance: u32| of(instance)[..length * instance as usize / n as usize].to_vec();
    let lists: Vec<Vec<u64>> = (0..n).map(part).collect();
    let gathered = vm.gatherv(group, root, &part(me))?;
    ensure!(gathered == is_root.then(|| lists.clone()), "gatherv");
    ensure!(vm.allgatherv(group, &part(me))? == lists, "allgatherv");
    let scattered = vm.scatterv(group, root, if is_root { &lists } else { &[] })?;
    ensure!(scattered == part(me), "scatterv");
    let exchanged = vm.alltoallv(group, &lists)?;
    ensure!(exchanged == vec![part(me); n as usize], "alltoallv");
    Ok(())
}
