//! The processes that carry the image of a task, watched: how far they are, whether they make headway,
//! and what they say when they fail.
//!
//! Nothing in the way of the image itself counts or reports: the kernel counts what the process that
//! sends it has read.
//!
//! A process that hangs would hold a task that moves for as long as an image may take to arrive. So
//! each is looked at every second. One that has something to do (there are bytes for it, or the end of
//! them) and uses no processor, [`limits::MOVE_STALL_LOOKS`] times in a row, is given up: the move is
//! taken back, and who asked for it is told. One that waits for bytes is in order, however long. What
//! one of them does at the target counts for those before it, which wait for it.
//!
//! The daemon keeps an end of what such a process reads, to see whether there are bytes. It lets go of
//! it as soon as the process has ended, so that whoever writes there is not left waiting.

use crate::images;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, Signal},
};
use std::fs;
use vm_machine::Time;
use vm_store::name;
use vm_wire::{Tid, agreed::ExitStatus, checkpoint::Part, limits};

/// Processes that are looked at in one turn, so that turns stay short.
const LOOKS: usize = 16;

/// What a process does for a task that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends the image, at the source.
    Sender,
    /// Writes it into the store, for that application and epoch.
    Writer(Tid, u32),
    /// Writes that of a task which is suspended alone, under that number.
    Suspender(u64),
    /// Receives it, at the target.
    Receiver,
    /// Becomes the task, at the target.
    Restorer,
    /// Brings a part of a checkpoint from one store to another host, under that ticket.
    Part(u64, Hand),
}

/// What a process does with such a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    /// Reads it in the store.
    Reads,
    /// Sends it.
    Sends,
    /// Receives it.
    Receives,
    /// Writes it into the store.
    Takes,
}

impl Role {
    /// Whether it works where the task is saved.
    fn is_source(self) -> bool {
        matches!(self, Role::Sender | Role::Writer(..) | Role::Suspender(_))
    }

    /// After so many idle looks it hangs.
    fn patience(self) -> u32 {
        match self {
            Role::Receiver | Role::Restorer => limits::MOVE_STALL_LOOKS,
            _ => limits::MOVE_STALL_LOOKS_SOURCE,
        }
    }

    /// For people.
    fn name(self) -> &'static str {
        match self {
            Role::Sender => "the process that sends its image",
            Role::Writer(..) | Role::Suspender(_) => "the process that stores its image",
            Role::Receiver => "the process that receives its image",
            Role::Restorer => "the process that was to become it",
            Role::Part(_, Hand::Reads) => "the process that reads it in the store",
            Role::Part(_, Hand::Sends) => "the process that sends it",
            Role::Part(_, Hand::Receives) => "the process that receives it",
            Role::Part(_, Hand::Takes) => "the process that stores it",
        }
    }
}

/// What is to be known of such a process.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// The sender has read so many bytes of a task's image.
    Read(Tid, u64),
    /// The sender has ended.
    SentAll(Tid),
    /// The writer has: the image is in the store.
    Stored(Tid, u32, Part),
    /// Likewise, of a task that is suspended, under that number.
    Suspended(Tid, u64, Part),
    /// A part was sent to another host, or why not.
    PartSent(u64, Result<(), String>),
    /// A part of another host is in the store, or why not.
    CopyTaken(u64, Result<(), String>),
    /// It failed, or was given up.
    Failed(Failure),
}

/// A process of whose failure somebody has to know.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// For whom it worked.
    pub tid: Tid,
    /// What it did.
    pub role: Role,
    /// What failed and why, for people.
    pub text: String,
}

/// Whether a process makes headway, as one look after the other tells.
#[derive(Debug, Default)]
struct Headway {
    work: Option<u64>,
    idle: u32,
}

impl Headway {
    /// One more look. `work` grows whenever the process does something; nothing if it cannot be known.
    /// Returns how many looks in a row it has done nothing, with something to do.
    fn look(&mut self, work: Option<u64>, busy: bool) -> u32 {
        let hangs = busy && work.is_some() && work == self.work;
        self.idle = if hangs { self.idle + 1 } else { 0 };
        self.work = work;
        self.idle
    }
}

