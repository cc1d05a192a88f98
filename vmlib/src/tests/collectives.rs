//! Collective calls: their results for many numbers of members, lengths and types.

use super::members::run;
use crate::{Group, GroupError, Number, Op, Operands, Task};
use bytes::Bytes;
use std::fmt::Debug;

/// Lengths that select every algorithm: none, few, a segment and more, many segments.
const LENGTHS: [usize; 6] = [0, 1, 7, 1_000, 5_000, 20_011];

fn value(instance: usize, place: usize) -> u64 {
    (instance as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (place as u64 * 77)
}

fn values(instance: usize, len: usize) -> Vec<u64> {
    (0..len).map(|place| value(instance, place)).collect()
}

/// The values of the instances `of`, combined in their order.
fn combined<T: Copy>(
    of: impl IntoIterator<Item = usize>,
    own: impl Fn(usize) -> Vec<T>,
    operation: impl Fn(T, T) -> T,
) -> Vec<T> {
    let lists = of.into_iter().map(own);
    let combine = |one: Vec<T>, other: Vec<T>| {
        let pairs = one.into_iter().zip(other);
        pairs.map(|(one, other)| operation(one, other)).collect()
    };
    lists.reduce(combine).unwrap()
}

/// An affine map of 32-bit numbers, packed: composition is associative, and not commutative.
fn compose(one: u64, other: u64) -> u64 {
    let parts = |map: u64| ((map >> 32) as u32, map as u32);
    let ((a, b), (c, d)) = (parts(one), parts(other));
    let (factor, rest) = (a.wrapping_mul(c), b.wrapping_mul(c).wrapping_add(d));
    u64::from(factor) << 32 | u64::from(rest)
}

fn with_all_sizes(member: impl Fn(&Task, &Group, usize, usize) + Send + Sync + Clone + 'static) {
    for n in 1..=9 {
        let member = member.clone();
        run(n, move |task, group| {
            let me = group.instance() as usize;
            member(&task, &group, n, me);
        });
    }
}

#[test]
fn one_members_value_reaches_all() {
    with_all_sizes(|task, group, n, me| {
        for len in LENGTHS.into_iter().chain([100_000]) {
            let root = len % n;
            let mut numbers = values(me, len);
            task.broadcast_slice(group, root as u32, &mut numbers)
                .unwrap();
            assert_eq!(numbers, values(root, len));
            let bytes = vec![me as u8; len * 8];
            let bytes = task.broadcast_bytes(group, root as u32, bytes).unwrap();
            assert_eq!(bytes, vec![root as u8; len * 8]);
        }
        let mut text = format!("of {me}");
        task.broadcast(group, n as u32 - 1, &mut text).unwrap();
        assert_eq!(text, format!("of {}", n - 1));
    });
}

#[test]
fn the_values_of_all_are_combined_for_one_and_for_all() {
    with_all_sizes(|task, group, n, me| {
        for len in LENGTHS {
            let own = values(me, len);
            let sum = combined(0..n, |i| values(i, len), u64::wrapping_add);
            let root = len % n;
            let one = task.reduce(group, root as u32, Op::Sum, &own).unwrap();
            assert_eq!(one, (me == root).then(|| sum.clone()));
            assert_eq!(task.allreduce(group, Op::Sum, &own).unwrap(), sum);
            let mut replaced = own.clone();
            task.allreduce_in_place(group, Op::Sum, &mut replaced)
                .unwrap();
            assert_eq!(replaced, sum);
        }
    });
}

#[test]
fn an_own_operation_that_is_not_commutative_gets_its_operands_by_instance() {
    with_all_sizes(|task, group, n, me| {
        for len in LENGTHS {
            let own = values(me, len);
            let all = combined(0..n, |i| values(i, len), compose);
            let by = Operands::ByInstance;
            for root in [0, n / 2, n - 1] {
                let one = task.reduce_by(group, root as u32, by, &own, compose);
                assert_eq!(one.unwrap(), (me == root).then(|| all.clone()));
            }
            assert_eq!(task.allreduce_by(group, by, &own, compose).unwrap(), all);
            let lower = combined(0..=me, |i| values(i, len), compose);
            assert_eq!(task.scan_by(group, &own, compose).unwrap(), lower);
            let any = task.allreduce_by(group, Operands::AnyOrder, &own, |a, b| a ^ b);
            assert_eq!(
                any.unwrap(),
                combined(0..n, |i| values(i, len), |a, b| a ^ b)
            );
        }
    });
}

#[test]
fn a_scan_combines_the_values_of_the_lower_instances() {
    with_all_sizes(|task, group, _, me| {
        for len in LENGTHS {
            let own = values(me, len);
            let upto = |end| combined(0..end, |i| values(i, len), u64::wrapping_add);
            assert_eq!(task.scan(group, Op::Sum, &own).unwrap(), upto(me + 1));
            let below = task.exclusive_scan(group, Op::Sum, &own).unwrap();
            assert_eq!(below, (me > 0).then(|| upto(me)));
        }
    });
}

#[test]
fn blocks_of_equal_length_are_gathered_scattered_and_exchanged() {
    with_all_sizes(|task, group, n, me| {
        for len in LENGTHS.into_iter().chain([40]) {
            let own = values(me, len);
            let all: Vec<u64> = (0..n).flat_map(|i| values(i, len)).collect();
            let root = len % n;
            let one = task.gather(group, root as u32, &own).unwrap();
            assert_eq!(one, (me == root).then(|| all.clone()));
            assert_eq!(task.allgather(group, &own).unwrap(), all);
            let given = if me == root { &all[..] } else { &[] };
            assert_eq!(task.scatter(group, root as u32, given).unwrap(), own);

            let block = |from: usize, to: usize| values(100 * from + to, len);
            let out: Vec<u64> = (0..n).flat_map(|to| block(me, to)).collect();
            let back: Vec<u64> = (0..n).flat_map(|from| block(from, me)).collect();
            assert_eq!(task.alltoall(group, &out).unwrap(), back);
        }
    });
}

#[test]
fn blocks_of_any_length_are_gathered_scattered_and_exchanged() {
    with_all_sizes(|task, group, n, me| {
        let list = |from: usize, to: usize| values(from, 1_500 * ((from + 2 * to) % 4));
        let root = n / 2;
        let all: Vec<_> = (0..n).map(|i| list(i, 0)).collect();
        let one = task.gatherv(group, root as u32, &list(me, 0)).unwrap();
        assert_eq!(one, (me == root).then(|| all.clone()));
        assert_eq!(task.allgatherv(group, &list(me, 0)).unwrap(), all);
        let given = if me == root { &all[..] } else { &[] };
        assert_eq!(
            task.scatterv(group, root as u32, given).unwrap(),
            list(me, 0)
        );
        let out: Vec<_> = (0..n).map(|to| list(me, to)).collect();
        let back: Vec<_> = (0..n).map(|from| list(from, me)).collect();
        assert_eq!(task.alltoallv(group, &out).unwrap(), back);

        let bytes = |from: usize, to: usize| Bytes::from(vec![from as u8; 30_000 * to]);
        let all: Vec<_> = (0..n).map(|i| bytes(i, i)).collect();
        let one = task
            .gather_bytes(group, root as u32, bytes(me, me))
            .unwrap();
        assert_eq!(one, (me == root).then(|| all.clone()));
        assert_eq!(task.allgather_bytes(group, bytes(me, me)).unwrap(), all);
        let given = if me == root { &all[..] } else { &[] };
        let own = task.scatter_bytes(group, root as u32, given).unwrap();
        assert_eq!(own, bytes(me, me));
        let out: Vec<_> = (0..n).map(|to| bytes(me, to)).collect();
        let back: Vec<_> = (0..n).map(|from| bytes(from, me)).collect();
        assert_eq!(task.alltoall_bytes(group, &out).unwrap(), back);
    });
}

type Operation<T> = fn(T, T) -> T;

fn check_ops<T: Number + PartialEq + Debug>(
    task: &Task,
    group: &Group,
    own: impl Fn(usize) -> Vec<T> + Copy,
    ops: &[(Op, Operation<T>)],
) {
    let me = group.instance() as usize;
    for (op, operation) in ops {
        let all = combined(0..group.size(), own, operation);
        assert_eq!(task.allreduce(group, *op, &own(me)).unwrap(), all, "{op:?}");
        let one = task.reduce(group, 0, *op, &own(me)).unwrap();
        assert_eq!(one, (me == 0).then_some(all), "{op:?}");
    }
}

macro_rules! check_integers {
    ($task:expr, $group:expr, $($type:ty)*) => {$(
        check_ops::<$type>($task, $group, |i| values(i, 50).iter().map(|v| *v as $type).collect(), &[
            (Op::Sum, |a, b| a.wrapping_add(b)), (Op::Product, |a, b| a.wrapping_mul(b)),
            (Op::Min, |a, b| a.min(b)), (Op::Max, |a, b| a.max(b)),
            (Op::And, |a, b| a & b), (Op::Or, |a, b| a | b), (Op::Xor, |a, b| a ^ b),
        ]);
    )*};
}

#[test]
fn every_type_has_its_operations() {
    run(6, |task, group| {
        check_integers!(&task, &group, u8 u16 u32 u64 i8 i16 i32 i64);
        // Whole numbers, so that the sums are exact in any order.
        check_ops::<f64>(
            &task,
            &group,
            |i| (0..50).map(|k| (i * 7 % 5 * k) as f64 - 9.0).collect(),
            &[
                (Op::Sum, |a, b| a + b),
                (Op::Product, |a, b| a * b),
                (Op::Min, f64::min),
                (Op::Max, f64::max),
            ],
        );
        check_ops::<f32>(
            &task,
            &group,
            |i| (0..50).map(|k| (i * 3 % 4 * k) as f32 - 5.0).collect(),
            &[
                (Op::Sum, |a, b| a + b),
                (Op::Min, f32::min),
                (Op::Max, f32::max),
            ],
        );
        let refused = task.allreduce(&group, Op::Xor, &[1.0f64]);
        assert!(matches!(refused, Err(GroupError::Shape { .. })));
    });
}

#[test]
fn the_extreme_values_come_with_the_lowest_instance_that_has_them() {
    with_all_sizes(|task, group, n, me| {
        let own = |i: usize| {
            vec![
                (i % 3) as f64,
                -(i as f64),
                f64::NAN,
                if i == 0 { f64::NAN } else { 1.0 },
            ]
        };
        let least = task.min_with_place(group, &own(me)).unwrap();
        let most = task.max_with_place(group, &own(me)).unwrap();
        assert_eq!(least[..2], [(0.0, 0), (1.0 - n as f64, n as u32 - 1)]);
        let top = 2.min(n - 1);
        assert_eq!(most[..2], [(top as f64, top as u32), (0.0, 0)]);
        for found in [least, most] {
            assert!(found[2].0.is_nan() && found[2].1 == 0);
            assert!(n == 1 || found[3] == (1.0, 1), "{found:?}");
        }
        for len in [1, 2_000] {
            let bytes = task.max_with_place(group, &vec![me as u8; len]).unwrap();
            assert_eq!(bytes, vec![(n as u8 - 1, n as u32 - 1); len]);
        }
    });
}

#[test]
fn all_members_get_the_same_bits() {
    with_all_sizes(|task, group, n, me| {
        for len in [1, 1_000, 20_000] {
            let own: Vec<f64> = values(me, len).iter().map(|v| 1.0 / (*v as f64)).collect();
            let sum = task.allreduce(group, Op::Sum, &own).unwrap();
            let again = task.allreduce(group, Op::Sum, &own).unwrap();
            let bits: Vec<u64> = sum.iter().map(|x| x.to_bits()).collect();
            assert_eq!(bits, again.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
            let all = task.allgather(group, &bits).unwrap();
            assert!(
                all.chunks(len).all(|other| other == bits),
                "{n} members, {len} values"
            );
        }
    });
}

#[test]
fn fast_members_may_be_many_calls_ahead_of_slow_ones() {
    run(5, |task, group| {
        let (n, me) = (group.size(), group.instance() as usize);
        // Each root in turn is ahead of all others; nobody waits between the calls.
        for round in 0..100 {
            let root = round % n;
            let mut numbers = [me as u64, round as u64];
            task.broadcast_slice(&group, root as u32, &mut numbers)
                .unwrap();
            assert_eq!(numbers, [root as u64, round as u64]);
            let sum = task
                .reduce(&group, root as u32, Op::Sum, &[round as u64])
                .unwrap();
            assert_eq!(sum, (me == root).then(|| vec![(n * round) as u64]));
            let below = task.scan(&group, Op::Sum, &[round as u32]).unwrap();
            assert_eq!(below, [(round * (me + 1)) as u32]);
        }
    });
}

#[test]
fn messages_of_the_program_and_of_other_groups_do_not_disturb() {
    // The hash of both names is the same.
    const NAMES: [&str; 2] = ["group14968", "group122342"];
    assert_eq!(
        crate::group::context(NAMES[0]),
        crate::group::context(NAMES[1])
    );
    run(4, |task, all| {
        let n = all.size();
        let groups = NAMES.map(|name| {
            let mut group = task.join(name).unwrap();
            task.await_members(&mut group, n).unwrap();
            group
        });
        task.barrier(&mut { all }).unwrap();
        for round in 0..20 {
            for which in [round % 2, 1 - round % 2] {
                let sum = task
                    .reduce(&groups[which], 0, Op::Sum, &[round as u64])
                    .unwrap();
                let is_root = groups[which].instance() == 0;
                assert_eq!(sum, is_root.then(|| vec![(n * round) as u64]));
                task.send(task.tid(), 7, &round).unwrap();
                assert_eq!(
                    task.recv(task.tid(), 7).unwrap().value::<usize>().unwrap(),
                    round
                );
            }
        }
    });
}

#[test]
fn two_members_that_send_each_other_much_at_once_do_not_block() {
    run(2, |task, group| {
        let len = 1_000_000;
        let out = vec![u64::from(group.instance()); 2 * len];
        let back = task.alltoall(&group, &out).unwrap();
        assert!(
            back.chunks(len)
                .zip([0, 1])
                .all(|(block, from)| block.iter().all(|v| *v == from))
        );
    });
}

#[test]
fn a_handle_that_was_saved_without_the_counts_of_calls_is_read() {
    let old = run(1, |_, group| {
        let Group {
            instance,
            members,
            joined,
            next,
            arrived,
            ..
        } = group;
        rmp_serde::to_vec(&(instance, members, joined, next, arrived)).unwrap()
    });
    let group: Group = rmp_serde::from_slice(&old[0]).unwrap();
    assert_eq!((group.instance(), group.size()), (0, 1));
}
