//! What becomes of images and of those who carry them, told to the state machine.

use crate::{
    context::Context,
    image::carriers::{Failure, News, Role},
    process::{processes::Processes, usage},
};
use std::io;
use vm_machine::Input;
use vm_wire::{
    Tid,
    peer::Sent,
    task::{FailKind, Failed},
};

/// Why there is no image of a task that ends.
const ENDS: &str = "its process ends";

/// Hands on what is to be known of a process that carries an image. If it is lost, that is another
/// thing for its source than for its target.
pub fn tell(news: News, processes: &Processes, context: &mut Context) {
    let Failure { tid, role, text } = match news {
        News::Failed(failure) => failure,
        News::SentAll(tid) => return context.inbox.push_back(Input::SentAll(tid)),
        News::PartSent(ticket, result) => {
            let result = result.map_err(|text| Failed::new(FailKind::System, text));
            return context.inbox.push_back(Input::PartSent(ticket, result));
        }
        News::CopyTaken(ticket, result) => {
            let result = result.map_err(|text| Failed::new(FailKind::System, text));
            return context.inbox.push_back(Input::CopyTaken(ticket, result));
        }
        News::Stored(tid, epoch, part) => {
            return context.inbox.push_back(Input::Stored(tid, epoch, Ok(part)));
        }
        News::Suspended(tid, number, part) => {
            return context
                .inbox
                .push_back(Input::Suspended(tid, number, Ok(part)));
        }
        News::Read(tid, bytes) => {
            // Whichever process is just ending has no numbers any more.
            if let Some(memory) = processes.pid(tid).and_then(usage::resident) {
                let sent = Sent { bytes, memory };
                context.inbox.push_back(Input::Sent(tid, sent));
            }
            return;
        }
    };
    let saves = !matches!(role, Role::Receiver | Role::Restorer);
    let failed = match saves && processes.pid(tid).is_some_and(usage::is_ending) {
        // The image ends too early because the task does.
        true => Failed::new(FailKind::NoSuchTask, ENDS),
        false => Failed::new(FailKind::System, text),
    };
    context.inbox.push_back(match role {
        Role::Sender => Input::Frozen(tid, Err(failed)),
        Role::Writer(_, epoch) => Input::Stored(tid, epoch, Err(failed)),
        Role::Suspender(number) => Input::Suspended(tid, number, Err(failed)),
        Role::Receiver | Role::Restorer => Input::Arrived(tid, Err(failed)),
        // Of these there is other news.
        Role::Part(..) => return,
    });
}

/// A task cannot be told what to do: mostly because its process ends.
pub fn refuse(tid: Tid, error: &io::Error, context: &mut Context) {
    let gone = matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotFound
    );
    let failed = match gone {
        true => Failed::new(FailKind::NoSuchTask, ENDS),
        false => {
            let text = format!("the order to freeze cannot be sent to it: {error}");
            Failed::new(FailKind::System, text)
        }
    };
    context.inbox.push_back(Input::Frozen(tid, Err(failed)));
}
