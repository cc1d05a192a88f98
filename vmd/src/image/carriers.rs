//! Watches the transfer processes, which carry the image of a task: how many bytes they have read,
//! whether they make progress, and their error messages.
//!
//! The path of the image itself counts and reports nothing. The kernel counts how many bytes the
//! sender has read.
//!
//! A transfer process that hangs would hold a moving task for as long as an image may take to
//! arrive. So each process is checked every second. A process that has work (bytes to read, or the
//! end of its input) and uses no processor time in [`limits::MOVE_STALL_LOOKS`] checks in a row is
//! given up: the move is aborted, and the requester gets an error. A process that waits for bytes
//! is in order, however long it waits. The work of a process at the target also counts for the
//! processes before it, which wait for it.
//!
//! A thread of its own starts the processes, one after the other ([`crate::process::starter`]). A
//! process that waits to be started also counts as hanging if no process at all is started for as
//! long.
//!
//! The daemon keeps a copy of the end that such a process reads from, to see whether there are
//! bytes. It closes the copy as soon as the process has ended, so that the writer of the bytes gets
//! an error instead of waiting for ever.

use crate::{
    image::{images, transfer::Helpers},
    net::sockets::is_readable,
};
use rustix::{
    fd::OwnedFd,
    process::{Pid, Signal},
};
use std::{collections::VecDeque, fs, io, process::Command};
use vm_machine::Time;
use vm_store::name;
use vm_wire::{Tid, agreed::ExitStatus, checkpoint::Part, limits};

/// Bound on the processes that are checked in one turn, so that turns stay short.
const LOOKS: usize = 16;

/// The job of a transfer process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends the image, at the source.
    Sender,
    /// Writes the image into the store, for a checkpoint: the application and the epoch.
    Writer(Tid, u32),
    /// Writes the image of a task that is suspended alone; the number is the suspension's.
    Suspender(u64),
    /// Receives the image, at the target.
    Receiver,
    /// Becomes the task, at the target.
    Restorer,
    /// Takes part in bringing a part of a checkpoint from one store to another host; the number is
    /// the ticket.
    Part(u64, Hand),
}

/// The job of a process that takes part in bringing a part to another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    /// Reads the part from the store.
    Reads,
    /// Sends the part.
    Sends,
    /// Receives the part.
    Receives,
    /// Writes the part into the store.
    Takes,
}

impl Role {
    /// Whether the process works on the host where the task is saved.
    fn is_source(self) -> bool {
        matches!(self, Role::Sender | Role::Writer(..) | Role::Suspender(_))
    }

    /// Number of idle checks in a row after which the process counts as hanging.
    fn patience(self) -> u32 {
        match self {
            Role::Receiver | Role::Restorer => limits::MOVE_STALL_LOOKS,
            _ => limits::MOVE_STALL_LOOKS_SOURCE,
        }
    }

    /// The role as text for people.
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

/// A report about a transfer process.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// The sender has read this number of bytes of a task's image.
    Read(Tid, u64),
    /// The sender has ended.
    SentAll(Tid),
    /// The writer has ended: the image is in the store.
    Stored(Tid, u32, Part),
    /// The writer of a suspended task's image has ended: the image is in the store. The number is
    /// the suspension's.
    Suspended(Tid, u64, Part),
    /// A part was sent to another host, or the reason why not.
    PartSent(u64, Result<(), String>),
    /// A part of another host is in the store, or the reason why not.
    CopyTaken(u64, Result<(), String>),
    /// A transfer process failed, or was given up.
    Failed(Failure),
}

/// The failure of a transfer process that is still needed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The task whose image the process carries.
    pub tid: Tid,
    /// The job of the process.
    pub role: Role,
    /// The failed step and its cause, for people.
    pub text: String,
}

/// The progress of a process, from one check to the next.
#[derive(Debug, Default)]
struct Headway {
    work: Option<u64>,
    idle: u32,
}

impl Headway {
    /// Adds one check. `work` grows whenever the process does something; none if it cannot be
    /// determined. Returns the number of checks in a row in which the process had work and did
    /// nothing.
    fn look(&mut self, work: Option<u64>, busy: bool) -> u32 {
        let hangs = busy && work.is_some() && work == self.work;
        self.idle = if hangs { self.idle + 1 } else { 0 };
        self.work = work;
        self.idle
    }
}

