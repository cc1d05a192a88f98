//! Transfer processes that fail, hang, or are no longer needed.

use super::*;
use crate::process::helper;
use mio::{Events, Poll, Token, Waker};
use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{WaitId, WaitIdOptions},
};
use std::{
    io::ErrorKind,
    os::fd::AsFd,
    process::Stdio,
    sync::{Arc, mpsc},
};

const TASK: Tid = Tid(7);

/// Adds a process that is started at once.
fn add(
    carriers: &mut Carriers,
    (tid, role): (Tid, Role),
    pid: Pid,
    input: Option<OwnedFd>,
    words: Option<OwnedFd>,
) {
    let number = carriers.add(tid, role, input, Time(0));
    carriers.begun(number, pid, words);
}

/// A starter that starts each process only when the test allows it.
struct HeldUp {
    helpers: Helpers,
    may: mpsc::Sender<()>,
    started: mpsc::Receiver<Pid>,
    poll: Poll,
}

impl HeldUp {
    fn new() -> HeldUp {
        let poll = Poll::new().expect("epoll");
        let waker = Waker::new(poll.registry(), Token(0)).expect("an eventfd");
        let (may, hold) = mpsc::channel();
        let (tell, started) = mpsc::channel();
        let start = move |command| {
            hold.recv().expect("it may");
            let answer = helper::spawn(command);
            if let Ok((pid, _)) = &answer {
                tell.send(*pid).expect("it is heard");
            }
            answer
        };
        HeldUp {
            helpers: Helpers::new("carry", start, Arc::new(waker)).expect("a thread"),
            may,
            started,
            poll,
        }
    }

    /// Lets one process be started, and takes the result.
    fn let_start(&mut self, carriers: &mut Carriers) -> Vec<News> {
        self.may.send(()).expect("it waits");
        loop {
            let mut events = Events::with_capacity(1);
            match self.poll.poll(&mut events, None) {
                // A child of another test of this process ended, and its signal came to this thread.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                woken => woken.expect("it is woken"),
            }
            if let Some(news) = carriers.take_started(&mut self.helpers) {
                return news;
            }
        }
    }

    /// The signal that ended the started process.
    fn end(&self) -> Option<i32> {
        let pid = self.started.recv().expect("it was started");
        let status = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
        let status = status.expect("it is our child").expect("it has ended");
        status.terminating_signal()
    }
}

/// A `cat` of a pipe, the end that it reads, and the end to write to.
fn cat() -> (Command, OwnedFd, OwnedFd) {
    // Other children must not inherit the descriptors: they would keep the pipe open.
    let (out, input) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let end = out.try_clone().expect("a copy");
    let mut command = Command::new("cat");
    command.stdin(out).stdout(Stdio::null());
    (command, end, input)
}

#[test]
fn a_transfer_process_that_is_cancelled_before_its_start_is_killed_at_the_start() {
    let mut held_up = HeldUp::new();
    let mut carriers = Carriers::default();
    let (command, read, _input) = cat();
    let of = (TASK, Role::Sender);
    carriers.start(of, command, Some(read), &mut held_up.helpers, Time(0));
    carriers.cancel(TASK);
    assert_eq!(carriers.deadline(), None);
    assert_eq!(held_up.let_start(&mut carriers), []);
    assert_eq!(held_up.end(), Some(Signal::KILL.as_raw()));
}

#[test]
fn a_process_that_is_not_started_for_long_hangs_and_the_next_one_waits_in_order() {
    let mut held_up = HeldUp::new();
    let mut carriers = Carriers::default();
    let (command, read, input) = cat();
    let of = (TASK, Role::Sender);
    carriers.start(of, command, Some(read), &mut held_up.helpers, Time(0));
    let patience = Role::Sender.patience();
    // Without input, the waiting process has no work.
    assert_eq!(look(&mut carriers, 3 * patience), []);
    rustix::io::write(&input, b"bytes").expect("there is room");
    let failures = look(&mut carriers, patience + 1);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].text.contains("hangs"), "{failures:?}");
    let (next, _, next_input) = cat();
    let of = (TASK, Role::Suspender(1));
    carriers.start(of, next, None, &mut held_up.helpers, Time(0));
    assert_eq!(held_up.let_start(&mut carriers), []);
    assert_eq!(held_up.end(), Some(Signal::KILL.as_raw()));
    // The other process is started in its turn, and reads to the end.
    assert_eq!(held_up.let_start(&mut carriers), []);
    drop(next_input);
    assert_eq!(held_up.end(), None);
}

