//! Groups over several hosts.

use crate::world::{World, on};
use std::time::Duration;
use vm_wire::{
    HostId, Message as _,
    task::{FailKind, Failed, GroupAsk, GroupChange, GroupView},
};

fn change(group: &str, join: bool) -> GroupChange {
    GroupChange {
        group: group.to_owned(),
        join,
    }
}

fn ask(group: &str, version: u64) -> GroupAsk {
    GroupAsk {
        group: group.to_owned(),
        version,
    }
}

#[test]
fn members_are_numbered_and_every_host_sees_the_same_group() {
    let mut world = World::new(2);
    let a = world.master(1, "a");
    let b = world.spawn(a, "b", 1, on(2)).tids[0];
    let first: GroupView = world.ask(a, &change("g", true)).expect("it may join");
    let second: GroupView = world.ask(b, &change("g", true)).expect("it may join");
    assert_eq!(first.members, [(0, a)]);
    assert_eq!(second.members, [(0, a), (1, b)]);
    let again: GroupView = world
        .ask(b, &change("g", true))
        .expect("joining twice is no error");
    assert_eq!(again, second);
    let seen: GroupView = world
        .ask(a, &ask("g", second.version))
        .expect("it is there");
    assert_eq!(seen, second);
    let left: GroupView = world.ask(a, &change("g", false)).expect("it is a member");
    assert_eq!(left.members, [(1, b)]);
    let failed = world
        .ask::<GroupView>(a, &change("g", false))
        .expect_err("it is none");
    assert_eq!(failed.kind, FailKind::NotMember);
}

#[test]
fn a_request_for_a_later_version_waits_for_it() {
    let mut world = World::new(2);
    let a = world.master(1, "a");
    let b = world.spawn(a, "b", 1, on(2)).tids[0];
    let view: GroupView = world.ask(a, &change("g", true)).expect("it may join");
    let number = world.request(b, &ask("g", view.version + 1));
    world.run_for(Duration::from_millis(500));
    assert!(world.answers(b, number).is_empty());
    world
        .ask::<GroupView>(a, &change("g", false))
        .expect("it is a member");
    world.run_until("the answer", |world| !world.answers(b, number).is_empty());
}

#[test]
fn unknown_groups_and_bad_names_are_refused() {
    let mut world = World::new(1);
    let a = world.master(1, "a");
    let mut fails = |question: &GroupAsk| {
        let failed = world.ask::<GroupView>(a, question);
        failed.expect_err("there is none").kind
    };
    assert_eq!(fails(&ask("g", 0)), FailKind::NoSuchGroup);
    assert_eq!(fails(&ask("", 0)), FailKind::BadRequest);
    assert_eq!(fails(&ask(&"x".repeat(256), 0)), FailKind::BadRequest);
    let failed = world.ask::<GroupView>(a, &change("", true));
    assert_eq!(failed.expect_err("no name").kind, FailKind::BadRequest);
}

#[test]
fn an_ended_task_is_no_member() {
    let mut world = World::new(2);
    let a = world.master(1, "a");
    let b = world.spawn(a, "b", 1, on(2)).tids[0];
    world
        .ask::<GroupView>(a, &change("g", true))
        .expect("it may join");
    world
        .ask::<GroupView>(b, &change("g", true))
        .expect("it may join");
    world.exit(b, 0).expect("it may leave");
    let view: GroupView = world.ask(a, &ask("g", 0)).expect("it is there");
    assert_eq!(view.members, [(0, a)]);
}

#[test]
fn a_daemon_far_behind_requests_a_group_change_again_if_it_missed_the_result() {
    let mut world = World::with_log(4, 16);
    let a = world.master(1, "a");
    let b = world.spawn(a, "b", 1, on(4)).tids[0];
    // The log refuses the change, while the daemon receives nothing.
    world.behind = Some(HostId(4));
    let number = world.request(b, &change("g", false));
    for _ in 0..20 {
        for join in [true, false] {
            let view: GroupView = world.ask(a, &change("g", join)).expect("it may");
            assert_eq!(view.members.len(), usize::from(join));
        }
    }
    assert!(world.answers(b, number).is_empty());
    world.behind = None;
    // The task does not repeat its request.
    world.run_until("the answer", |world| !world.answers(b, number).is_empty());
    let failed = Failed::read(&world.answers(b, number)[0]).expect("a failure");
    assert_eq!(failed.kind, FailKind::NotMember);
}
