//! The interrupt sockets of this host's tasks: orders to the process of a task, and its reports
//! ([`vm_wire::interrupt`]).
//!
//! After an order the daemon sends a signal, which interrupts a task that computes. A report that
//! cannot be decoded is logged and otherwise ignored.

use crate::context::{Context, Source};
use mio::unix::SourceFd;
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg},
};
use slab::Slab;
use std::{collections::HashMap, io, io::IoSlice, mem::MaybeUninit};
use vm_wire::{
    Tid,
    interrupt::{Folders, Order, REPORT_MAX, Report},
};

#[derive(Debug)]
struct Interrupt {
    tid: Tid,
    socket: OwnedFd,
    /// Number of the last order that carried a descriptor for an image.
    image: u64,
}

/// The interrupt sockets of all tasks of this host.
#[derive(Debug, Default)]
pub struct Interrupts {
    table: Slab<Interrupt>,
    tasks: HashMap<Tid, usize>,
    /// Number of the last order to any task.
    orders: u64,
}

impl Interrupts {
    /// Adds the daemon's end of a task's interrupt socket. An older socket of the task is replaced.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn add(&mut self, tid: Tid, socket: OwnedFd, context: &Context) -> io::Result<()> {
        self.remove(tid);
        let entry = self.table.vacant_entry();
        let source = Source::Interrupt(entry.key());
        context.register_readable(&mut SourceFd(&socket.as_raw_fd()), source)?;
        self.tasks.insert(tid, entry.key());
        entry.insert(Interrupt {
            tid,
            socket,
            image: 0,
        });
        Ok(())
    }

    /// Closes the interrupt socket of a task that ends.
    pub fn remove(&mut self, tid: Tid) {
        if let Some(place) = self.tasks.remove(&tid) {
            self.table.remove(place);
        }
    }

    /// Sends an order: with folders if the order is [`Order::Copy`] and folders are given, and with
    /// a descriptor if the order needs one.
    ///
    /// # Errors
    /// The error of the system call; `NotFound` if the task has no interrupt socket.
    pub fn order(
        &mut self,
        tid: Tid,
        order: Order,
        folders: Option<&Folders>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let place = self.tasks.get(&tid).ok_or(io::ErrorKind::NotFound)?;
        let interrupt = &mut self.table[*place];
        self.orders += 1;
        if descriptor.is_some() {
            interrupt.image = self.orders;
        }
        let socket = interrupt.socket.as_fd();
        let bytes = match folders {
            Some(folders) => folders.added_to(order.to_bytes(self.orders)),
            None => order.to_bytes(self.orders).to_vec(),
        };
        let Some(descriptor) = descriptor else {
            send(socket, &bytes, SendFlags::NOSIGNAL)?;
            return Ok(());
        };
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(
            socket,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Reads one report of the task at `place`. `None`: there is no report. `Some(None)`: the
    /// report is to be ignored, because it is about an abandoned image or cannot be decoded.
    pub fn read(&mut self, place: usize) -> Option<Option<(Tid, Report<String>)>> {
        let interrupt = self.table.get(place)?;
        let mut packet = [0; REPORT_MAX];
        loop {
            match recv(&interrupt.socket, &mut packet, RecvFlags::DONTWAIT) {
                Ok((len @ 1.., _)) => {
                    return Some(match Report::read(&packet[..len]) {
                        Some((order, _)) if (1..interrupt.image).contains(&order) => None,
                        Some((_, report)) => Some((interrupt.tid, report.owned())),
                        None => {
                            log::warn!("task {} reports what makes no sense", interrupt.tid);
                            None
                        }
                    });
                }
                Err(Errno::INTR) => {}
                // Either there is no report, or the other end is closed; the end of the process is
                // reported elsewhere.
                Ok(_) | Err(_) => return None,
            }
        }
    }
}
