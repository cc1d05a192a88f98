//! In the place of the checkpointer of images on hosts where it cannot be: it knows the registers and
//! the memory of x86-64 alone. Tasks are saved here by what their programs give
//! ([`crate::Task::portable`]), or not at all.

use crate::{
    checkpointer::Checkpointer,
    freeze::{self, report},
    orders::are_called,
};
use rustix::fd::OwnedFd;
use std::{cell::Cell, marker::PhantomData};
use vm_wire::interrupt::{Freeze, Report};

/// Why a task is not saved.
const WHY: &str = "images of processes are made on x86-64 only: make its program portable \
                   (Task::portable)";

/// See the module.
pub(crate) struct Image;

impl Checkpointer for Image {
    fn prepare(&self, _: OwnedFd, _: bool) {
        report(Report::Refused(WHY));
    }

    fn stop(&self) -> bool {
        !are_called()
    }

    fn save(&self, _: OwnedFd, _: bool, _: Freeze) {
        report(Report::Refused(WHY));
    }

    fn go_on(&self) {}

    fn rebuild(&self) {
        freeze::came_back(self);
    }

    fn resume(&self) {}
}

/// Nothing has to be looked up.
pub(crate) fn prepare() {}

/// Nothing is ever begun.
pub(crate) fn give_up_begun() -> bool {
    false
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While one exists, orders wait: this thread holds the library's state.
#[derive(Debug)]
pub(crate) struct Section(PhantomData<*const ()>);

impl Section {
    /// Enters the section.
    pub(crate) fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Section(PhantomData)
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Whether this thread is in a [`Section`].
pub(crate) fn in_section() -> bool {
    DEPTH.get() > 0
}