#[test]
fn a_process_that_cannot_be_started_has_failed() {
    let mut held_up = HeldUp::new();
    let mut carriers = Carriers::default();
    let command = || Command::new("/no/such/program");
    let of = (TASK, Role::Sender);
    carriers.start(of, command(), None, &mut held_up.helpers, Time(0));
    let news = held_up.let_start(&mut carriers);
    assert!(news.contains(&News::SentAll(TASK)), "{news:?}");
    let failures = failures(news);
    assert_eq!(failures.len(), 1, "{failures:?}");
    let text = "the process that sends its image cannot be started: No such file";
    assert!(failures[0].text.starts_with(text), "{failures:?}");
    let of = |hand| (Tid::NONE, Role::Part(7, hand));
    carriers.start(
        of(Hand::Reads),
        command(),
        None,
        &mut held_up.helpers,
        Time(0),
    );
    carriers.start(
        of(Hand::Sends),
        command(),
        None,
        &mut held_up.helpers,
        Time(0),
    );
    let [News::PartSent(7, Err(why))] = &held_up.let_start(&mut carriers)[..] else {
        panic!("it failed")
    };
    assert!(
        why.contains("reads it in the store cannot be started"),
        "{why}"
    );
    assert_eq!(held_up.let_start(&mut carriers), []);
    assert_eq!(carriers.deadline(), None);
}

#[test]
fn only_a_process_that_has_work_and_does_nothing_hangs() {
    let mut headway = Headway::default();
    assert_eq!(headway.look(Some(5), true), 0);
    assert_eq!(headway.look(Some(5), true), 1);
    assert_eq!(headway.look(Some(5), true), 2);
    // The process did a little work.
    assert_eq!(headway.look(Some(6), true), 0);
    // The process waits for bytes.
    assert_eq!(headway.look(Some(6), false), 0);
    assert_eq!(headway.look(Some(6), true), 1);
    // The work cannot be determined.
    assert_eq!(headway.look(None, true), 0);
    assert_eq!(headway.look(None, true), 0);
    assert_eq!(headway.look(Some(6), true), 0);
}

/// A `cat` whose input the test holds, and the time.
fn reader(carriers: &mut Carriers, role: Role) -> (std::process::Child, OwnedFd) {
    let (out, input) = rustix::pipe::pipe().expect("a pipe");
    let end = out.as_fd().try_clone_to_owned().expect("a copy");
    let mut command = Command::new("cat");
    let mut child = command
        .stdin(out)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cat runs");
    let words = child.stderr.take().map(OwnedFd::from);
    let pid = Pid::from_child(&child);
    add(carriers, (TASK, role), pid, Some(end), words);
    (child, input)
}

/// The failures that this number of checks reports.
fn look(carriers: &mut Carriers, looks: u32) -> Vec<Failure> {
    let looks = 0..looks;
    let news = looks.flat_map(|_| {
        let due = carriers.deadline().expect("a look is due");
        carriers.tick(due)
    });
    failures(news)
}

fn failures(news: impl IntoIterator<Item = News>) -> Vec<Failure> {
    let failure = |news| match news {
        News::Failed(failure) => Some(failure),
        _ => None,
    };
    news.into_iter().filter_map(failure).collect()
}

#[test]
fn the_kernel_counts_the_bytes_that_a_process_has_read() {
    let here = rustix::process::getpid();
    let before = bytes_read(here).expect("it runs");
    let text = fs::read("/proc/self/maps").expect("it can be read");
    assert!(bytes_read(here).expect("it runs") >= before + text.len() as u64);
}