#[derive(Debug)]
struct Carrier {
    number: u64,
    tid: Tid,
    role: Role,
    /// None until the process is started.
    pid: Option<Pid>,
    /// The input of the process, if it is to be watched.
    input: Option<OwnedFd>,
    /// The pipe with the process's error messages, if this table reads them.
    words: Option<OwnedFd>,
    headway: Headway,
    /// Whether a failure of the process is still to be reported.
    matters: bool,
    due: Time,
}

/// The transfer processes of this daemon.
#[derive(Debug, Default)]
pub struct Carriers {
    table: Vec<Carrier>,
    /// Number of the process that was added last.
    last: u64,
    /// Numbers of the processes that wait to be started, in order.
    starting: VecDeque<u64>,
    /// Count of the processes that were started, or failed to start.
    answers: u64,
}

impl Carriers {
    /// Has a process started. It reads `input`, if its progress is to be watched, and writes its
    /// error messages to standard error. It replaces an earlier process with the same role for that
    /// task.
    pub fn start(
        &mut self,
        (tid, role): (Tid, Role),
        command: Command,
        input: Option<OwnedFd>,
        helpers: &mut Helpers,
        now: Time,
    ) {
        let number = self.add(tid, role, input, now);
        self.starting.push_back(number);
        helpers.start(command);
    }

    /// Watches a process that another module has started. That module reads its error messages.
    pub fn watch(&mut self, tid: Tid, role: Role, pid: Pid, input: OwnedFd, now: Time) {
        let number = self.add(tid, role, Some(input), now);
        self.begun(number, pid, None);
    }

    fn add(&mut self, tid: Tid, role: Role, input: Option<OwnedFd>, now: Time) -> u64 {
        self.drop_all(tid, |other| other == role);
        self.last += 1;
        self.table.push(Carrier {
            number: self.last,
            tid,
            role,
            pid: None,
            input,
            words: None,
            headway: Headway::default(),
            matters: true,
            due: now + limits::MOVE_LOOK,
        });
        self.last
    }

    /// Takes the results of the starter thread. Returns none if there was no result.
    pub fn take_started(&mut self, helpers: &mut Helpers) -> Option<Vec<News>> {
        let mut news = None;
        while let Some(answer) = helpers.answer() {
            let number = self.starting.pop_front();
            let number = number.expect("each answer is to an order");
            self.answers += 1;
            let news = news.get_or_insert_with(Vec::new);
            match answer {
                Ok((pid, words)) => self.begun(number, pid, words),
                Err(error) => news.extend(self.not_begun(number, &error)),
            }
        }
        news
    }

