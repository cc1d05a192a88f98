//! Contexts: conversations that do not meet.
//!
//! Each message belongs to a context, and a receive selects messages of one context alone. A library that
//! has a context of its own can send with any tag, and never receives what its user sends. A handle of a
//! task ([`crate::Task`]) is a handle in one context.

use serde::{Deserialize, Serialize};
use std::fmt;
use vm_wire::limits;

/// A context. It can be sent to other tasks, which then use it too ([`crate::Task::in_context`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContextId(u32);

impl ContextId {
    /// The context in which a program begins.
    pub const PROGRAM: ContextId = ContextId(0);

    /// The context with that number; `None` for a number that no context has.
    pub const fn from_number(number: u32) -> Option<ContextId> {
        match number {
            0..=limits::CONTEXTS_MAX => Some(ContextId(number)),
            _ => None,
        }
    }

    /// Its number: 0 for [`ContextId::PROGRAM`].
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
