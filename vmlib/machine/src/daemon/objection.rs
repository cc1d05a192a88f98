//! Objections to a move or a save of a task. The check and the refusal give the same text.

use vm_wire::task::FailKind;

/// The objection to a move or a save of a task that is stopped by a signal.
pub(super) const STOPPED: &str =
    "it is stopped by a signal; continue it first ('vm sig CONT' and its TID)";

/// The objection to the move of a task whose application has a checkpoint under way.
pub(super) const CUT: &str = "a checkpoint of its application is being made; try again";

/// A reason against the move of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Objection {
    /// The reason, for people.
    pub text: String,
    /// Whether the reason passes without action of a user.
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
