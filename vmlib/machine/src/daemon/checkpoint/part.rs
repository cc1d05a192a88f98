//! The part of one task in a cut, from the order to freeze until the coordinator knows the result.

use crate::{Time, Written};
use vm_wire::{
    HostId,
    checkpoint::{Part, SavedPart},
    peer::Belongings,
};

/// The state of one task's part.
#[derive(Debug)]
pub(super) enum PartState {
    /// The task is starting, or is moving to this host.
    Waiting,
    /// The task was told to freeze, and its image is being written.
    Saving(Box<Saving>),
    /// The part is saved, or could not be, and the coordinator was told so.
    Reported,
}

/// A part that is being saved. The freeze of the task and the writing of its image go on
/// independently: the task resumes while a copy of it still writes the image.
#[derive(Debug)]
pub(super) struct Saving {
    /// The daemon's own state of the task at the cut.
    belongings: Belongings,
    freeze: Freeze,
    /// When the task resumed, because the log let the application resume.
    resumed: Option<Time>,
    /// The host that gets a second copy of the image, if any does.
    second: Option<HostId>,
    image: Image,
}

/// How far the freeze of the task is.
#[derive(Debug)]
enum Freeze {
    /// The task was told to freeze.
    Ordered,
    /// The task freezes in calls of the library alone, and has come to one.
    AtCall,
    /// The task has been known to be frozen since `at`.
    Frozen { at: Time, written: Written },
}

/// How far the image is.
#[derive(Debug)]
enum Image {
    Writing,
    /// The image is in the store here, and the second host copies it.
    Copying(Part),
    /// The image is in all stores that it is to be in.
    Stored(Part),
}

impl Saving {
    /// The part of a task that is told to freeze.
    pub fn new(belongings: Belongings, second: Option<HostId>) -> Self {
        Saving {
            belongings,
            freeze: Freeze::Ordered,
            resumed: None,
            second,
            image: Image::Writing,
        }
    }

    /// Whether the task runs: it is neither frozen nor in a call of the library where it freezes.
    pub fn runs(&self) -> bool {
        matches!(self.freeze, Freeze::Ordered)
    }

    /// Whether the image is to have a second copy on that host.
    pub fn is_copied_to(&self, host: HostId) -> bool {
        self.second == Some(host)
    }

    /// The task has come to a call of the library, where it freezes.
    pub fn on_call(&mut self) {
        if self.runs() {
            self.freeze = Freeze::AtCall;
        }
    }

    /// The task is frozen.
    pub fn on_frozen(&mut self, at: Time, written: Written) {
        self.freeze = Freeze::Frozen { at, written };
    }

    /// The task resumes.
    pub fn on_resumed(&mut self, at: Time) {
        self.resumed = Some(at);
    }

    /// The task has become portable: whether that was before it was frozen.
    pub fn on_portable(&mut self) -> bool {
        let in_time = !matches!(self.freeze, Freeze::Frozen { .. });
        self.belongings.portable |= in_time;
        in_time
    }

    /// The image is in the store here. Returned is the host that is to copy it, if any is.
    pub fn on_stored(&mut self, part: Part) -> Option<HostId> {
        self.image = match self.second {
            Some(_) => Image::Copying(part),
            None => Image::Stored(part),
        };
        self.second
    }

    /// The image that a second host copies.
    pub fn copying(&self, host: HostId) -> Option<&Part> {
        match &self.image {
            Image::Copying(part) if self.is_copied_to(host) => Some(part),
            _ => None,
        }
    }

    /// The second host, which has this name, has copied the image.
    pub fn on_copied(&mut self, name: String) {
        if let Image::Copying(part) = &self.image {
            self.image = Image::Stored(Part {
                copy: Some(name),
                ..part.clone()
            });
        }
    }

    /// The saved part, once its image is stored and its freeze time is known. The freeze of a task
    /// that ends with the cut lasts until `end`.
    pub fn take_saved(&mut self, end: Option<Time>) -> Option<SavedPart> {
        let until = self.resumed.or(end)?;
        let (Freeze::Frozen { at, written }, Image::Stored(image)) = (&self.freeze, &self.image)
        else {
            return None;
        };
        Some(SavedPart {
            image: image.clone(),
            belongings: std::mem::take(&mut self.belongings),
            freeze_us: (written.time + until.since(*at)).as_micros() as u64,
            unacknowledged: written.unacknowledged,
        })
    }
}