#[derive(Debug)]
struct Carrier {
    tid: Tid,
    role: Role,
    pid: Pid,
    /// What it reads, if it is to be watched.
    input: Option<OwnedFd>,
    /// Where it says why it fails, if nobody else reads that.
    words: Option<OwnedFd>,
    headway: Headway,
    /// Whether its failure is anybody's matter still.
    matters: bool,
    due: Time,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Carriers {
    table: Vec<Carrier>,
}

impl Carriers {
    /// One more, which reads `input`, or is not watched, and, if nobody else reads that, says in
    /// `words` why it fails. It takes the place of an earlier one of that task.
    pub fn add(
        &mut self,
        tid: Tid,
        role: Role,
        pid: Pid,
        input: Option<OwnedFd>,
        words: Option<OwnedFd>,
        now: Time,
    ) {
        self.drop_all(tid, |other| other == role);
        self.table.push(Carrier {
            tid,
            role,
            pid,
            input,
            words,
            headway: Headway::default(),
            matters: true,
            due: now + limits::MOVE_LOOK,
        });
    }

    /// What that ticket was to bring is of no use any more.
    pub fn cancel_part(&mut self, ticket: u64) {
        self.drop_all(
            Tid::NONE,
            |role| matches!(role, Role::Part(of, _) if of == ticket),
        );
    }

    /// At the source, what is still to be sent is of no use. Whoever writes it is not left waiting.
    pub fn cancel(&mut self, tid: Tid) {
        self.drop_all(tid, Role::is_source);
    }

    /// At the target, the task is not awaited any more.
    pub fn forget(&mut self, tid: Tid) {
        self.drop_all(tid, |role| !role.is_source());
    }

    /// At the target, the image is whole. Who received it has but to end.
    pub fn arrived(&mut self, tid: Tid) {
        self.table
            .retain(|carrier| (carrier.tid, carrier.role) != (tid, Role::Restorer));
        for carrier in &mut self.table {
            carrier.matters &= (carrier.tid, carrier.role) != (tid, Role::Receiver);
        }
    }

    /// They are ended and nobody's matter. Who becomes a task is ended by who ends tasks.
    fn drop_all(&mut self, tid: Tid, of: impl Fn(Role) -> bool) {
        self.table.retain_mut(|carrier| {
            if carrier.tid != tid || !of(carrier.role) {
                return true;
            }
            carrier.matters = false;
            carrier.kill();
            carrier.role != Role::Restorer
        });
    }

    /// A child of this daemon, perhaps one of these, has ended.
    pub fn ended(&mut self, pid: Pid, status: ExitStatus) -> Vec<News> {
        let Some(place) = self.table.iter().position(|carrier| carrier.pid == pid) else {
            return Vec::new();
        };
        let carrier = self.table.swap_remove(place);
        let said = carrier.words.as_ref().map(read_words).unwrap_or_default();
        let well = status == ExitStatus::Code(0);
        if let Role::Writer(app, epoch) = carrier.role
            && let Some(part) =
                images::receipt(name::image(app, carrier.tid), &said).filter(|_| well)
        {
            let stored = News::Stored(carrier.tid, epoch, part);
            return Vec::from_iter(carrier.matters.then_some(stored));
        }
        if let Role::Suspender(number) = carrier.role
            // What it is called the daemon knows.
            && let Some(part) = images::receipt(String::new(), &said).filter(|_| well)
        {
            let news = News::Suspended(carrier.tid, number, part);
            return Vec::from_iter(carrier.matters.then_some(news));
        }
        if !said.is_empty() {
            log::warn!("{said}");
        }
        if let Role::Part(ticket, hand) = carrier.role {
            let why = match said.is_empty() {
                true => format!("{} ended ({status})", carrier.role.name()),
                false => said,
            };
            let result = if well { Ok(()) } else { Err(why) };
            let news = carrier
                .matters
                .then(|| self.part_ended(ticket, hand, result));
            return Vec::from_iter(news.flatten());
        }
        let mut news = Vec::new();
        if carrier.role == Role::Sender {
            news.push(News::SentAll(carrier.tid));
        }
        if status != ExitStatus::Code(0) && carrier.matters {
            news.push(carrier.failure(&match said.is_empty() {
                true => format!("ended ({status})"),
                false => format!("failed: {said}"),
            }));
        }
        news
    }

