//! Collective calls of members that end, leave, have other versions, or make other calls: the call
//! fails with an error that names the member, and nobody waits for ever.

use super::{
    members::{members, run, run_with},
    relay::Relay,
};
use crate::{Group, GroupError, Op, Operands, RecvError, Task, Tid};
use bytes::Bytes;

const MEMBERS: usize = 6;
/// The instance of the member that ends.
const ENDS: usize = 3;

/// A call by its name, and whether it fails at all others when one member ends.
type Call = (
    &'static str,
    bool,
    fn(&Task, &Group) -> Result<(), GroupError>,
);

/// More than what fits into one segment.
const LONG: usize = 10_000;

const CALLS: &[Call] = &[
    ("broadcast", false, |task, group| {
        task.broadcast(group, ENDS as u32, &mut 0u8)
    }),
    ("broadcast of much", false, |task, group| {
        task.broadcast_slice(group, 1, &mut vec![0u64; 100 * LONG])
            .map(drop)
    }),
    ("reduce", false, |task, group| {
        task.reduce(group, 0, Op::Sum, &[1u8]).map(drop)
    }),
    ("reduce in order", false, |task, group| {
        task.reduce_by(group, 2, Operands::ByInstance, &[1u8; LONG], |a, b| a ^ b)
            .map(drop)
    }),
    ("allreduce", true, |task, group| {
        task.allreduce(group, Op::Sum, &[1.0f64]).map(drop)
    }),
    ("allreduce of some", true, |task, group| {
        task.allreduce(group, Op::Sum, &[1.0f64; 1_000]).map(drop)
    }),
    ("allreduce of much", true, |task, group| {
        task.allreduce(group, Op::Sum, &vec![1.0f64; LONG])
            .map(drop)
    }),
    ("allreduce in order", true, |task, group| {
        task.allreduce_by(group, Operands::ByInstance, &[1u8; LONG], |a, b| a ^ b)
            .map(drop)
    }),
    ("max with place", true, |task, group| {
        task.max_with_place(group, &[1u8]).map(drop)
    }),
    ("scan", false, |task, group| {
        task.scan(group, Op::Sum, &[1u8]).map(drop)
    }),
    ("exclusive scan", false, |task, group| {
        task.exclusive_scan(group, Op::Sum, &[1u8; LONG]).map(drop)
    }),
    ("gather", false, |task, group| {
        task.gather(group, 0, &[1u8]).map(drop)
    }),
    ("gather of much", false, |task, group| {
        task.gather(group, 0, &vec![1u64; LONG]).map(drop)
    }),
    ("gatherv", false, |task, group| {
        task.gatherv(group, 0, &[1u8]).map(drop)
    }),
    ("scatter", false, |task, group| {
        task.scatter(group, ENDS as u32, &[0u8; MEMBERS]).map(drop)
    }),
    ("allgather", true, |task, group| {
        task.allgather(group, &[1u8]).map(drop)
    }),
    ("allgather of much", true, |task, group| {
        task.allgather(group, &vec![1u64; LONG]).map(drop)
    }),
    ("allgather of bytes", true, |task, group| {
        task.allgather_bytes(group, vec![1; LONG]).map(drop)
    }),
    ("alltoall", true, |task, group| {
        task.alltoall(group, &[1u8; MEMBERS]).map(drop)
    }),
    ("alltoall of bytes", true, |task, group| {
        task.alltoall_bytes(group, &vec![Bytes::from_static(b"x"); MEMBERS])
            .map(drop)
    }),
];

fn names(error: &GroupError, tid: Tid) -> bool {
    matches!(error, GroupError::Recv(RecvError::Ended { from, .. }) if *from == tid)
}

/// Checks that each failure names `tid`, and that there is one where there must be.
fn check(name: &str, fails_at_all: bool, results: Vec<Result<(), GroupError>>, tid: Tid) {
    let failed = results.iter().filter(|result| result.is_err()).count();
    for result in results {
        if let Err(error) = result {
            assert!(names(&error, tid), "{name}: {error}");
        }
    }
    assert!(failed > 0, "{name}: nobody has noticed the end");
    assert!(
        !fails_at_all || failed == MEMBERS - 1,
        "{name}: {failed} failed"
    );
}

