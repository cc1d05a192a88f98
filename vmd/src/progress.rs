//! How much of the images of tasks that leave has been sent, for those who wait for the moves: looked
//! at once a second, and when a sender ends.
//!
//! The kernel counts what the sending process has read; nothing in the way of the image itself
//! counts or reports.

use crate::{context::Context, processes::Processes};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{collections::HashMap, fs, io};
use vm_machine::{Input, Time};
use vm_wire::{Tid, limits, peer::Sent};

/// The processes that send images.
#[derive(Debug, Default)]
pub struct Progress {
    senders: HashMap<Tid, Sender>,
    /// When they are looked at next, if there are some.
    next: Option<Time>,
}

#[derive(Debug)]
struct Sender {
    pid: Pid,
    /// Readable when it has ended.
    end: OwnedFd,
}

impl Progress {
    /// The image of a task is sent by that child, which was just started.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&mut self, tid: Tid, pid: Pid, now: Time) -> io::Result<()> {
        let end = pidfd_open(pid, PidfdFlags::empty())?;
        self.senders.insert(tid, Sender { pid, end });
        self.next.get_or_insert(now + limits::MOVE_SENT_EVERY);
        Ok(())
    }

    /// When [`Progress::tick`] has something to do.
    pub fn deadline(&self) -> Option<Time> {
        self.next
    }

    /// Some child has ended.
    pub fn note_ended(&mut self, context: &mut Context) {
        let inbox = &mut context.inbox;
        self.senders.retain(|tid, sender| {
            let ended = has_ended(&sender.end);
            if ended {
                inbox.push_back(Input::SentAll(*tid));
            }
            !ended
        });
        if self.senders.is_empty() {
            self.next = None;
        }
    }

    /// Tells how far each is, if it is time.
    pub fn tick(&mut self, processes: &Processes, context: &mut Context) {
        if self.next.is_none_or(|next| next > context.now) {
            return;
        }
        self.next = Some(context.now + limits::MOVE_SENT_EVERY);
        for (tid, sender) in &self.senders {
            // Whichever process is just ending has no numbers any more.
            if let Some(bytes) = bytes_read(sender.pid)
                && let Some(memory) = processes.pid(*tid).and_then(resident)
            {
                let sent = Sent { bytes, memory };
                context.inbox.push_back(Input::Sent(*tid, sent));
            }
        }
    }
}

fn has_ended(end: &OwnedFd) -> bool {
    let mut ends = [PollFd::new(end, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut ends, Some(&at_once)), Ok(1..))
}

/// What a process has read so far.
fn bytes_read(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("rchar:"))?;
    line.trim().parse().ok()
}

/// The memory that a process has.
fn resident(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_what_a_process_has_read_and_how_large_it_is() {
        let here = rustix::process::getpid();
        let before = bytes_read(here).expect("it runs");
        let text = fs::read("/proc/self/maps").expect("it can be read");
        assert!(bytes_read(here).expect("it runs") >= before + text.len() as u64);
        assert!(resident(here).expect("it runs") > 1 << 20);
    }
}
