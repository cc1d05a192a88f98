//! Groups of tasks: named, agreed, with instance numbers.
//!
//! The first member makes a group, and the group ends with its last member. A member gets the
//! lowest free instance number, so that the numbers stay dense. Each change gives the group a
//! version that the machine never used before, not even for an earlier group of the same name. So
//! members that wait for each other "as of version v" mean the same members.

use crate::agreed::Void;
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{Tid, checkpoint::SavedGroup, limits};

/// A group as of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Goes up with each join and leave; unique among the versions of all groups.
    pub version: u64,
    /// The members, by instance number.
    pub members: BTreeMap<u32, Tid>,
}

impl Group {
    /// The instance number of a member.
    pub fn instance(&self, tid: Tid) -> Option<u32> {
        let found = self.members.iter().find(|(_, member)| **member == tid);
        found.map(|(instance, _)| *instance)
    }

    /// The lowest instance number without a member.
    fn free_instance(&self) -> u32 {
        let taken = self.members.keys().zip(0..).take_while(|(a, b)| **a == *b);
        taken.count() as u32
    }
}

/// All groups of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// The last version of any group.
    version: u64,
    groups: BTreeMap<String, Group>,
    /// Groups of each task: to find its memberships at its end, and for a fast test.
    of_task: BTreeMap<Tid, BTreeSet<String>>,
    memberships: usize,
}

impl Groups {
    /// The groups of a snapshot; `version` is the last version of any group.
    pub(crate) fn restored(version: u64, groups: BTreeMap<String, Group>) -> Self {
        let mut restored = Groups {
            version,
            ..Groups::default()
        };
        for (name, group) in &groups {
            restored.memberships += group.members.len();
            for tid in group.members.values() {
                restored
                    .of_task
                    .entry(*tid)
                    .or_default()
                    .insert(name.clone());
            }
        }
        restored.groups = groups;
        restored
    }

    /// The last version of any group.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The group of that name, while it has members.
    pub fn get(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// All groups, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups
            .iter()
            .map(|(name, group)| (name.as_str(), group))
    }

    /// Makes `tid` a member. Returns the new version.
    pub(crate) fn join(&mut self, name: &str, tid: Tid) -> Result<u64, Void> {
        if name.is_empty() || name.len() > limits::NAME_MAX {
            return Err(Void::Malformed);
        }
        if self
            .of_task
            .get(&tid)
            .is_some_and(|groups| groups.contains(name))
        {
            return Err(Void::Member);
        }
        let full = match self.groups.get(name) {
            Some(group) => group.members.len() >= limits::GROUP_MEMBERS_MAX,
            None => self.groups.len() >= limits::GROUPS_MAX,
        };
        if full || self.memberships >= limits::MEMBERSHIPS_MAX {
            return Err(Void::Limit);
        }
        self.version += 1;
        self.memberships += 1;
        self.of_task.entry(tid).or_default().insert(name.to_owned());
        let group = self.groups.entry(name.to_owned()).or_insert_with(|| Group {
            version: 0,
            members: BTreeMap::new(),
        });
        group.version = self.version;
        group.members.insert(group.free_instance(), tid);
        Ok(self.version)
    }

    /// Whether a restart can bring these groups into being: no group has one of the names, and all
    /// members are in `tids`.
    pub(crate) fn check_revival(
        &self,
        groups: &[SavedGroup],
        tids: &BTreeSet<Tid>,
    ) -> Result<(), Void> {
        let mut memberships = self.memberships;
        let mut names = BTreeSet::new();
        for group in groups {
            let members: BTreeMap<u32, Tid> = group.members.iter().copied().collect();
            let distinct: BTreeSet<Tid> = members.values().copied().collect();
            let count = group.members.len();
            if group.name.is_empty()
                || group.name.len() > limits::NAME_MAX
                || !names.insert(&group.name)
                || count == 0
                || count > limits::GROUP_MEMBERS_MAX
                || distinct.len() != count
                || members.len() != count
                || !distinct.is_subset(tids)
            {
                return Err(Void::Malformed);
            }
            if self.groups.contains_key(&group.name) {
                return Err(Void::GroupTaken);
            }
            memberships += count;
        }
        let full = self.groups.len() + groups.len() > limits::GROUPS_MAX;
        match full || memberships > limits::MEMBERSHIPS_MAX {
            true => Err(Void::Limit),
            false => Ok(()),
        }
    }

    /// Makes a group as it was at the cut, with its instance numbers and with its version, which
    /// its members may have agreed on. [`Groups::check_revival`] has succeeded before.
    pub(crate) fn revive(&mut self, saved: &SavedGroup) {
        self.version = self.version.max(saved.version);
        self.memberships += saved.members.len();
        for (_, tid) in &saved.members {
            let groups = self.of_task.entry(*tid).or_default();
            groups.insert(saved.name.clone());
        }
        let group = Group {
            version: saved.version,
            members: saved.members.iter().copied().collect(),
        };
        self.groups.insert(saved.name.clone(), group);
    }

    /// Ends a membership. Returns the new version.
    pub(crate) fn leave(&mut self, name: &str, tid: Tid) -> Result<u64, Void> {
        let groups = self.of_task.get_mut(&tid).ok_or(Void::Member)?;
        if !groups.remove(name) {
            return Err(Void::Member);
        }
        if groups.is_empty() {
            self.of_task.remove(&tid);
        }
        self.version += 1;
        self.memberships -= 1;
        if let Some(group) = self.groups.get_mut(name) {
            group.version = self.version;
            group.members.retain(|_, member| *member != tid);
            if group.members.is_empty() {
                self.groups.remove(name);
            }
        }
        Ok(self.version)
    }

    /// Ends all memberships of an ended task. Returns the changed groups with their versions.
    pub(crate) fn leave_all(&mut self, tid: Tid) -> Vec<(String, u64)> {
        let names = self.of_task.get(&tid).cloned().unwrap_or_default();
        let leave = |name: String| Some((name.clone(), self.leave(&name, tid).ok()?));
        names.into_iter().filter_map(leave).collect()
    }
}
