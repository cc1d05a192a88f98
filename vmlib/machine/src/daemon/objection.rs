//! Reasons against moving or saving a task, which the check beforehand and the refusal share.

use vm_wire::task::FailKind;

/// Why a task that is stopped by a signal stays.
pub(super) const STOPPED: &str =
    "it is stopped by a signal; let it go on first ('vm sig CONT' and its TID)";

/// Why a task is not moved.
pub(super) const CUT: &str = "a checkpoint of its application is being made; try again";

/// Something that speaks against moving a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Objection {
    /// For people.
    pub text: String,
    /// It passes by itself.
    pub passes: bool,
}

impl Objection {
    pub fn lasting(text: impl Into<String>) -> Self {
        let (text, passes) = (text.into(), false);
        Objection { text, passes }
    }

    pub fn passing(text: impl Into<String>) -> Self {
        let (text, passes) = (text.into(), true);
        Objection { text, passes }
    }

    /// The kind of a refusal for this reason.
    pub fn kind(&self) -> FailKind {
        match self.passes {
            true => FailKind::Busy,
            false => FailKind::Refused,
        }
    }
}
