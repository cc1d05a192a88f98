use super::*;
use crate::process::usage::Leaders;
use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command},
    thread,
};

fn pid(number: i32) -> Pid {
    Pid::from_raw(number).expect("a number")
}

/// A process whose group is the first one of its session.
fn process(number: i32, parent: i32, leader: i32) -> Process {
    in_session(number, parent, leader, leader)
}

fn in_session(number: i32, parent: i32, group: i32, session: i32) -> Process {
    Process {
        pid: pid(number),
        parent: Pid::from_raw(parent),
        leaders: Leaders {
            group: Pid::from_raw(group),
            session: Pid::from_raw(session),
        },
    }
}

fn pids(numbers: &[i32]) -> HashSet<Pid> {
    numbers.iter().map(|number| pid(*number)).collect()
}

#[test]
fn the_tasks_that_are_left_are_those_added_and_not_removed() {
    let lines = "+ 7 70\n+ 8\n+ 9 90\n- 7\n+ 8 80\nnonsense\n+ x 1\n- 11\n";
    let tasks = hear(lines.as_bytes());
    assert_eq!(tasks, Tasks::from([(pid(8), Some(80)), (pid(9), Some(90))]));
    assert_eq!(
        added(pid(8), None) + &added(pid(8), Some(80)),
        "+ 8\n+ 8 80\n"
    );
}

#[test]
fn victims_are_led_by_a_task_or_have_its_token_or_descend_from_such_a_process() {
    let tasks = Tasks::from([(pid(100), Some(7)), (pid(200), Some(8))]);
    let all = [
        process(100, 1, 100),
        // In the session of the task, with any parent.
        process(101, 50, 100),
        // A child in a session of its own, and a child of that.
        process(102, 101, 102),
        process(103, 102, 103),
        // An orphan with the token, and its child.
        process(104, 1, 104),
        process(105, 104, 105),
        // Unrelated processes.
        process(106, 1, 106),
        process(107, 106, 106),
        // A task that leads a group of the daemon's session, and its group.
        in_session(200, 1, 200, 1),
        in_session(201, 50, 200, 1),
        // A child in a group of its own.
        in_session(202, 201, 202, 1),
        // The daemon, in its own session.
        in_session(1, 0, 1, 1),
    ];
    let found = victims(&tasks, [pid(104)].iter(), &all);
    assert_eq!(found, pids(&[100, 101, 102, 103, 104, 105, 200, 201, 202]));
    assert!(victims(&Tasks::new(), [].iter(), &all).is_empty());
}

#[test]
fn the_token_of_a_process_counts_only_if_its_parent_is_the_daemons() {
    let all = [
        process(10, 5, 10),
        // A task that has moved to another daemon of this computer still has its token.
        process(11, 6, 11),
        process(12, 1, 12),
        // The parent is outside of this namespace.
        process(13, 0, 13),
        process(getpid().as_raw_nonzero().get(), 1, 1),
    ];
    let found = |reapers| orphans(reapers, &all);
    assert_eq!(found([Some(pid(5)), Some(pid(1))]), pids(&[10, 12]));
    assert_eq!(found([Some(pid(5)), None]), pids(&[10]));
}

#[test]
fn the_note_says_why_the_daemon_ended_and_what_was_killed() {
    let (end, killed) = (Some(Time(5)), Killed::default());
    assert!(verdict(end, Time(5), &killed).contains("at the end of its lease"));
    for lease in [end, None] {
        let text = verdict(lease, Time(4), &killed);
        assert_eq!(text, "was killed by a signal, or crashed");
    }
    let killed = Killed {
        killed: pids(&[1, 2]),
        left: 1,
    };
    let text = verdict(None, Time(4), &killed);
    assert!(
        text.contains("2 processes") && text.ends_with("1 do not end"),
        "{text}"
    );
}

/// A process that is killed at the end of the test.
struct Sleeper(Child);

impl Sleeper {
    fn start(command: &str) -> Sleeper {
        let words: Vec<&str> = command.split(' ').collect();
        let child = Command::new(words[0]).args(&words[1..]).spawn();
        Sleeper(child.expect("it runs"))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn was_killed(&mut self) -> bool {
        let ended = self.0.try_wait().expect("it is our child");
        ended.is_some_and(|status| status.signal() == Some(libc::SIGKILL))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_token_that_cannot_be_read_keeps_no_other_process_alive() {
    let mut leader = Sleeper::start("setsid sleep 1000");
    let mut orphans = [(); 12].map(|()| Sleeper::start("sleep 1000"));
    let leads = || usage::leaders(leader.pid()).and_then(|it| it.session) == Some(leader.pid());
    let begins = Instant::now();
    while !leads() {
        assert!(begins.elapsed() < Duration::from_secs(20), "no session");
        thread::yield_now();
    }
    let numbers = orphans.each_ref().map(Sleeper::pid);
    let token = move |pid: Pid| {
        if pid == numbers[0] {
            loop {
                thread::park();
            }
        }
        numbers.contains(&pid).then_some(7)
    };
    let tasks = Tasks::from([(leader.pid(), Some(7))]);
    let begins = Instant::now();
    let killed = kill_left(Some(getpid()), &tasks, token);
    let time = begins.elapsed();
    assert!(time >= KILL_TIME && time < 5 * KILL_TIME, "{time:?}");
    assert_eq!((killed.killed.len(), killed.left), (orphans.len() - 1, 0));
    assert!(leader.was_killed() && !orphans[0].was_killed());
    assert!(orphans[1..].iter_mut().all(Sleeper::was_killed));
}