    /// Records that a process was started. If the process is no longer needed, it is killed.
    fn begun(&mut self, number: u64, pid: Pid, words: Option<OwnedFd>) {
        let mut table = self.table.iter_mut();
        let carrier = table.find(|carrier| carrier.number == number);
        let matters = carrier.as_ref().is_some_and(|carrier| carrier.matters);
        if let Some(carrier) = carrier {
            carrier.pid = Some(pid);
            carrier.words = words;
        }
        if !matters {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Records that a process cannot be started.
    fn not_begun(&mut self, number: u64, error: &io::Error) -> Vec<News> {
        let mut table = self.table.iter();
        match table.position(|carrier| carrier.number == number) {
            Some(place) => {
                let carrier = self.table.swap_remove(place);
                self.over(&carrier, Err(format!("cannot be started: {error}")))
            }
            None => Vec::new(),
        }
    }

    /// Ends the processes that bring the part with this ticket.
    pub fn cancel_part(&mut self, ticket: u64) {
        self.drop_all(
            Tid::NONE,
            |role| matches!(role, Role::Part(of, _) if of == ticket),
        );
    }

    /// At the source: ends the processes of an image that is no longer needed. The task that writes
    /// the image gets an error instead of waiting.
    pub fn cancel(&mut self, tid: Tid) {
        self.drop_all(tid, Role::is_source);
    }

    /// At the target: ends the processes of a task that is no longer expected.
    pub fn forget(&mut self, tid: Tid) {
        self.drop_all(tid, |role| !role.is_source());
    }

    /// At the target: the image was received whole. A failure of the receiver is not reported from
    /// now on.
    pub fn arrived(&mut self, tid: Tid) {
        self.table
            .retain(|carrier| (carrier.tid, carrier.role) != (tid, Role::Restorer));
        for carrier in &mut self.table {
            carrier.matters &= (carrier.tid, carrier.role) != (tid, Role::Receiver);
        }
    }

    /// Kills the processes and drops their reports. The restorer is not killed here: the process of
    /// a task is ended by `Processes`.
    fn drop_all(&mut self, tid: Tid, of: impl Fn(Role) -> bool) {
        self.table.retain_mut(|carrier| {
            if carrier.tid != tid || !of(carrier.role) {
                return true;
            }
            carrier.matters = false;
            carrier.kill();
            carrier.pid.is_some() && carrier.role != Role::Restorer
        });
    }

    /// Handles the end of a child of this daemon, which may be a transfer process.
    pub fn ended(&mut self, pid: Pid, status: ExitStatus) -> Vec<News> {
        let mut table = self.table.iter();
        let Some(place) = table.position(|carrier| carrier.pid == Some(pid)) else {
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
            // The caller knows the name of the image.
            && let Some(part) = images::receipt(String::new(), &said).filter(|_| well)
        {
            let news = News::Suspended(carrier.tid, number, part);
            return Vec::from_iter(carrier.matters.then_some(news));
        }
        if !said.is_empty() {
            log::warn!("{said}");
        }
        let result = match said.is_empty() {
            _ if well => Ok(()),
            true => Err(format!("ended ({status})")),
            false => Err(format!("failed: {said}")),
        };
        self.over(&carrier, result)
    }

    /// Handles the end of a process that was removed from the table.
    fn over(&mut self, carrier: &Carrier, result: Result<(), String>) -> Vec<News> {
        if let Role::Part(ticket, hand) = carrier.role {
            let result = result.map_err(|why| format!("{} {why}", carrier.role.name()));
            let news = carrier
                .matters
                .then(|| self.part_ended(ticket, hand, result));
            return Vec::from_iter(news.flatten());
        }
        let mut news = Vec::new();
        if carrier.role == Role::Sender {
            news.push(News::SentAll(carrier.tid));
        }
        if let Err(why) = result
            && carrier.matters
        {
            news.push(carrier.failure(&why));
        }
        news
    }

    /// Handles the end of a process that took part in bringing a part. The first failure is
    /// reported. The source reports success when no process of the ticket is left; the target
    /// reports it when the part is in the store.
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

    /// The time of the next check.
    pub fn deadline(&self) -> Option<Time> {
        self.table.iter().map(|carrier| carrier.due).min()
    }

    /// Checks the processes that are due. Processes that hang are killed.
    pub fn tick(&mut self, now: Time) -> Vec<News> {
        let due = self.table.iter().enumerate();
        let mut due: Vec<usize> = due
            .filter(|(_, carrier)| carrier.due <= now)
            .map(|(place, _)| place)
            .take(LOOKS)
            .collect();
        // A process that waits for a hanging one also looks as if it hung. So the restorer, which
        // is the last, is checked first.
        due.sort_by_key(|place| self.table[*place].role != Role::Restorer);
        let mut news = Vec::new();
        for place in due {
            let after = self.work_after(place);
            // A process that waits to be started makes progress with each process that is started
            // before it.
            let before = self.answers;
            let carrier = &mut self.table[place];
            carrier.due = now + limits::MOVE_LOOK;
            if carrier.role == Role::Sender {
                let read = carrier.pid.and_then(bytes_read);
                news.extend(read.map(|bytes| News::Read(carrier.tid, bytes)));
            }
            let own = carrier.pid.map_or(Some(before), work);
            let work = own.map(|work| work + after);
            let busy = carrier.input.as_ref().is_some_and(is_readable);
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

    /// The work of the local process that reads the output of the process in `place`.
    fn work_after(&self, place: usize) -> u64 {
        let Carrier { tid, role, .. } = self.table[place];
        let mut carriers = self.table.iter();
        let next = carriers.find(|other| {
            role == Role::Receiver && (other.tid, other.role) == (tid, Role::Restorer)
        });
        let pid = next.and_then(|next| next.pid);
        pid.and_then(work).unwrap_or(0)
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

    /// The process was not waited for, so its number still refers to it.
    fn kill(&self) {
        if let Some(pid) = self.pid
            && self.role != Role::Restorer
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Processor time that the threads of a process have used, in nanoseconds; none if the system does
/// not report it.
fn work(pid: Pid) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    let ran = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    Some(ran.sum()).filter(|ran| *ran > 0)
}

/// Bytes that a process has read so far; none for a process that is ending.
fn bytes_read(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("rchar:"))?;
    line.trim().parse().ok()
}

/// The text that can be read from the pipe now, as one line, without the name of the program.
fn read_words(from: &OwnedFd) -> String {
    let mut bytes = [0; limits::MOVE_WORDS_MAX];
    if !is_readable(from) {
        return String::new();
    }
    let count = rustix::io::read(from, &mut bytes).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..count]);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let text = lines.join("; ");
    text.strip_prefix("vmd: ").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests;
