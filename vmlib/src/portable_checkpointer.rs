//! The checkpointer of portable tasks: it saves what the program gave at a safe point.
//!
//! No `unsafe` here.

use crate::{
    checkpointer::Checkpointer,
    freeze::{self, report, report_saved},
    image,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
};
use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};
use vm_wire::interrupt::{Freeze, Report};

/// The checkpointer of portable tasks.
pub(crate) struct Portable {
    /// At a safe point: the whole stream, or why there is none; and since when the task is at it.
    pub(crate) given: Option<(Result<Vec<u8>, String>, Instant)>,
    /// Where the stream is written to when the task goes on.
    pub(crate) image: Mutex<Option<OwnedFd>>,
}

/// A portable task between its safe points.
pub(crate) static RUNNING: Portable = Portable {
    given: None,
    image: Mutex::new(None),
};

impl Checkpointer for Portable {
    /// There is nothing to be sent before a safe point.
    fn prepare(&self, _: OwnedFd, _: bool) {
        let (bytes, rounds) = (0, 0);
        report(Report::Copied { bytes, rounds });
    }

    fn stop(&self) -> bool {
        self.given.is_some()
    }

    /// A part of a checkpoint of which the task goes on is written then: so the others of its
    /// application do not stand while it is.
    fn save(&self, image: OwnedFd, _: bool, way: Freeze) {
        if image::give_up_begun() {
            return report(Report::Busy("it has just become portable; try again"));
        }
        let Some((given, began)) = &self.given else {
            return report(Report::Busy("it is at no safe point; try again"));
        };
        let stream = match given {
            Ok(stream) => stream,
            Err(why) => return report(Report::Refused(why)),
        };
        let mut bytes = 0;
        if way == Freeze::Copied {
            *self.image.lock().unwrap_or_else(PoisonError::into_inner) = Some(image);
        } else if let Err(error) = write_all(&image, stream) {
            let text = format!("its state cannot be written: {error}");
            return report(Report::Refused(&text));
        } else {
            bytes = stream.len() as u64;
            drop(image);
        }
        let micros = u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX);
        report_saved(bytes, micros);
        freeze::stand(self);
    }

    fn go_on(&self) {
        let image = self
            .image
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let (Some(image), Some((Ok(stream), _))) = (image, &self.given) {
            // If it is not wanted any more, nobody reads it.
            let _ = write_all(&image, stream);
        }
    }

    fn rebuild(&self) {
        freeze::came_back(self);
    }

    /// The program goes on when `init` has returned.
    fn resume(&self) {}
}

/// Writes all of it to a pipe, whose end may have been closed. (Rust programs ignore SIGPIPE.)
fn write_all(pipe: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&pipe, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