    /// One of those that bring a part has ended. The first one that fails says why; all is well at the
    /// source when none is left, and at the target when it is in the store.
    fn part_ended(&mut self, ticket: u64, hand: Hand, result: Result<(), String>) -> Option<News> {
        if result.is_err() {
            self.cancel_part(ticket);
        }
        let of_it =
            |it: &Carrier| it.matters && matches!(it.role, Role::Part(of, _) if of == ticket);
        let left = self.table.iter().any(of_it);
        match hand {
            Hand::Reads | Hand::Sends if left => None,
            Hand::Reads | Hand::Sends => Some(News::PartSent(ticket, result)),
            Hand::Receives if result.is_ok() => None,
            Hand::Receives | Hand::Takes => Some(News::CopyTaken(ticket, result)),
        }
    }

    /// When the next look is due.
    pub fn deadline(&self) -> Option<Time> {
        self.table.iter().map(|carrier| carrier.due).min()
    }

    /// Looks at those that are due. Those that hang are ended.
    pub fn tick(&mut self, now: Time) -> Vec<News> {
        let due = self.table.iter().enumerate();
        let mut due: Vec<usize> = due
            .filter(|(_, carrier)| carrier.due <= now)
            .map(|(place, _)| place)
            .take(LOOKS)
            .collect();
        // Who waits for one that hangs looks as if it hung itself: the one at the end says so first.
        due.sort_by_key(|place| self.table[*place].role != Role::Restorer);
        let mut news = Vec::new();
        for place in due {
            let after = self.work_after(place);
            let carrier = &mut self.table[place];
            carrier.due = now + limits::MOVE_LOOK;
            if carrier.role == Role::Sender {
                let read = bytes_read(carrier.pid);
                news.extend(read.map(|bytes| News::Read(carrier.tid, bytes)));
            }
            let work = work(carrier.pid).map(|work| work + after);
            let busy = carrier.input.as_ref().is_some_and(has_bytes);
            let idle = carrier.headway.look(work, busy);
            if idle < carrier.role.patience() {
                continue;
            }
            if carrier.role != Role::Restorer {
                carrier.kill();
            }
            if std::mem::take(&mut carrier.matters) {
                news.push(match carrier.role {
                    Role::Part(ticket, _) => {
                        let text = format!("{} hangs", carrier.role.name());
                        News::CopyTaken(ticket, Err(text))
                    }
                    _ => carrier.failure("hangs"),
                });
            }
        }
        news
    }

    /// What was done by that to which the one in `place` hands on its bytes, if that is here.
    fn work_after(&self, place: usize) -> u64 {
        let Carrier { tid, role, .. } = self.table[place];
        let mut carriers = self.table.iter();
        let next = carriers.find(|other| {
            role == Role::Receiver && (other.tid, other.role) == (tid, Role::Restorer)
        });
        next.and_then(|next| work(next.pid)).unwrap_or(0)
    }
}

impl Carrier {
    fn failure(&self, what: &str) -> News {
        News::Failed(Failure {
            tid: self.tid,
            role: self.role,
            text: format!("{} {what}", self.role.name()),
        })
    }