#[test]
fn the_end_of_a_member_before_a_call_fails_it_at_all_who_wait() {
    let threads = CALLS.iter().map(|(name, at_all, call)| {
        std::thread::spawn(move || {
            let relay = Relay::new();
            let mut members = members(&relay, MEMBERS);
            let (ended, _) = members.remove(ENDS);
            ended.exit(7).unwrap();
            let results = run_with(members, move |task, group| call(&task, &group));
            check(name, *at_all, results, ended.tid());
        })
    });
    let threads: Vec<_> = threads.collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn the_end_of_a_member_in_the_middle_of_calls_fails_one_at_all_who_wait() {
    for (name, at_all, call) in CALLS.iter().filter(|(_, at_all, _)| *at_all) {
        let relay = Relay::new();
        let members = members(&relay, MEMBERS);
        let tid = members[ENDS].0.tid();
        let results = run_with(members, move |task, group| {
            let me = group.instance() as usize;
            if me == ENDS {
                // Another thread ends the task while this one is within a call.
                let other = task.clone_handle();
                std::thread::spawn(move || {
                    other.recv(crate::ANY, 1).unwrap();
                    other.exit(0).unwrap();
                });
            }
            for round in 0.. {
                if me == 0 && round == 3 {
                    task.send(group.members().tid(ENDS as u32).unwrap(), 1, "end")
                        .unwrap();
                }
                if let Err(error) = call(&task, &group) {
                    return (me != ENDS).then_some(error);
                }
            }
            None
        });
        let results = results.into_iter().flatten().map(Err).collect();
        check(name, *at_all, results, tid);
    }
}

#[test]
fn a_root_may_end_after_its_part() {
    let relay = Relay::new();
    let results = run_with(members(&relay, MEMBERS), |task, group| {
        let root = group.instance() as usize == ENDS;
        let (mut text, mut much) = (String::new(), vec![0u64; 100 * LONG]);
        if root {
            (text, much) = ("last words".to_owned(), vec![5; 100 * LONG]);
        }
        task.broadcast(&group, ENDS as u32, &mut text).unwrap();
        task.broadcast_slice(&group, ENDS as u32, &mut much)
            .unwrap();
        let given: Vec<u16> = (0..MEMBERS as u16).collect();
        let given = if root { &given[..] } else { &[] };
        let own = task.scatter(&group, ENDS as u32, given).unwrap();
        if root {
            task.exit(0).unwrap();
        }
        (text, much.iter().all(|v| *v == 5), own)
    });
    for (me, result) in results.into_iter().enumerate() {
        assert_eq!(result, ("last words".to_owned(), true, vec![me as u16]));
    }
}

#[test]
fn after_the_end_of_a_member_the_others_go_on_under_a_new_version() {
    let relay = Relay::new();
    let mut members = members(&relay, MEMBERS);
    members.remove(ENDS).0.exit(0).unwrap();
    let sums = run_with(members, |task, mut group| {
        assert!(task.allreduce(&group, Op::Sum, &[1u8]).is_err());
        task.refresh(&mut group).unwrap();
        task.allreduce(&group, Op::Sum, &[1u8]).unwrap()
    });
    assert_eq!(sums, vec![[MEMBERS as u8 - 1]; MEMBERS - 1]);
}

#[test]
fn a_member_that_leaves_is_named_by_the_calls_that_wait_for_it() {
    let relay = Relay::new();
    let mut members = members(&relay, MEMBERS);
    let (task, group) = members.remove(ENDS);
    let left = task.tid();
    task.leave(group).unwrap();
    run_with(members, move |task, mut group| {
        for _ in 0..2 {
            match task.allgather(&group, &[1u8]) {
                Err(GroupError::Left { member, .. }) => assert_eq!(member, left),
                other => panic!("{other:?}"),
            }
        }
        task.refresh(&mut group).unwrap();
        let all = task.allgather(&group, &[1u8]).unwrap();
        assert_eq!(all, [1; MEMBERS - 1]);
    });
}

#[test]
fn a_member_that_is_back_takes_part_again() {
    let relay = Relay::new();
    let mut members = members(&relay, 3);
    let (task, group) = members.remove(1);
    task.leave(group).unwrap();
    let again = task.join("all").unwrap();
    members.insert(1, (task, again));
    for (task, group) in &mut members {
        task.refresh(group).unwrap();
    }
    let sums = run_with(members, |task, group| {
        task.allreduce(&group, Op::Sum, &[1u8]).unwrap()
    });
    assert_eq!(sums, [[3], [3], [3]]);
}

/// Repeats a call until the handle has the version of the others.
fn repeat<T>(
    task: &Task,
    group: &mut Group,
    call: impl Fn(&Group) -> Result<T, GroupError>,
) -> (T, u32) {
    let mut refreshed = 0;
    loop {
        match call(group) {
            Ok(value) => return (value, refreshed),
            Err(GroupError::Version { known, newer, .. }) => {
                assert!(known == group.members().version() && newer > known);
                task.refresh(group).unwrap();
                assert!(group.members().version() >= newer);
                refreshed += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn members_with_older_versions_are_told_whatever_the_call() {
    // Every set of members that have not seen the last one join, except all.
    for stale in 1u32..0b1111 {
        let relay = Relay::new();
        let mut members = members(&relay, 4);
        let last = relay.task();
        let group = last.join("all").unwrap();
        members.push((last, group));
        for (at, (task, group)) in members.iter_mut().enumerate() {
            if stale & 1 << at == 0 {
                task.refresh(group).unwrap();
            }
        }
        let results = run_with(members, |task, mut group| {
            let me = u64::from(group.instance());
            let (sum, first) = repeat(&task, &mut group, |group| {
                task.allreduce(group, Op::Sum, &[me])
            });
            let (below, _) = repeat(&task, &mut group, |group| task.scan(group, Op::Sum, &[me]));
            let (all, _) = repeat(&task, &mut group, |group| task.alltoall(group, &[me; 5]));
            (sum, below, all, first)
        });
        for (me, (sum, below, all, refreshed)) in results.into_iter().enumerate() {
            assert_eq!((sum, all), (vec![10], vec![0, 1, 2, 3, 4]));
            assert_eq!(below, [(0..=me as u64).sum::<u64>()]);
            let was_stale = me < 4 && stale & 1 << me != 0;
            assert_eq!(refreshed, u32::from(was_stale), "{me} of {stale:b}");
        }
    }
}

#[test]
fn a_member_that_nobody_sends_values_to_is_told_of_the_newer_version() {
    let relay = Relay::new();
    let mut members = members(&relay, 4);
    let (task, group) = members.remove(1);
    task.leave(group).unwrap();
    for (task, group) in members.iter_mut().step_by(2) {
        task.refresh(group).unwrap();
    }
    // By the old version, the member with instance 2 waits for 3. By the new one, both send to 0.
    let sums = run_with(members, |task, mut group| {
        let call = |group: &Group| task.reduce(group, 0, Op::Sum, &[1u8]);
        let (sum, refreshed) = repeat(&task, &mut group, call);
        assert_eq!(refreshed, u32::from(group.instance() == 2));
        sum
    });
    assert_eq!(sums, [Some(vec![3]), None, None]);
}

#[test]
fn a_broadcast_reaches_members_with_older_versions_after_a_refresh() {
    for root in 0..4u32 {
        let relay = Relay::new();
        let mut members = members(&relay, 4);
        let last = relay.task();
        let group = last.join("all").unwrap();
        members.push((last, group));
        let (task, group) = &mut members[root as usize];
        task.refresh(group).unwrap();
        let results = run_with(members, move |task, mut group| {
            let me = group.instance();
            let (value, _) = repeat(&task, &mut group, |group| {
                let mut value = [me; 3];
                task.broadcast_slice(group, root, &mut value)?;
                Ok(value)
            });
            value
        });
        assert_eq!(results, [[root; 3]; 5]);
    }
}

#[test]
fn members_that_make_different_calls_are_told() {
    let results = run(2, |task, group| match group.instance() {
        0 => task.allgather(&group, &[1u8]).map(drop),
        _ => task.allreduce(&group, Op::Sum, &[1u8]).map(drop),
    });
    for result in results {
        assert!(
            matches!(result, Err(GroupError::OutOfStep { .. })),
            "{result:?}"
        );
    }
}

#[test]
fn members_that_wait_for_each_other_in_different_calls_are_told() {
    // Instance 0 gets parts of another call from a member that it does not wait for.
    let exchanges = run(4, |task, group| match group.instance() {
        0 => task.allreduce(&group, Op::Sum, &[1u8]).map(drop),
        _ => task.allgather(&group, &[1u8]).map(drop),
    });
    // No member sends anything.
    let silent = run(4, |task, group| match group.instance() {
        0 => task.gather(&group, 0, &[1u8]).map(drop),
        _ => task.broadcast_slice(&group, 0, &mut [1u8]),
    });
    for results in [exchanges, silent] {
        let is_told = |result: &Result<(), GroupError>| {
            matches!(
                result,
                Err(GroupError::OutOfStep { .. } | GroupError::Failed { .. })
            )
        };
        assert!(results.iter().all(is_told), "{results:?}");
    }
}

#[test]
fn values_that_do_not_fit_fail_the_call_at_all_who_wait() {
    let results = run(4, |task, group| {
        let len = if group.instance() == 1 { 3 } else { 4 };
        let lengths = task.allreduce(&group, Op::Sum, &vec![1u32; len]).map(drop);
        // The call after it is not disturbed.
        assert_eq!(task.allreduce(&group, Op::Sum, &[1u32]).unwrap(), [4]);
        let indivisible = if group.instance() == 0 {
            &[1u8; 7][..]
        } else {
            &[]
        };
        [lengths, task.scatter(&group, 0, indivisible).map(drop)]
    });
    for result in results.into_iter().flatten() {
        let fits = matches!(
            result,
            Err(GroupError::Shape { .. } | GroupError::Failed { .. })
        );
        assert!(fits, "{result:?}");
    }
}
