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
//! They are started one after the other, by a thread of its own ([`crate::process::starter`]). One that waits while
//! none at all is started for as long hangs likewise.
//!
//! The daemon keeps an end of what such a process reads, to see whether there are bytes. It lets go of
//! it as soon as the process has ended, so that whoever writes there is not left waiting.

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
    number: u64,
    tid: Tid,
    role: Role,
    /// None until it is started.
    pid: Option<Pid>,
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
    /// The number of the last one.
    last: u64,
    /// The numbers of those that are to be started, in order.
    starting: VecDeque<u64>,
    /// So many were started, or could not be.
    answers: u64,
}

impl Carriers {
    /// Has one more started, which reads `input`, if it is to be watched, and says on its standard error
    /// why it fails. It takes the place of an earlier one of that task.
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

    /// One more that was started by others, who hear what it says.
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

    /// Takes in which were started, or cannot be. Returns nothing if there was none.
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

    /// One was started. It ends at once if it is of no use any more.
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

    /// One cannot be started.
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
            carrier.pid.is_some() && carrier.role != Role::Restorer
        });
    }

    /// A child of this daemon, perhaps one of these, has ended.
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
            // What it is called the daemon knows.
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

    /// One that is not in the table any more has done its work, or why not.
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
            // One that waits for its turn gets nearer to it with each that is started.
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

    /// What was done by that to which the one in `place` hands on its bytes, if that is here.
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

    /// It was not waited for, so its number means nobody else.
    fn kill(&self) {
        if let Some(pid) = self.pid
            && self.role != Role::Restorer
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
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