#[test]
fn a_process_that_waits_for_bytes_is_left_alone_and_one_that_hangs_is_ended() {
    let mut carriers = Carriers::default();
    let (mut child, input) = reader(&mut carriers, Role::Sender);
    let patience = Role::Sender.patience();
    assert_eq!(look(&mut carriers, 3 * patience), []);
    let pid = Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::STOP).expect("it is ours");
    // Until it is stopped, the process could still read the bytes.
    let stands = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(pid), stands).expect("it is our child");
    rustix::io::write(&input, b"bytes").expect("there is room");
    let failures = look(&mut carriers, patience + 1);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].text.contains("hangs"), "{failures:?}");
    assert!(!child.wait().expect("it has ended").success());
    // The failure was reported before, so only the end is reported now.
    let news = carriers.ended(pid, ExitStatus::Signal(9));
    assert_eq!(news, [News::SentAll(TASK)]);
    assert_eq!(carriers.deadline(), None);
}

#[test]
fn the_error_output_of_a_process_is_the_reason_unless_the_image_is_whole() {
    let mut carriers = Carriers::default();
    let (out, _input) = rustix::pipe::pipe().expect("a pipe");
    let (words, say) = rustix::pipe::pipe().expect("a pipe");
    rustix::io::write(&say, b"vmd: sending: no way\n").expect("there is room");
    drop(say);
    let pid = Pid::from_raw(i32::MAX).expect("a number");
    let end = out.try_clone().expect("a copy");
    let of = (TASK, Role::Sender);
    add(&mut carriers, of, pid, Some(end), Some(words));
    let failures = failures(carriers.ended(pid, ExitStatus::Code(1)));
    assert_eq!(failures.len(), 1, "it matters");
    assert_eq!(
        failures[0].text,
        "the process that sends its image failed: sending: no way"
    );
    add(&mut carriers, (TASK, Role::Receiver), pid, Some(out), None);
    carriers.arrived(TASK);
    assert_eq!(carriers.ended(pid, ExitStatus::Code(1)), []);
}

#[test]
fn a_part_is_sent_when_its_last_process_has_ended_and_the_first_failure_counts() {
    let pids = [i32::MAX, i32::MAX - 1].map(|pid| Pid::from_raw(pid).expect("a number"));
    let add = |carriers: &mut Carriers, ticket, hands: [Hand; 2]| {
        for (pid, hand) in pids.into_iter().zip(hands) {
            let role = Role::Part(ticket, hand);
            add(carriers, (Tid::NONE, role), pid, None, None);
        }
    };
    let (well, badly) = (ExitStatus::Code(0), ExitStatus::Code(1));
    let mut carriers = Carriers::default();
    add(&mut carriers, 7, [Hand::Reads, Hand::Sends]);
    assert_eq!(carriers.ended(pids[1], well), []);
    assert_eq!(carriers.ended(pids[0], well), [News::PartSent(7, Ok(()))]);
    add(&mut carriers, 8, [Hand::Reads, Hand::Sends]);
    let [News::PartSent(8, Err(why))] = &carriers.ended(pids[0], badly)[..] else {
        panic!("it failed")
    };
    assert!(why.contains("reads it in the store"), "{why}");
    assert_eq!(carriers.ended(pids[1], well), []);
    // At the target, the part has arrived only when it is in the store.
    add(&mut carriers, 9, [Hand::Receives, Hand::Takes]);
    assert_eq!(carriers.ended(pids[0], well), []);
    assert_eq!(carriers.ended(pids[1], well), [News::CopyTaken(9, Ok(()))]);
    add(&mut carriers, 10, [Hand::Receives, Hand::Takes]);
    carriers.cancel_part(10);
    for pid in pids {
        assert_eq!(carriers.ended(pid, ExitStatus::Signal(9)), []);
    }
}