    /// It was not waited for, so its number means nobody else.
    fn kill(&self) {
        if self.role != Role::Restorer {
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        }
    }
}

/// Whether there is something to read, or the end.
fn has_bytes(input: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(input, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Time that the threads of a process have run, in nanoseconds; nothing where the system does not say.
fn work(pid: Pid) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    let ran = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    Some(ran.sum()).filter(|ran| *ran > 0)
}

/// What a process has read so far; nothing of one that is just ending.
fn bytes_read(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("rchar:"))?;
    line.trim().parse().ok()
}

/// What is to be read there now, in one line, without the name of the program.
fn read_words(from: &OwnedFd) -> String {
    let mut bytes = [0; limits::MOVE_WORDS_MAX];
    if !has_bytes(from) {
        return String::new();
    }
    let count = rustix::io::read(from, &mut bytes).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..count]);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let text = lines.join("; ");
    text.strip_prefix("vmd: ").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitId, WaitIdOptions};
    use std::{
        os::fd::AsFd,
        process::{Command, Stdio},
    };

    const TASK: Tid = Tid(7);

    #[test]
    fn only_who_has_something_to_do_and_does_nothing_hangs() {
        let mut headway = Headway::default();
        assert_eq!(headway.look(Some(5), true), 0);
        assert_eq!(headway.look(Some(5), true), 1);
        assert_eq!(headway.look(Some(5), true), 2);
        // It did a little.
        assert_eq!(headway.look(Some(6), true), 0);
        // It waits for bytes.
        assert_eq!(headway.look(Some(6), false), 0);
        assert_eq!(headway.look(Some(6), true), 1);
        // Nobody knows.
        assert_eq!(headway.look(None, true), 0);
        assert_eq!(headway.look(None, true), 0);
        assert_eq!(headway.look(Some(6), true), 0);
    }

    /// A `cat` whose input we hold, and the time.
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
        carriers.add(TASK, role, pid, Some(end), words, Time(0));
        (child, input)
    }

    /// The failures of so many looks.
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
    fn the_kernel_knows_what_a_process_has_read() {
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
        // Before it stands, it could still read what comes.
        let stands = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(pid), stands).expect("it is our child");
        rustix::io::write(&input, b"bytes").expect("there is room");
        let failures = look(&mut carriers, patience + 1);
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].text.contains("hangs"), "{failures:?}");
        assert!(!child.wait().expect("it has ended").success());
        // It was said before.
        let news = carriers.ended(pid, ExitStatus::Signal(9));
        assert_eq!(news, [News::SentAll(TASK)]);
        assert_eq!(carriers.deadline(), None);
    }

    #[test]
    fn what_a_process_says_is_the_reason_and_nobody_asks_after_the_image_is_whole() {
        let mut carriers = Carriers::default();
        let (out, _input) = rustix::pipe::pipe().expect("a pipe");
        let (words, say) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::write(&say, b"vmd: sending: no way\n").expect("there is room");
        drop(say);
        let pid = Pid::from_raw(i32::MAX).expect("a number");
        let end = out.try_clone().expect("a copy");
        carriers.add(TASK, Role::Sender, pid, Some(end), Some(words), Time(0));
        let failures = failures(carriers.ended(pid, ExitStatus::Code(1)));
        assert_eq!(failures.len(), 1, "it matters");
        assert_eq!(
            failures[0].text,
            "the process that sends its image failed: sending: no way"
        );
        carriers.add(TASK, Role::Receiver, pid, Some(out), None, Time(0));
        carriers.arrived(TASK);
        assert_eq!(carriers.ended(pid, ExitStatus::Code(1)), []);
    }

    #[test]
    fn a_part_is_sent_when_nobody_is_left_who_sends_it_and_the_first_that_fails_says_why() {
        let pids = [i32::MAX, i32::MAX - 1].map(|pid| Pid::from_raw(pid).expect("a number"));
        let add = |carriers: &mut Carriers, ticket, hands: [Hand; 2]| {
            for (pid, hand) in pids.into_iter().zip(hands) {
                let role = Role::Part(ticket, hand);
                carriers.add(Tid::NONE, role, pid, None, None, Time(0));
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
        // Where it arrives, it is there when it is in the store.
        add(&mut carriers, 9, [Hand::Receives, Hand::Takes]);
        assert_eq!(carriers.ended(pids[0], well), []);
        assert_eq!(carriers.ended(pids[1], well), [News::CopyTaken(9, Ok(()))]);
        add(&mut carriers, 10, [Hand::Receives, Hand::Takes]);
        carriers.cancel_part(10);
        for pid in pids {
            assert_eq!(carriers.ended(pid, ExitStatus::Signal(9)), []);
        }
    }
}
