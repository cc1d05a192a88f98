//! The part of a group's handle that collective calls change.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vm_wire::Tid;

/// Which call is next, and what is known of the other members.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Progress {
    /// Version of the group to which the rest belongs.
    version: u64,
    /// Number of the next call under this version.
    next: u64,
    /// Members that know this task's version, because they were sent a message with it.
    contacts: BTreeSet<Tid>,
    /// The newest version of which a member has told.
    heard: u64,
}

impl Progress {
    /// The number of a call that begins under that version.
    pub(super) fn begin(&mut self, version: u64) -> u64 {
        if self.version != version {
            *self = Progress {
                version,
                heard: self.heard,
                ..Progress::default()
            };
        }
        self.next += 1;
        self.next - 1
    }

    /// Whether this is the first contact with that member under this version.
    pub(super) fn is_first_contact(&mut self, tid: Tid) -> bool {
        self.contacts.insert(tid)
    }

    /// A member has a newer version.
    pub(super) fn hear(&mut self, version: u64) {
        self.heard = self.heard.max(version);
    }

    /// The version to which the handle has to be brought, at least.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_numbered_and_contacts_made_anew_under_each_version() {
        let mut progress = Progress::default();
        assert_eq!([1, 1, 1].map(|version| progress.begin(version)), [0, 1, 2]);
        assert!(progress.is_first_contact(Tid(1)));
        assert!(!progress.is_first_contact(Tid(1)));
        progress.hear(9);
        progress.hear(4);
        assert_eq!((progress.begin(9), progress.heard()), (0, 9));
        assert!(progress.is_first_contact(Tid(1)));
    }
}
