//! Reports about images and transfer processes, as inputs of the state machine.

use crate::{
    context::Context,
    image::carriers::{Failure, News, Role},
    process::{processes::Processes, usage},
};
use std::io;
use vm_machine::{Input, MoveInput, StoreInput};
use vm_wire::{
    Tid,
    peer::Sent,
    task::{FailKind, Failed},
};

/// The reason why a task that ends has no image.
const ENDS: &str = "its process ends";

/// Gives a report about a transfer process to the state machine. The loss of a process at the
/// source and the loss of one at the target are different inputs.
pub fn tell(news: News, processes: &Processes, context: &mut Context) {
    let Failure { tid, role, text } = match news {
        News::Failed(failure) => failure,
        News::SentAll(tid) => {
            return context
                .inbox
                .push_back(Input::Move(MoveInput::SentAll(tid)));
        }
        News::PartSent(ticket, result) => {
            let result = result.map_err(|text| Failed::new(FailKind::System, text));
            return context
                .inbox
                .push_back(Input::Store(StoreInput::PartSent(ticket, result)));
        }
        News::CopyTaken(ticket, result) => {
            let result = result.map_err(|text| Failed::new(FailKind::System, text));
            return context
                .inbox
                .push_back(Input::Store(StoreInput::CopyTaken(ticket, result)));
        }
        News::Stored(tid, epoch, part) => {
            return context
                .inbox
                .push_back(Input::Store(StoreInput::Part(tid, epoch, Ok(part))));
        }
        News::Suspended(tid, number, part) => {
            return context.inbox.push_back(Input::Store(StoreInput::Suspended(
                tid,
                number,
                Ok(part),
            )));
        }
        News::Read(tid, bytes) => {
            // A process that is ending has no figures any more.
            if let Some(memory) = processes.pid(tid).and_then(usage::resident) {
                let sent = Sent { bytes, memory };
                context
                    .inbox
                    .push_back(Input::Move(MoveInput::Sent(tid, sent)));
            }
            return;
        }
    };
    let saves = !matches!(role, Role::Receiver | Role::Restorer);
    let failed = match saves && processes.pid(tid).is_some_and(usage::is_ending) {
        // The image is incomplete because the task is ending.
        true => Failed::new(FailKind::NoSuchTask, ENDS),
        false => Failed::new(FailKind::System, text),
    };
    context.inbox.push_back(match role {
        Role::Sender => Input::Move(MoveInput::Frozen(tid, Err(failed))),
        Role::Writer(_, epoch) => Input::Store(StoreInput::Part(tid, epoch, Err(failed))),
        Role::Suspender(number) => Input::Store(StoreInput::Suspended(tid, number, Err(failed))),
        Role::Receiver | Role::Restorer => Input::Move(MoveInput::Arrived(tid, Err(failed))),
        // The results of parts are other reports.
        Role::Part(..) => return,
    });
}

/// Reports that an order cannot be sent to a task, mostly because its process ends.
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
    context
        .inbox
        .push_back(Input::Move(MoveInput::Frozen(tid, Err(failed))));
}
