//! Groups, their barrier and their broadcast.

use super::{
    members::{members, run, run_with},
    relay::Relay,
};
use crate::{FailKind, Group, GroupError, Op, RecvError, Task};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
};

/// Runs `member` in each of `count` tasks that have all joined one group.
fn with_members(count: usize, member: impl Fn(Task, Group) + Send + Sync + 'static) {
    let relay = Relay::new();
    let member = Arc::new(member);
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let (task, member) = (relay.task(), Arc::clone(&member));
            thread::spawn(move || {
                let mut group = task.join("all").unwrap();
                task.await_members(&mut group, count).unwrap();
                // Nobody leaves before all have seen each other.
                task.barrier(&mut group).unwrap();
                member(task, group);
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn instances_are_the_lowest_free_numbers() {
    let relay = Relay::new();
    let (a, b, c) = (relay.task(), relay.task(), relay.task());
    let first = a.join("g").unwrap();
    assert_eq!((first.instance(), first.size()), (0, 1));
    assert_eq!(b.join("g").unwrap().instance(), 1);
    assert_eq!(a.join("g").unwrap().instance(), 0);
    a.leave(first).unwrap();
    assert_eq!(c.join("g").unwrap().instance(), 0);
    let members = a.group("g").unwrap();
    assert_eq!(members.tid(0), Some(c.tid()));
    assert_eq!(members.instance(a.tid()), None);
}

#[test]
fn unknown_groups_bad_names_and_lost_membership_are_refused() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    for name in ["", &"x".repeat(256)] {
        assert!(matches!(a.join(name), Err(GroupError::Refused(_))));
    }
    match a.group("none") {
        Err(GroupError::Refused(failed)) => assert_eq!(failed.kind, FailKind::NoSuchGroup),
        other => panic!("{other:?}"),
    }
    let mut group = a.join("g").unwrap();
    let again = a.join("g").unwrap();
    b.join("g").unwrap();
    a.leave(again).unwrap();
    assert!(matches!(
        a.refresh(&mut group),
        Err(GroupError::NotMember { .. })
    ));
    assert!(matches!(
        a.broadcast(&group, 7, &mut 0u8),
        Err(GroupError::NoInstance { .. })
    ));
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    const MEMBERS: u32 = 5;
    let came = AtomicU32::new(0);
    with_members(MEMBERS as usize, move |task, mut group| {
        for round in 1..=20 {
            came.fetch_add(1, SeqCst);
            task.barrier(&mut group).unwrap();
            let count = came.load(SeqCst);
            assert!(count >= round * MEMBERS, "{count} came to round {round}");
        }
    });
}

#[test]
fn nobody_passes_a_barrier_of_any_size_before_all_have_come() {
    for count in [1, 2, 3, 8, 16, 17, 20, 33] {
        let came = Arc::new(AtomicU32::new(0));
        run(count, move |task, mut group| {
            for round in 1..=10 {
                came.fetch_add(1, SeqCst);
                task.barrier(&mut group).unwrap();
                assert!(came.load(SeqCst) >= round * count as u32, "{count} members");
            }
        });
    }
}

#[test]
fn a_barrier_brings_all_members_to_one_version() {
    let relay = Relay::new();
    // Each member has the version that its own join made.
    let members = (0..20).map(|_| {
        let task = relay.task();
        let group = task.join("all").unwrap();
        (task, group)
    });
    let mut members: Vec<_> = members.collect();
    let (first, group) = &mut members[0];
    first.refresh(group).unwrap();
    let sums = run_with(members, |task, mut group| {
        task.barrier(&mut group).unwrap();
        assert_eq!((group.size(), group.members().version()), (20, 20));
        task.allreduce(&group, Op::Sum, &[1u8]).unwrap()
    });
    assert_eq!(sums, vec![[20]; 20]);
}

#[test]
fn a_barrier_survives_that_a_member_in_the_middle_of_the_tree_ends() {
    let relay = Relay::new();
    let mut members = members(&relay, 20);
    // The instances 5, 6 and 7 would arrive by way of 4.
    members.remove(4).0.exit(0).unwrap();
    run_with(members, |task, mut group| {
        for _ in 0..3 {
            task.barrier(&mut group).unwrap();
        }
    });
}

#[test]
fn a_member_that_missed_the_end_of_a_barrier_is_let_through_by_a_collective_call() {
    let sums = run(2, |task, mut group| {
        task.barrier(&mut group).unwrap();
        if group.instance() == 0 {
            // As if the other one had not got the go, because the member between has ended.
            group.next += 1;
        } else {
            task.barrier(&mut group).unwrap();
        }
        task.allreduce(&group, Op::Sum, &[1u8]).unwrap()
    });
    assert_eq!(sums, [[2], [2]]);
}

#[test]
fn members_may_end_right_after_a_barrier_and_a_call() {
    for count in [6, 20].repeat(10) {
        let values = run(count, |task, mut group| {
            task.barrier(&mut group).unwrap();
            let mut value = group.instance();
            task.broadcast(&group, 5, &mut value).unwrap();
            task.exit(0).unwrap();
            value
        });
        assert_eq!(values, vec![5; count]);
    }
}

#[test]
fn a_barrier_survives_that_its_gatherer_leaves() {
    const MEMBERS: u32 = 4;
    let came = AtomicU32::new(0);
    with_members(MEMBERS as usize, move |task, mut group| {
        for round in 0..MEMBERS {
            // In each round the lowest instance leaves while others wait.
            if group.instance() == round {
                return task.leave(group).unwrap();
            }
            came.fetch_add(1, SeqCst);
            task.barrier(&mut group).unwrap();
            let expected: u32 = (0..=round).map(|round| MEMBERS - 1 - round).sum();
            assert!(came.load(SeqCst) >= expected);
        }
    });
}

#[test]
fn a_barrier_survives_that_a_lower_instance_joins() {
    const ROUNDS: usize = 5;
    let relay = Relay::new();
    let (lowest, b, c, joiner) = (relay.task(), relay.task(), relay.task(), relay.task());
    let free = lowest.join("g").unwrap();
    let mut members = [b, c].map(|task| {
        let group = task.join("g").unwrap();
        (task, group)
    });
    lowest.leave(free).unwrap();
    members
        .iter_mut()
        .for_each(|(task, group)| task.refresh(group).unwrap());
    let [(b, b_group), (c, c_group)] = members;
    let run = |task: Task, mut group: Group| {
        thread::spawn(move || {
            for _ in 0..ROUNDS {
                task.barrier(&mut group).unwrap();
            }
            task.leave(group).unwrap();
        })
    };

    // The second of the two waits for the first, which knows nothing of the joiner yet.
    let c = run(c, c_group);
    let group = joiner.join("g").unwrap();
    assert_eq!(group.instance(), 0);
    let joiner = run(joiner, group);
    let b = run(b, b_group);
    // The joiner may have come too late for the first round, and makes up for it alone.
    for member in [b, c, joiner] {
        member.join().unwrap();
    }
}

#[test]
fn a_broadcast_gives_all_members_the_roots_value() {
    with_members(4, |task, group| {
        for root in 0..4 {
            let mut value = (group.instance(), vec![group.instance(); 50_000]);
            task.broadcast(&group, root, &mut value).unwrap();
            assert_eq!(value, (root, vec![root; 50_000]));
        }
        let bytes = task.broadcast_bytes(&group, 2, vec![group.instance() as u8]);
        assert_eq!(bytes.unwrap(), [2u8][..]);
    });
}

#[test]
fn what_is_sent_in_one_group_is_not_received_in_another() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let [(a_x, b_x), (a_y, b_y)] = ["x", "y"].map(|name| {
        let mut handles = (a.join(name).unwrap(), b.join(name).unwrap());
        a.await_members(&mut handles.0, 2).unwrap();
        b.await_members(&mut handles.1, 2).unwrap();
        handles
    });
    a.broadcast(&a_x, 0, &mut 1u8).unwrap();
    a.broadcast(&a_y, 0, &mut 2u8).unwrap();
    let mut value = 0u8;
    b.broadcast(&b_y, 0, &mut value).unwrap();
    assert_eq!(value, 2);
    b.broadcast(&b_x, 0, &mut value).unwrap();
    assert_eq!(value, 1);
}

#[test]
fn a_broadcast_whose_root_ends_is_an_error_for_those_who_have_no_value() {
    let relay = Relay::new();
    let (root, member) = (relay.task(), relay.task());
    let of_root = root.join("g").unwrap();
    let group = member.join("g").unwrap();
    let mut both = root.join("g").unwrap();
    root.await_members(&mut both, 2).unwrap();
    root.broadcast(&both, of_root.instance(), &mut 7u8).unwrap();
    root.exit(0).unwrap();
    let mut value = 0u8;
    member
        .broadcast(&group, of_root.instance(), &mut value)
        .unwrap();
    assert_eq!(value, 7);
    let again = member.broadcast(&group, of_root.instance(), &mut value);
    let ended = |error| matches!(error, GroupError::Recv(RecvError::Ended { from, .. }) if from == root.tid());
    assert!(ended(again.unwrap_err()));
}
